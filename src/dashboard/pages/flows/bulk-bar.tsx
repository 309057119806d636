import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { FlotillaError } from "../../../base/errors.ts";
import { errorSentence, newAct } from "../../api.ts";
import {
  flowsApi,
  type FlowWhole,
  type RunBulkPreview,
  type RunBulkRequest,
  type RunQuery,
} from "../../asks/flows.ts";
import { flowVersions } from "../../facts/flows/flow-versions.ts";
import {
  runBulkActions,
  bulkFilter,
  bulkSentence,
  type RunBulkAction,
} from "../../facts/flows/run-bulk.ts";
import { boundedText, counted } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { announce, useLive, useMay } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { newSignalDraft, typedSignal, type SignalDraft, SignalFields } from "./signal-fields.tsx";

type BulkBarProps = {
  flow: string;
  filter: RunQuery;
  /** The act that was started last. */
  bulkId: string | undefined;
  whole: FlowWhole | undefined;
};

const buttons: Readonly<Record<RunBulkAction, string>> = {
  signal: "Signal all that match",
  resume: "Resume those set aside",
  cancel: "Cancel all that match",
  retry: "Start all that match over",
};

/** Acts on all runs that match the filter, with a count first. The leader does them. */
export function BulkBar({ flow, filter, bulkId, whole }: BulkBarProps) {
  const mayAct = useMay("fleet:operate");
  const navigate = useNavigate();
  const [as, setAs] = useState("");
  const [counting, setCounting] = useState<RunBulkAction>();
  const [trouble, setTrouble] = useState<string>();
  const [plan, setPlan] = useState<PlannedAct>();
  const toBulk = (bulk: string | undefined) =>
    navigate({
      to: "/flows/$flow",
      params: { flow },
      search: { ...filter, bulk },
      replace: true,
      resetScroll: false,
    });

  const count = async (action: RunBulkAction) => {
    const version = action === "resume" && as !== "" ? Number(as) : undefined;
    const request: RunBulkRequest = {
      action,
      filter: bulkFilter(flow, filter),
      ...(version !== undefined && { as: version }),
    };
    setCounting(action);
    setTrouble(undefined);
    try {
      // Which signal it is makes no difference to how many runs match.
      const asked = action === "signal" ? { ...request, signal: "any" } : request;
      const preview = await flowsApi.previewBulk(asked);
      if (preview.matched === 0 && preview.isExact)
        announce("No run matches, so that nothing is to be done.");
      else setPlan(planOf(request, preview, (started) => void toBulk(started)));
    } catch (error) {
      setTrouble(visibleLine(errorSentence(error), 1_000));
    } finally {
      setCounting(undefined);
    }
  };
  const actions = mayAct ? runBulkActions(filter) : [];
  const versions = whole ? flowVersions(whole.flow).filter(({ version }) => version > 0) : [];
  return (
    <>
      {bulkId !== undefined && (
        <BulkProgress key={bulkId} bulkId={bulkId} onClose={() => void toBulk(undefined)} />
      )}
      {mayAct && (
        <div className="bulk-bar">
          {actions.map((action) => (
            <span key={action} className="bulk-act">
              <button
                type="button"
                className="button small"
                disabled={counting !== undefined}
                onClick={() => void count(action)}
              >
                {counting === action ? "Counting …" : buttons[action]}
              </button>
              {action === "resume" && versions.length > 0 && (
                <select
                  aria-label="Resume as"
                  value={as}
                  onChange={(event) => setAs(event.target.value)}
                >
                  <option value="">as they are</option>
                  {versions.map(({ version }) => (
                    <option key={version} value={version}>
                      as version {version}
                    </option>
                  ))}
                </select>
              )}
            </span>
          ))}
          {filter.version !== undefined && (
            <span className="soft">Acts on all that match are for all versions together.</span>
          )}
        </div>
      )}
      {trouble !== undefined && (
        <p className="trouble" role="alert">
          {trouble}
        </p>
      )}
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

function planOf(
  request: RunBulkRequest,
  { matched, isExact }: RunBulkPreview,
  onStarted: (bulkId: string) => void,
): PlannedAct {
  const many = isExact ? counted(matched, "run") : boundedText(matched, "run");
  const draft = newSignalDraft("");
  const { title, verb, explanation, isHarmful } = planTexts(request, many, draft);
  return {
    title,
    explanation,
    verb,
    isHarmful,
    async perform({ actId }) {
      const { bulkId } = await flowsApi.startBulk(signalled(request, draft), { actId });
      onStarted(bulkId);
      return "It has begun.";
    },
  };
}

function signalled(request: RunBulkRequest, draft: SignalDraft): RunBulkRequest {
  if (request.action !== "signal") return request;
  const read = typedSignal(draft);
  if ("trouble" in read) throw new FlotillaError("invalid_input", read.trouble);
  return { ...request, signal: read.name, payload: read.payload };
}

function planTexts({ action, as }: RunBulkRequest, many: string, draft: SignalDraft) {
  const seen = (
    <p className="soft">
      The leader does it, one after the other. What has changed by then is left as it is.
    </p>
  );
  switch (action) {
    case "cancel":
      return {
        title: `Cancel ${many}?`,
        verb: "Cancel them",
        isHarmful: true,
        explanation: (
          <>
            <p>Their finalizers run first. Those that were set aside end without them.</p>
            {seen}
          </>
        ),
      };
    case "retry":
      return {
        title: `Start ${many} over?`,
        verb: "Start over",
        isHarmful: false,
        explanation: (
          <>
            <p>Each goes on at the state where it stopped.</p>
            {seen}
          </>
        ),
      };
    case "resume":
      return {
        title: as === undefined ? `Resume ${many}?` : `Resume ${many} as version ${as}?`,
        verb: "Resume",
        isHarmful: false,
        explanation: (
          <>
            <p>
              {as === undefined
                ? "They go on where they were set aside, and are set aside again if nothing has changed."
                : `Those that were set aside or that a later version has advanced are handed to version ${as}.`}
            </p>
            {seen}
          </>
        ),
      };
    case "signal":
      return {
        title: `Signal ${many}?`,
        verb: "Signal them",
        isHarmful: false,
        explanation: (
          <>
            <SignalFields draft={draft} names={[]} />
            {seen}
          </>
        ),
      };
  }
}

/** How far an act has got, with a way to stop it. */
function BulkProgress({ bulkId, onClose }: { bulkId: string; onClose: () => void }) {
  const mayAct = useMay("fleet:operate");
  const found = useLive(["bulk", bulkId], (signal) => flowsApi.bulk(bulkId, signal), {
    isSettled: ({ state }) => state !== "running",
  });
  const [act] = useState(newAct);
  const [isStopping, setStopping] = useState(false);
  const bulk = found.data;
  const stop = async () => {
    setStopping(true);
    try {
      announce(bulkSentence(await flowsApi.stopBulk(bulkId, act)));
    } catch (error) {
      announce(visibleLine(errorSentence(error), 1_000));
    } finally {
      setStopping(false);
      void found.refetch();
    }
  };
  return (
    <div className="chosen" role="region" aria-label="Act on all that match">
      <span aria-live="polite">
        {bulk
          ? bulkSentence(bulk)
          : found.error
            ? visibleLine(errorSentence(found.error), 1_000)
            : "Loading …"}
      </span>
      {bulk?.state === "running" && mayAct && (
        <button
          type="button"
          className="button small"
          disabled={isStopping}
          onClick={() => void stop()}
        >
          {isStopping ? "Stopping …" : "Stop"}
        </button>
      )}
      {bulk?.state !== "running" && (
        <button type="button" className="inline" onClick={onClose}>
          Close
        </button>
      )}
    </div>
  );
}
