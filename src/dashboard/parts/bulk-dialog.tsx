import { Link } from "@tanstack/react-router";
import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { errorSentence, newAct } from "../api.ts";
import {
  type BulkAct,
  bulkApi,
  type BulkFacts,
  type BulkFilterFacts,
  type BulkPreviewFacts,
  type BulkRequestFacts,
} from "../asks/bulk.ts";
import { type BulkNoun, bulkOutcome, bulkProgress, rowOutcomeText } from "../facts/bulk.ts";
import { counted, exactCount } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { announce, readAgain, useLive, useMay, useNow } from "../live.ts";
import { When } from "./marks.tsx";
import { newSignalDraft, SignalFields, typedSignal } from "./signal-fields.tsx";
import { focusTitle } from "./states.tsx";
import { shortId, ShownText } from "./text.tsx";
import "../styles/bulk.css";

/** What a person may act on at once. */
export type BulkTarget = {
  readonly noun: BulkNoun;
  readonly filter: BulkFilterFacts;
  /** The acts that are possible on what the filter matches. */
  readonly acts: readonly BulkAct[];
  /** The versions of the flow that the filter names, which runs may be handed to. */
  readonly versions?: readonly number[];
};

type ActWords = { readonly verb: string; readonly says: string };

const words: Readonly<Record<BulkNoun, Readonly<Record<BulkAct, ActWords>>>> = (() => {
  const both = {
    resume: {
      verb: "Resume",
      says: "What was set aside goes on where it stopped, and is set aside again if nothing has changed.",
    },
    signal: { verb: "Signal", says: "What hasn't ended gets a signal, which its code waits for." },
    delete: {
      verb: "Delete",
      says: "What has ended is gone for good, with its events and results.",
    },
  };
  return {
    task: {
      ...both,
      cancel: { verb: "Cancel", says: "What waits never runs. What runs is asked to stop." },
      retry: {
        verb: "Retry",
        says: "Each starts over with the same payload and all of its attempts.",
      },
    },
    run: {
      ...both,
      cancel: {
        verb: "Cancel",
        says: "Their finalizers run first. Those that were set aside end without them.",
      },
      retry: { verb: "Start over", says: "Each goes on at the state where it stopped." },
    },
  };
})();

/** Asks for an act on many: with a count first, then until it has ended. The leader does it. */
export function BulkDialog({
  target,
  onBegun,
  onClose,
}: {
  target: BulkTarget;
  onBegun?: () => void;
  onClose: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [bulkId, setBulkId] = useState<string>();
  const { noun, filter } = target;
  const titleId = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const close = () => {
    dialog.current?.close();
    readAgain();
    focusTitle();
  };
  const begun = (id: string) => {
    setBulkId(id);
    onBegun?.();
  };
  const count = idCount(filter);
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={titleId} onClose={onClose}>
      <h2 id={titleId}>
        {count === undefined ? "All that match" : counted(count, `ticked ${noun}`)}
      </h2>
      {bulkId === undefined ? (
        <Choice target={target} onBegun={begun} onClose={close} />
      ) : (
        <Progress bulkId={bulkId} noun={noun} onClose={close} />
      )}
    </dialog>
  );
}

function idCount({ ids }: BulkFilterFacts): number | undefined {
  return Array.isArray(ids) ? ids.length : undefined;
}

type Count =
  | { readonly type: "counting" }
  | { readonly type: "counted"; readonly preview: BulkPreviewFacts }
  | { readonly type: "trouble"; readonly text: string };

async function countOf(request: BulkRequestFacts): Promise<Count> {
  try {
    return { type: "counted", preview: await bulkApi.preview(request) };
  } catch (error) {
    return { type: "trouble", text: errorSentence(error) };
  }
}

const maxVersion = 1_000_000_000;
const noVersion = "A version is a whole number from 1 on.";

/** The version that is written; undefined for none, and null for what can't be one. */
function versionIn(text: string): number | undefined | null {
  if (text.trim() === "") return undefined;
  const version = Number(text);
  return Number.isInteger(version) && version >= 1 && version <= maxVersion ? version : null;
}

function Choice({
  target: { noun, filter, acts, versions = [] },
  onBegun,
  onClose,
}: {
  target: BulkTarget;
  onBegun: (bulkId: string) => void;
  onClose: () => void;
}) {
  const mayDelete = useMay("admin");
  const possible = acts.filter((each) => each !== "delete" || mayDelete);
  const [action, setAction] = useState<BulkAct | undefined>(possible[0]);
  const [count, setCount] = useState<Count>({ type: "counting" });
  const [isFromStart, setFromStart] = useState(false);
  const [as, setAs] = useState("");
  const [draft] = useState(() => newSignalDraft(""));
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState<string>();
  // One for each request, because trying the same again is the same act, and another one isn't.
  const sent = useRef(new Map<string, { readonly actId: string }>());
  const version = action === "resume" ? versionIn(as) : undefined;
  const base = { action, filter, ...(typeof version === "number" && { as: version }) };
  const text = version === null ? undefined : JSON.stringify(base);

  useEffect(() => {
    if (text === undefined) return setCount({ type: "trouble", text: noVersion });
    const request = JSON.parse(text) as BulkRequestFacts;
    if (request.action === undefined) return;
    let isLatest = true;
    setCount({ type: "counting" });
    const look = async () => {
      // Which signal it is makes no difference to how many match.
      const found = await countOf(
        request.action === "signal" ? { ...request, signal: "any" } : request,
      );
      if (isLatest) setCount(found);
    };
    void look();
    return () => {
      isLatest = false;
    };
  }, [text]);

  const begin = async (chosen: BulkAct) => {
    const signal = chosen === "signal" ? typedSignal(draft) : undefined;
    if (signal && "trouble" in signal) return setTrouble(signal.trouble);
    setBusy(true);
    setTrouble(undefined);
    const given = reason.trim();
    const request: BulkRequestFacts = {
      ...base,
      action: chosen,
      ...(chosen === "retry" && isFromStart && { fromStart: true }),
      ...(signal && { signal: signal.name, payload: signal.payload }),
      ...(given !== "" && { reason: given }),
    };
    const key = JSON.stringify(request);
    const act = sent.current.get(key) ?? newAct();
    sent.current.set(key, act);
    try {
      onBegun((await bulkApi.start(request, act)).bulkId);
    } catch (error) {
      setTrouble(visibleLine(errorSentence(error), 1_000));
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isBusy && action !== undefined) void begin(action);
  };
  const matched = count.type === "counted" ? count.preview.matched : 0;

  return (
    <form onSubmit={submit}>
      <fieldset className="choices">
        <legend className="hidden">What to do</legend>
        {possible.map((each) => (
          <label key={each} className="choice">
            <input
              type="radio"
              name="action"
              checked={action === each}
              onChange={() => setAction(each)}
            />
            <span>
              <strong>{words[noun][each].verb}</strong>{" "}
              <span className="soft">{words[noun][each].says}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <p className="bulk-count" role="status">
        {action === undefined && `Nothing can be done to ${noun}s in this status.`}
        {action !== undefined && count.type === "counting" && "Counting …"}
        {count.type === "counted" && matchedText(count.preview, noun)}
      </p>
      {count.type === "trouble" && (
        <p className="trouble" role="alert">
          <ShownText text={visibleLine(count.text, 1_000)} />
        </p>
      )}
      {action === "retry" && (
        <label className="check">
          <input
            type="checkbox"
            checked={isFromStart}
            onChange={(event) => setFromStart(event.target.checked)}
          />
          Forget their stored steps, so that all of them run again
        </label>
      )}
      {action === "resume" && typeof filter["name"] === "string" && (
        <VersionField value={as} versions={versions} onChange={setAs} />
      )}
      {action === "signal" && <SignalFields draft={draft} names={[]} />}
      <label className="line-field">
        Reason, for the audit
        <input
          type="text"
          maxLength={500}
          value={reason}
          onChange={(event) => setReason(event.target.value)}
        />
      </label>
      {trouble !== undefined && (
        <p className="trouble" role="alert">
          {trouble}
        </p>
      )}
      <div className="dialog-buttons">
        <button type="button" className="button" onClick={onClose}>
          Keep as it is
        </button>
        {action !== undefined && (
          <button
            type="submit"
            className={
              action === "cancel" || action === "delete" ? "button harmful" : "button primary"
            }
            disabled={isBusy || matched === 0}
          >
            {isBusy ? "Under way …" : `${words[noun][action].verb} ${shortCount(count)}`}
          </button>
        )}
      </div>
    </form>
  );
}

/** Which version of their flow runs go on as. */
function VersionField({
  value,
  versions,
  onChange,
}: {
  value: string;
  versions: readonly number[];
  onChange: (value: string) => void;
}) {
  const versionsId = useId();
  return (
    <label className="line-field">
      As version of the flow, also those that a later one has advanced
      <input
        type="number"
        min={1}
        max={maxVersion}
        list={versionsId}
        placeholder="as they are"
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
      <datalist id={versionsId}>
        {versions.map((version) => (
          <option key={version} value={version} />
        ))}
      </datalist>
    </label>
  );
}

function matchedText({ matched, isExact }: BulkPreviewFacts, noun: BulkNoun): string {
  const rest = "What is stored after this is left alone.";
  if (matched === 0 && !isExact)
    return "None of the first rows match: narrow the filter, by a time for instance.";
  if (matched === 0) return `No ${noun} matches that this could be done to.`;
  return isExact
    ? `${counted(matched, noun)} ${matched === 1 ? "matches" : "match"}. ${rest}`
    : `More than ${exactCount(matched)} ${noun}s match, as far as was counted. ${rest}`;
}

function shortCount(count: Count): string {
  if (count.type !== "counted") return "…";
  const { matched, isExact } = count.preview;
  return `${exactCount(matched)}${isExact ? "" : "+"}`;
}

/** What has become of it so far. It goes on without the page. */
function Progress({
  bulkId,
  noun,
  onClose,
}: {
  bulkId: string;
  noun: BulkNoun;
  onClose: () => void;
}) {
  const found = useLive(["bulk", bulkId], (signal) => bulkApi.bulk(bulkId, signal), {
    isSettled: ({ state }) => state !== "running",
  });
  const bulk = found.data;
  const isOver = bulk !== undefined && bulk.state !== "running";
  return (
    <>
      {bulk ? (
        <BulkLine bulk={bulk} noun={noun} isWhole />
      ) : (
        <p role="status">
          {found.error ? visibleLine(errorSentence(found.error), 300) : "Under way …"}
        </p>
      )}
      {isOver && bulk.filter.ids !== undefined && <Outcomes bulk={bulk} noun={noun} />}
      {!isOver && (
        <p className="soft bulk-note">The leader does it, also when this page is closed.</p>
      )}
      <div className="dialog-buttons">
        <button type="button" className={isOver ? "button primary" : "button"} onClick={onClose}>
          {isOver ? "Done" : "Close"}
        </button>
      </div>
    </>
  );
}

/** What became of each row that was ticked: those that were left come first. */
function Outcomes({ bulk, noun }: { bulk: BulkFacts; noun: BulkNoun }) {
  const { bulkId, action } = bulk;
  const found = useLive(["outcomes", bulkId], (signal) => bulkApi.outcomes(bulkId, signal), {
    isSettled: () => true,
  });
  if (!found.data)
    return found.error ? (
      <p className="trouble" role="alert">
        {visibleLine(errorSentence(found.error), 300)}
      </p>
    ) : null;
  const isDone = ({ outcome }: { outcome: string }) => outcome === "done";
  const left = found.data.filter((each) => !isDone(each));
  const rows = [...left, ...found.data.filter(isDone)];
  return (
    <details className="outcomes" open={left.length > 0}>
      <summary>
        {left.length === 0
          ? "What became of each"
          : `${exactCount(left.length)} of ${counted(rows.length, noun)} left as they were`}
      </summary>
      <ul tabIndex={0} aria-label={`Each ${noun}`}>
        {rows.map(({ taskId, ...row }) => (
          <li key={taskId}>
            <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
              <code>{shortId(visibleLine(taskId))}</code>
            </Link>{" "}
            <span className={isDone(row) ? "soft" : ""}>{rowOutcomeText(action, row)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** One act on many: how far it is, what became of each kind, and a stop. */
function BulkLine({
  bulk,
  noun,
  isWhole = false,
}: {
  bulk: BulkFacts;
  noun: BulkNoun;
  isWhole?: boolean;
}) {
  const mayAct = useMay("fleet:operate");
  const [trouble, setTrouble] = useState<string>();
  const [act] = useState(newAct);
  const [isStopping, setStopping] = useState(false);
  const progress = bulkProgress(bulk, noun);
  const stop = async () => {
    setStopping(true);
    setTrouble(undefined);
    try {
      await bulkApi.stop(bulk.bulkId, act);
      announce("The act has stopped. What it has done stays done.");
    } catch (error) {
      setTrouble(visibleLine(errorSentence(error), 300));
    } finally {
      setStopping(false);
      readAgain();
    }
  };
  return (
    <div className="bulk-line">
      <p role={isWhole ? "status" : undefined}>
        <strong>
          <ShownText text={visibleLine(progress.title, 300)} />:
        </strong>{" "}
        {bulkOutcome(bulk, noun)}{" "}
        {!isWhole && (
          <span className="soft">
            <When atMs={bulk.updatedAtMs} />
          </span>
        )}
      </p>
      <progress
        aria-label={visibleLine(progress.title, 300)}
        max={1}
        {...(progress.share !== undefined && { value: progress.share })}
      />
      {mayAct && bulk.state === "running" && (
        <button
          type="button"
          className="button small"
          disabled={isStopping}
          onClick={() => void stop()}
        >
          {isStopping ? "Stopping …" : "Stop"}
        </button>
      )}
      {trouble !== undefined && (
        <p className="trouble" role="alert">
          {trouble}
        </p>
      )}
    </div>
  );
}

// What ended before this isn't of interest on a list.
const recentMs = 5 * 60_000;

/** Acts that are under way or have just ended, whichever page has begun them: all, or those on one name. */
export function BulkLines({ noun, name }: { noun: BulkNoun; name?: string }) {
  const nowMs = useNow();
  const found = useLive(["bulks"], bulkApi.bulks);
  const shown = (found.data ?? []).filter(
    ({ state, updatedAtMs, filter }) =>
      (name === undefined || filter.name === name) &&
      (state === "running" || nowMs - updatedAtMs < recentMs),
  );
  if (shown.length === 0) return null;
  return (
    <section className="bulks" aria-label="Acts on many">
      {shown.map((bulk) => (
        <BulkLine key={bulk.bulkId} bulk={bulk} noun={noun} />
      ))}
    </section>
  );
}
