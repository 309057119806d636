import { useId } from "react";
import type { TaskEventFacts, TaskFacts } from "../api.ts";
import { durationText, exactText } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { type Stretch, type StretchKind, waterfallOf } from "../facts/waterfall.ts";
import { useNow } from "../live.ts";

const classes: Readonly<Record<StretchKind, string>> = {
  waiting: "of-waiting",
  claimed: "of-claimed",
  attempt: "of-attempt",
  "waited and ran": "of-both",
  backoff: "of-backoff",
  snoozed: "of-snoozed",
  "set aside": "of-aside",
};
// Of a task with thousands of attempts the last ones matter, and a person reads no more.
const maxShown = 60;

/** Waits, attempts and what was between them on one axis; as a table, which screen readers read. */
export function WaterfallChart({
  task,
  events,
  isCut,
}: {
  task: TaskFacts;
  events: readonly TaskEventFacts[];
  /** The task has more events than these. */
  isCut: boolean;
}) {
  const nowMs = useNow();
  const { fromMs, toMs, stretches, moments } = waterfallOf(task, events, nowMs);
  const titleId = useId();
  if (stretches.length === 0) return null;
  const shown = stretches.slice(-maxShown);
  const axisFromMs = shown[0]!.fromMs;
  const widthMs = Math.max(1, toMs - axisFromMs);
  const percent = (ms: number) => `${Math.max(0, Math.min(100, (ms / widthMs) * 100))}%`;
  return (
    <section className="block" aria-labelledby={titleId}>
      <h2 id={titleId}>
        Waterfall <span className="soft">{durationText(toMs - fromMs)}</span>
      </h2>
      {shown.length < stretches.length && (
        <p className="soft">
          The last {maxShown} of {stretches.length} are shown.
        </p>
      )}
      {isCut && (
        <p className="soft">
          It is drawn from the first {events.length} events; what came later is one stretch.
        </p>
      )}
      <table className="waterfall">
        <thead className="hidden">
          <tr>
            <th scope="col">What</th>
            <th scope="col">When</th>
            <th scope="col">How long</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((stretch, at) => (
            <tr key={at}>
              <th scope="row">{nameOf(stretch)}</th>
              <td className="bar-cell">
                <span className="hidden">from {exactText(stretch.fromMs)}</span>
                <span
                  className={`bar ${classes[stretch.kind]} ${stretch.outcome === undefined ? "" : endClass(stretch.outcome)} ${stretch.isOpen ? "is-open" : ""}`}
                  title={`${exactText(stretch.fromMs)} to ${exactText(stretch.toMs)}`}
                  style={{
                    marginLeft: percent(stretch.fromMs - axisFromMs),
                    width: percent(stretch.toMs - stretch.fromMs),
                  }}
                />
              </td>
              <td className="number">{durationText(stretch.toMs - stretch.fromMs)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {moments.length > 0 && (
        <p className="soft moments">
          {moments.slice(-8).map(({ atMs, what }) => (
            <span key={`${atMs} ${what}`} title={exactText(atMs)}>
              {visibleLine(what, 60)} at {durationText(atMs - fromMs)}
            </span>
          ))}
        </p>
      )}
    </section>
  );
}

function nameOf({ kind, attempt, podId, outcome, isOpen }: Stretch) {
  const isAttempt = kind === "attempt" || kind === "waited and ran";
  const what = isAttempt
    ? attemptName(kind, attempt)
    : kind === "claimed"
      ? "claimed, not begun"
      : kind;
  return (
    <>
      {what}
      {outcome !== undefined && <span className={endClass(outcome)}> {outcome}</span>}
      {isOpen && <span className="soft"> until now</span>}
      {podId !== undefined && (
        <code className="soft pod-name" title={podId}>
          {visibleLine(podId.slice(-12), 40)}
        </code>
      )}
    </>
  );
}

function attemptName(kind: StretchKind, attempt: number | undefined): string {
  const name = attempt === undefined ? "attempt" : `attempt ${attempt}`;
  return kind === "attempt" ? name : `wait and ${name}`;
}

function endClass(outcome: string): string {
  if (outcome === "completed") return "good";
  return outcome === "snoozed" || outcome === "cancelled" ? "soft" : "wrong";
}
