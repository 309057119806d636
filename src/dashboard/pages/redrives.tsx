import { Link, useSearch } from "@tanstack/react-router";
import { api, type RedriveFacts } from "../api.ts";
import { exactCount } from "../facts/spans.ts";
import { redriveSteps } from "../facts/tasks/redrive.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay } from "../live.ts";
import type { PlannedAct } from "../parts/act-dialog.tsx";
import { Badge, When } from "../parts/marks.tsx";
import { Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import { stopRedrivePlan } from "./tasks/failure-acts.tsx";

/** The redrive of the address, which a task has led to and which may be older than those that are listed. */
export function ChosenRedrive({
  redriveId,
  onPlan,
}: {
  redriveId: string;
  onPlan: (plan: PlannedAct) => void;
}) {
  const { group, name, state } = useSearch({ from: "/failures" });
  const found = useLive(["redrive", redriveId], (signal) => api.redrive(redriveId, signal));
  return (
    <section className="block" aria-labelledby="chosen-redrive">
      <h2 id="chosen-redrive">
        The redrive <code>{shortId(visibleLine(redriveId))}</code>
      </h2>
      <Ready of={found} what="the redrive">
        {(redrive) => (
          <ul className="lines">
            <RedriveLine redrive={redrive} onPlan={onPlan} />
          </ul>
        )}
      </Ready>
      <p>
        <Link
          to="/failures"
          search={{
            ...(group !== undefined && { group }),
            ...(name !== undefined && { name }),
            ...(state !== undefined && { state }),
          }}
        >
          Leave it out
        </Link>
      </p>
    </section>
  );
}

const shownRedrives = 5;

/** The newest redrives, drawn as they go on. */
export function Redrives({
  redrives,
  onPlan,
}: {
  redrives: readonly RedriveFacts[];
  onPlan: (plan: PlannedAct) => void;
}) {
  if (redrives.length === 0) return null;
  return (
    <section className="block">
      <h2>Redrives</h2>
      <ul className="lines">
        {redrives.slice(0, shownRedrives).map((redrive) => (
          <RedriveLine key={redrive.redriveId} redrive={redrive} onPlan={onPlan} />
        ))}
      </ul>
    </section>
  );
}

function RedriveLine({
  redrive,
  onPlan,
}: {
  redrive: RedriveFacts;
  onPlan: (plan: PlannedAct) => void;
}) {
  const mayAct = useMay("fleet:operate");
  return (
    <li className="redrive">
      <Badge tone={toneOf(redrive.state)}>{wordOf(redrive.state)}</Badge>
      <RedriveDrawing redrive={redrive} />
      <RedriveSubject selection={redrive.selection} />
      <span>
        {exactCount(redrive.succeeded)} succeeded
        {redrive.failed > 0 && <>, {exactCount(redrive.failed)} with the same error</>}
        {redrive.failedOtherwise > 0 && <>, {exactCount(redrive.failedOtherwise)} otherwise</>}
        {redrive.open > 0 && <>, {exactCount(redrive.open)} under way</>}
        {redrive.remaining !== null && redrive.remaining > 0 && (
          <>, {exactCount(redrive.remaining)} left</>
        )}
      </span>
      <span className="soft end">
        <When atMs={redrive.updatedAtMs} />
      </span>
      {mayAct && redrive.state === "running" && (
        <button
          type="button"
          className="button small"
          onClick={() => onPlan(stopRedrivePlan(redrive))}
        >
          Stop
        </button>
      )}
      {redrive.reason && (
        <p className="wrong redrive-reason">
          <ShownText text={visibleLine(redrive.reason.message, 300)} />{" "}
          {redrive.reason.taskId !== undefined && (
            <Link to="/tasks/$taskId" params={{ taskId: redrive.reason.taskId }}>
              its task
            </Link>
          )}
        </p>
      )}
    </li>
  );
}

/** What was redriven, with a link to what is left of it. */
function RedriveSubject({
  selection: { group, taskId, name },
}: {
  selection: RedriveFacts["selection"];
}) {
  if (taskId !== undefined)
    return (
      <Link to="/tasks/$taskId" params={{ taskId }}>
        Task <code>{shortId(visibleLine(taskId))}</code>
      </Link>
    );
  if (group !== undefined)
    return (
      <Link to="/failures" search={{ group }}>
        Error <code>{shortId(visibleLine(group))}</code>
      </Link>
    );
  if (name === undefined) return <span>All failed tasks</span>;
  return (
    <Link to="/failures" search={{ name }}>
      <ShownText text={visibleLine(name, 80)} />
    </Link>
  );
}

/** The steps of a redrive, one task first, then twice as many: every task tried so far, as it ended. */
function RedriveDrawing({ redrive }: { redrive: RedriveFacts }) {
  const { steps, hidden } = redriveSteps(redrive);
  return (
    <span className="canary" aria-hidden="true">
      {hidden > 0 && <span className="soft">{exactCount(hidden)} before</span>}
      {steps.map((step, at) => (
        <span key={at} className="canary-step">
          {step.map((tone, place) => (
            <span key={place} className={`canary-task of-${tone}`} />
          ))}
        </span>
      ))}
    </span>
  );
}

function toneOf(state: RedriveFacts["state"]): string {
  if (state === "done") return "good";
  return state === "stopped" ? "wrong" : "plain";
}

function wordOf(state: RedriveFacts["state"]): string {
  return state === "stopped" ? "halted" : state;
}
