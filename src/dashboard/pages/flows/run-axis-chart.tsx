import { Link } from "@tanstack/react-router";
import { useId } from "react";
import type { RunFacts, RunHistoryPage } from "../../asks/flows.ts";
import {
  childStretches,
  runAxisOf,
  type RunStretch,
  type RunStretchKind,
} from "../../facts/flows/run-axis.ts";
import { durationText, exactText } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useNow } from "../../live.ts";
import { StatusMark } from "../../parts/marks.tsx";
import { ShownText } from "../../parts/text.tsx";
import { placeName, runStatus } from "./flow-marks.tsx";

const kinds: Readonly<Record<RunStretchKind, { readonly name: string; readonly look: string }>> = {
  queued: { name: "waits to begin", look: "of-waiting" },
  attempt: { name: "attempt", look: "of-attempt" },
  "waited and ran": { name: "waits and runs", look: "of-both" },
  sleep: { name: "sleeps", look: "of-sleep" },
  signal: { name: "waits for its signal", look: "of-signal" },
  children: { name: "waits for its runs", look: "of-children" },
  backoff: { name: "backoff", look: "of-backoff" },
  snoozed: { name: "snoozed", look: "of-snoozed" },
  ready: { name: "waits for a pod", look: "of-waiting" },
  delayed: { name: "isn't due", look: "of-backoff" },
  others: { name: "waits for others", look: "of-waiting" },
  limit: { name: "waits at a limit", look: "of-waiting" },
  "set aside": { name: "set aside", look: "of-aside" },
  ended: { name: "had ended", look: "of-backoff" },
};

/** Attempts, waits, signals and children on one axis; as a table, which screen readers read. */
export function RunAxisChart({
  run,
  page: { history, previous, next },
  children,
}: {
  run: RunFacts;
  page: RunHistoryPage;
  children: readonly RunFacts[];
}) {
  const nowMs = useNow();
  const titleId = useId();
  const isToEnd = next === null;
  const axis = runAxisOf({ run, history, isFromStart: previous === null, isToEnd, nowMs });
  // On the page of earlier events, children that were started later are of no use.
  const started = childStretches(children, nowMs).filter(
    ({ fromMs, toMs }) => toMs >= axis.fromMs && (isToEnd || fromMs <= axis.toMs),
  );
  const toMs = isToEnd ? Math.max(axis.toMs, ...started.map((each) => each.toMs)) : axis.toMs;
  const widthMs = Math.max(1, toMs - axis.fromMs);
  const percent = (ms: number) => `${Math.max(0, Math.min(100, (ms / widthMs) * 100))}%`;
  const bar = (fromMs: number, endMs: number, look: string) => (
    <td className="bar-cell">
      <span className="hidden">from {exactText(fromMs)}</span>
      <span
        className={`bar ${look}`}
        title={`${exactText(fromMs)} to ${exactText(endMs)}`}
        style={{
          marginLeft: percent(Math.max(0, fromMs - axis.fromMs)),
          width: percent(Math.min(endMs, toMs) - Math.max(fromMs, axis.fromMs)),
        }}
      />
    </td>
  );
  return (
    <section className="block" aria-labelledby={titleId}>
      <h2 id={titleId}>
        What it did <span className="soft">{durationText(widthMs)}</span>
      </h2>
      {axis.stretches.length > 0 && (
        <div className="axis" role="region" aria-label="Attempts and waits" tabIndex={0}>
          <table className="waterfall">
            <thead className="hidden">
              <tr>
                <th scope="col">What</th>
                <th scope="col">When</th>
                <th scope="col">How long</th>
              </tr>
            </thead>
            <tbody>
              {axis.stretches.map((stretch, at) => (
                <tr key={at}>
                  <th scope="row">{nameOf(stretch)}</th>
                  {bar(stretch.fromMs, stretch.toMs, lookOf(stretch))}
                  <td className="number">{durationText(stretch.toMs - stretch.fromMs)}</td>
                </tr>
              ))}
              {started.map(({ run: child, fromMs, toMs: endMs }) => (
                <tr key={child.runId}>
                  <th scope="row">
                    <Link to="/runs/$runId" params={{ runId: child.runId }} title={child.runId}>
                      <ShownText text={visibleLine(child.flow, 60)} />
                    </Link>{" "}
                    <StatusMark status={runStatus(child)} />
                  </th>
                  {bar(fromMs, endMs, `of-child ${endClass(child.status)}`)}
                  <td className="number">{durationText(endMs - fromMs)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {axis.moments.length > 0 && (
        <p className="soft moments">
          {axis.moments.slice(-maxMoments).map(({ atMs, what }, at) => (
            <span key={`${atMs} ${at}`} title={exactText(atMs)}>
              {visibleLine(what, 120)} at {durationText(atMs - axis.fromMs)}
            </span>
          ))}
        </p>
      )}
      <Pages runId={run.runId} previous={previous} next={next} count={history.length} />
    </section>
  );
}

const maxMoments = 8;

function Pages({
  runId,
  previous,
  next,
  count,
}: {
  runId: string;
  previous: number | null;
  next: number | null;
  count: number;
}) {
  if (previous === null && next === null) return null;
  return (
    <nav className="pages" aria-label="Pages of events">
      <span className="soft">
        {next === null ? `The last ${count} events are shown.` : `${count} events are shown.`}
      </span>
      {next !== null && (
        <Link to="/runs/$runId" params={{ runId }} search={{}} resetScroll={false}>
          Newest events
        </Link>
      )}
      {previous !== null && (
        <Link
          to="/runs/$runId"
          params={{ runId }}
          search={{ before: String(previous) }}
          resetScroll={false}
        >
          Earlier events
        </Link>
      )}
    </nav>
  );
}

function nameOf({ kind, transition, attempt, outcome, isOpen, untilMs, podId }: RunStretch) {
  const { name } = kinds[kind];
  return (
    <>
      {transition !== null && (
        <>
          <strong>
            <ShownText text={visibleLine(placeName(transition), 60)} />
          </strong>{" "}
        </>
      )}
      {attempt !== undefined && attempt > 1 ? `${name} ${attempt}` : name}
      {outcome !== undefined && <span className={endClass(outcome)}> {outcome}</span>}
      {isOpen && (
        <span className="soft" title={untilMs == null ? undefined : exactText(untilMs)}>
          {" "}
          until now
        </span>
      )}
      {podId !== undefined && kind === "attempt" && (
        <code className="soft pod-name" title={podId}>
          {visibleLine(podId.slice(-12), 40)}
        </code>
      )}
    </>
  );
}

function lookOf({ kind, outcome, isOpen }: RunStretch): string {
  const end = outcome === undefined ? "" : endClass(outcome);
  return `${kinds[kind].look} ${end} ${isOpen ? "is-open" : ""}`;
}

function endClass(outcome: string): string {
  if (outcome === "completed") return "good";
  if (outcome === "failed" || outcome === "its pod died") return "wrong";
  return "soft";
}
