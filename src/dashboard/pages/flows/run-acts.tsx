import { useState } from "react";
import { FlotillaError } from "../../../base/errors.ts";
import { newAct } from "../../api.ts";
import { flowsApi, type RunFacts } from "../../asks/flows.ts";
import { possibleRunActs } from "../../facts/flows/run-remark.ts";
import { useMay } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { newSignalDraft, SignalFields, typedSignal } from "../../parts/signal-fields.tsx";
import { ShownText } from "../../parts/text.tsx";

/** What may be done to the run as it is. */
export function RunActs({ run }: { run: RunFacts }) {
  const mayAct = useMay("fleet:operate");
  const [plan, setPlan] = useState<PlannedAct>();
  if (!mayAct) return null;
  const possible = possibleRunActs(run);
  const isAwaited = run.doing?.type === "waiting_for_signal";
  return (
    <div className="page-aside">
      {possible.resume && (
        <button type="button" className="button primary" onClick={() => setPlan(resumePlan(run))}>
          Resume
        </button>
      )}
      {possible.resumeAs && (
        <button type="button" className="button" onClick={() => setPlan(resumeAsPlan(run))}>
          Resume as …
        </button>
      )}
      {possible.signal && (
        <button
          type="button"
          className={isAwaited ? "button primary" : "button"}
          onClick={() => setPlan(signalPlan(run))}
        >
          Signal
        </button>
      )}
      {possible.cancel && (
        <button type="button" className="button" onClick={() => setPlan(cancelPlan(run))}>
          Cancel
        </button>
      )}
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </div>
  );
}

function signalPlan({ runId, doing }: RunFacts): PlannedAct {
  const awaited = doing?.type === "waiting_for_signal" ? doing.name : "";
  const draft = newSignalDraft(awaited);
  let sent: { readonly written: string; readonly actId: string } | undefined;
  return {
    title: "Send a signal to this run?",
    explanation: <SignalFields draft={draft} names={awaited === "" ? [] : [awaited]} />,
    verb: "Send",
    async perform({ actId }) {
      const read = typedSignal(draft);
      if ("trouble" in read) throw new FlotillaError("invalid_input", read.trouble);
      // The same once, however often it is sent; another is a signal of its own.
      const written = JSON.stringify(read);
      if (sent?.written !== written) sent = { written, actId: sent ? newAct().actId : actId };
      await flowsApi.signalRun(runId, { actId: sent.actId, ...read });
      return `The signal ${read.name} is sent.`;
    },
  };
}

function resumePlan({ runId, flow, status, at }: RunFacts): PlannedAct {
  return {
    title: "Resume this run?",
    explanation: (
      <p>
        <strong>
          <ShownText text={flow} />
        </strong>{" "}
        {status === "open"
          ? "was set aside. It goes on where it stands, and is set aside again if nothing has changed."
          : `is ${status}. It goes on at the state where it stopped${at === null ? "" : `, ${at}`}.`}
      </p>
    ),
    verb: "Resume",
    async perform({ actId }) {
      await flowsApi.resumeRun(runId, { actId });
      return "The run goes on.";
    },
  };
}

function resumeAsPlan({ runId, version }: RunFacts): PlannedAct {
  const draft = { as: String(Math.max(1, version - 1)) };
  return {
    title: "Resume this run as another version?",
    explanation: <AsField draft={draft} version={version} />,
    verb: "Resume",
    async perform({ actId }) {
      const as = Number(draft.as);
      if (!Number.isInteger(as) || as < 1)
        throw new FlotillaError("invalid_input", "a version is a whole number from 1 on");
      await flowsApi.resumeRun(runId, { actId, as });
      return `The run goes on as version ${as}.`;
    },
  };
}

function AsField({ draft, version }: { draft: { as: string }; version: number }) {
  const [as, setAs] = useState(draft.as);
  return (
    <div className="fields">
      <p>
        Version {version} has advanced it last. Pods of the version that you give go on with it, and
        its history says so.
      </p>
      <label>
        Version
        <input
          type="number"
          min={1}
          max={1_000_000_000}
          required
          value={as}
          onChange={(event) => {
            draft.as = event.target.value;
            setAs(event.target.value);
          }}
        />
      </label>
    </div>
  );
}

function cancelPlan({ runId, flow, doing }: RunFacts): PlannedAct {
  return {
    title: "Cancel this run?",
    explanation: (
      <p>
        <strong>
          <ShownText text={flow} />
        </strong>{" "}
        {doing?.type === "set_aside"
          ? "was set aside: it ends at once, without its finalizers, since no pod can run them."
          : "stops where it is. Its finalizers run first, and the runs that it has started are cancelled."}
      </p>
    ),
    verb: "Cancel it",
    isHarmful: true,
    async perform({ actId }) {
      const { status } = await flowsApi.cancelRun(runId, { actId });
      return status === "cancelled"
        ? "The run is cancelled."
        : "The run is asked to stop, and is cancelled once its finalizers have run.";
    },
  };
}
