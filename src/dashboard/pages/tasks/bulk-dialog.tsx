import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { errorSentence, newAct, type TaskQuery } from "../../api.ts";
import {
  type BulkFacts,
  type BulkPreviewFacts,
  type BulkRequestFacts,
  tasksApi,
} from "../../asks/tasks.ts";
import { counted, exactCount } from "../../facts/spans.ts";
import { type BulkAct, bulkFilterOf, possibleBulks } from "../../facts/tasks/filter.ts";
import { bulkOutcome, bulkProgress } from "../../facts/tasks/bulk.ts";
import { visibleLine } from "../../facts/visible.ts";
import { announce, readAgain, useLive, useMay } from "../../live.ts";
import { When } from "../../parts/marks.tsx";
import { focusTitle } from "../../parts/states.tsx";
import { ShownText } from "../../parts/text.tsx";

const words: Readonly<Record<BulkAct, { readonly verb: string; readonly says: string }>> = {
  cancel: { verb: "Cancel", says: "What waits never runs. What runs is asked to stop." },
  retry: { verb: "Retry", says: "Each starts over with the same payload and all of its attempts." },
  resume: { verb: "Resume", says: "What was set aside goes on where it stopped." },
  delete: { verb: "Delete", says: "What has ended is gone for good, with its events and results." },
};

/** Asks for an act on all that match the filter: with a count first, then until it has ended. */
export function BulkDialog({ filter, onClose }: { filter: TaskQuery; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [bulkId, setBulkId] = useState<string>();
  const titleId = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const close = () => {
    dialog.current?.close();
    readAgain();
    focusTitle();
  };
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={titleId} onClose={onClose}>
      <h2 id={titleId}>All that match</h2>
      {bulkId === undefined ? (
        <Choice filter={filter} onBegun={setBulkId} onClose={close} />
      ) : (
        <Progress bulkId={bulkId} onClose={close} />
      )}
    </dialog>
  );
}

type Count =
  | { readonly type: "counting" }
  | { readonly type: "counted"; readonly preview: BulkPreviewFacts }
  | { readonly type: "trouble"; readonly text: string };

async function countOf(request: BulkRequestFacts): Promise<Count> {
  try {
    return { type: "counted", preview: await tasksApi.previewBulk(request, newAct()) };
  } catch (error) {
    return { type: "trouble", text: errorSentence(error) };
  }
}

function Choice({
  filter,
  onBegun,
  onClose,
}: {
  filter: TaskQuery;
  onBegun: (bulkId: string) => void;
  onClose: () => void;
}) {
  const mayDelete = useMay("admin");
  const possible = possibleBulks(filter).filter((each) => each !== "delete" || mayDelete);
  const [action, setAction] = useState<BulkAct | undefined>(possible[0]);
  const [count, setCount] = useState<Count>({ type: "counting" });
  const [isChosen, setChosen] = useState(false);
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState<string>();
  // One for each action, because trying the same again is the same act, and another action isn't.
  const acts = useRef(new Map<string, { readonly actId: string }>());
  const text = JSON.stringify(filter);

  useEffect(() => {
    if (action === undefined) return;
    let isLatest = true;
    setCount({ type: "counting" });
    const request = { action, filter: bulkFilterOf(JSON.parse(text) as TaskQuery) };
    const look = async () => {
      const found = await countOf(request);
      if (isLatest) setCount(found);
    };
    void look();
    return () => {
      isLatest = false;
    };
  }, [action, text]);

  const begin = async (chosen: BulkAct) => {
    setBusy(true);
    setTrouble(undefined);
    const given = reason.trim();
    const request = {
      action: chosen,
      filter: bulkFilterOf(filter),
      ...(chosen === "retry" && isChosen && { fromStart: true }),
      ...(given !== "" && { reason: given }),
    };
    const key = JSON.stringify(request);
    const act = acts.current.get(key) ?? newAct();
    acts.current.set(key, act);
    try {
      onBegun((await tasksApi.startBulk(request, act)).bulkId);
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
              <strong>{words[each].verb}</strong> <span className="soft">{words[each].says}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <p className="bulk-count" role="status">
        {action === undefined && "Nothing can be done to tasks in this status."}
        {action !== undefined && count.type === "counting" && "Counting …"}
        {count.type === "counted" && matchedText(count.preview)}
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
            checked={isChosen}
            onChange={(event) => setChosen(event.target.checked)}
          />
          Forget their stored steps, so that all of them run again
        </label>
      )}
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
            {isBusy ? "Under way …" : `${words[action].verb} ${shortCount(count)}`}
          </button>
        )}
      </div>
    </form>
  );
}

function matchedText({ matched, isExact }: BulkPreviewFacts): string {
  const rest = "What is stored after this is left alone.";
  if (matched === 0 && !isExact)
    return "None of the first rows match: narrow the filter, by a time for instance.";
  if (matched === 0) return "No task matches that this could be done to.";
  return isExact
    ? `${counted(matched, "task")} match. ${rest}`
    : `More than ${exactCount(matched)} tasks match, as far as was counted. ${rest}`;
}

function shortCount(count: Count): string {
  if (count.type !== "counted") return "…";
  const { matched, isExact } = count.preview;
  return `${exactCount(matched)}${isExact ? "" : "+"}`;
}

/** What has become of it so far. It goes on without the page. */
function Progress({ bulkId, onClose }: { bulkId: string; onClose: () => void }) {
  const found = useLive(["bulk", bulkId], (signal) => tasksApi.bulk(bulkId, signal), {
    isSettled: ({ state }) => state !== "running",
  });
  const bulk = found.data;
  const isOver = bulk !== undefined && bulk.state !== "running";
  return (
    <>
      {bulk ? (
        <BulkLine bulk={bulk} isWhole />
      ) : (
        <p role="status">
          {found.error ? visibleLine(errorSentence(found.error), 300) : "Under way …"}
        </p>
      )}
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

/** One act on all that match: how far it is, what became of each kind, and a stop. */
export function BulkLine({ bulk, isWhole = false }: { bulk: BulkFacts; isWhole?: boolean }) {
  const mayAct = useMay("fleet:operate");
  const [trouble, setTrouble] = useState<string>();
  const [act] = useState(newAct);
  const [isStopping, setStopping] = useState(false);
  const progress = bulkProgress(bulk);
  const stop = async () => {
    setStopping(true);
    setTrouble(undefined);
    try {
      await tasksApi.stopBulk(bulk.bulkId, act);
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
        <strong>{progress.title}:</strong> {bulkOutcome(bulk)}{" "}
        {!isWhole && (
          <span className="soft">
            <When atMs={bulk.updatedAtMs} />
          </span>
        )}
      </p>
      <progress
        aria-label={progress.title}
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
          Stop
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

// What ended before this isn't of interest on a list of tasks.
const recentMs = 5 * 60_000;

/** Acts that are under way or have just ended, whichever page has begun them. */
export function BulkLines({ nowMs }: { nowMs: number }) {
  const found = useLive(["bulks"], tasksApi.bulks);
  const shown = (found.data ?? []).filter(
    ({ state, updatedAtMs }) => state === "running" || nowMs - updatedAtMs < recentMs,
  );
  if (shown.length === 0) return null;
  return (
    <section className="bulks" aria-label="Acts on all that match">
      {shown.map((bulk) => (
        <BulkLine key={bulk.bulkId} bulk={bulk} />
      ))}
    </section>
  );
}
