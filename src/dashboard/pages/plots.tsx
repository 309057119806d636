import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { throttleAsks } from "../asks/throttles.ts";
import {
  countValue,
  linesAcross,
  linesOf,
  percentileValue,
  perStep,
  type PlotPoint,
  type SeriesFacts,
  type WantedLine,
} from "../facts/series/lines.ts";
import { type Span, spanNamed, spanSearch } from "../facts/series/span.ts";
import { subjectText } from "../../protocol/series-subject.ts";
import { durationText, exactCount } from "../facts/spans.ts";
import { type ThrottleFacts, useOf } from "../facts/throttles/throttle.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useSeesAll } from "../live.ts";
import { Plot } from "../parts/plot.tsx";
import { SpanChoice } from "../parts/span-choice.tsx";
import { Ready } from "../parts/states.tsx";
import { useSeries } from "../series.ts";

const ended: readonly WantedLine[] = [
  { name: "completed", tone: "accent", kind: "bars", value: countValue("completed") },
  { name: "failed", tone: "wrong", kind: "bars", value: countValue("failed") },
];
const failures: readonly WantedLine[] = [
  { name: "retried", tone: "warn", kind: "bars", value: countValue("retry") },
  { name: "failed", tone: "wrong", kind: "bars", value: countValue("failed") },
];
const waits: readonly WantedLine[] = [
  { name: "p50", tone: "plain", value: percentileValue("wait", "p50Ms") },
  { name: "p95", tone: "accent", value: percentileValue("wait", "p95Ms") },
];
const oldest: readonly WantedLine[] = [
  // A gap where none waited, or where the leader hasn't looked.
  { name: "oldest", tone: "warn", value: ({ gauges }) => gauges["oldestMs"] ?? null },
];
const runs: readonly WantedLine[] = [
  { name: "p50", tone: "plain", value: percentileValue("run", "p50Ms") },
  { name: "p95", tone: "accent", value: percentileValue("run", "p95Ms") },
];

/** The fleet over time. Each plot leads to the list behind it. */
export function OverviewPlots() {
  const { span: asked } = useSearch({ from: "/" });
  const navigate = useNavigate();
  const span = spanNamed(asked);
  const tasks = useSeries("task", span);
  const agents = useSeries("agent", span);
  return (
    <section className="block" aria-label="Over time">
      <div className="plots-head">
        <h2>Over time</h2>
        <SpanChoice
          span={span}
          onChoose={(next) =>
            void navigate({ to: "/", search: spanSearch(next), resetScroll: false })
          }
        />
      </div>
      <Ready of={tasks} what="what was counted">
        {(found) => (
          <>
            {found.points.length === 0 && (
              <p className="soft">
                No task has ended in this time. Pods write their counts once a minute.
              </p>
            )}
            <div className="plots">
              {found.points.length > 0 && <TaskPlots series={found} />}
              {agents.data && agents.data.points.length > 0 && (
                <FirstTokenPlot series={agents.data} />
              )}
              <ThrottleUsePlot span={span} />
            </div>
          </>
        )}
      </Ready>
    </section>
  );
}

function TaskPlots({ series }: { series: SeriesFacts }) {
  const per = perStep(series);
  const lines = useMemo(
    () => ({
      ended: linesOf(series, ended),
      waits: linesOf(series, waits),
      oldest: linesOf(series, oldest),
      runs: linesOf(series, runs),
      failures: linesOf(series, failures),
    }),
    [series],
  );
  return (
    <>
      <Plot
        title={`Tasks ended ${per}`}
        {...lines.ended}
        valueText={exactCount}
        link={
          <Link to="/tasks" search={{ status: "completed" }}>
            Completed
          </Link>
        }
      />
      <Plot
        title={`Failures ${per}`}
        {...lines.failures}
        valueText={exactCount}
        link={
          <Link to="/failures" search={{}}>
            Failures
          </Link>
        }
      />
      <Plot
        title="Wait, from due to begun"
        {...lines.waits}
        valueText={durationText}
        isDuration
        link={
          <Link to="/tasks" search={{ status: "pending" }}>
            Waiting
          </Link>
        }
      />
      <Plot
        title="Oldest wait"
        {...lines.oldest}
        valueText={durationText}
        isDuration
        link={
          <Link to="/queues" search={{}}>
            Queues
          </Link>
        }
      />
      <Plot
        title="Run time"
        {...lines.runs}
        valueText={durationText}
        isDuration
        link={
          <Link to="/tasks" search={{ status: "claimed" }}>
            Running
          </Link>
        }
      />
    </>
  );
}

function FirstTokenPlot({ series }: { series: SeriesFacts }) {
  const lines = useMemo(() => linesOf(series, waits), [series]);
  return (
    <Plot
      title="First token of answers"
      {...lines}
      valueText={durationText}
      isDuration
      link={<Link to="/sessions">Sessions</Link>}
    />
  );
}

const useTones = ["accent", "good", "warn"] as const;

/** How much of their limits the busiest throttles use. */
function ThrottleUsePlot({ span }: { span: Span }) {
  const throttles = useLive(["throttles", undefined], (signal) =>
    throttleAsks.list(undefined, signal),
  );
  // In the order of their names, so that a line keeps its colour.
  const busiest = (throttles.data?.throttles ?? [])
    .toSorted(byUse)
    .slice(0, useTones.length)
    .map((each) => ({
      ...each,
      subject: subjectText({ kind: "throttle", name: each.name, part: each.key }),
    }))
    .toSorted((one, other) => (one.subject < other.subject ? -1 : 1));
  const { data: first } = useSeries(busiest[0]?.subject, span);
  const { data: second } = useSeries(busiest[1]?.subject, span);
  const { data: third } = useSeries(busiest[2]?.subject, span);
  const drawn = useMemo(
    () =>
      linesAcross(
        [first, second, third].flatMap((series, at) =>
          series === undefined || series.points.length === 0
            ? []
            : [{ series, line: { name: nameIn(series), tone: useTones[at]!, value: shareValue } }],
        ),
      ),
    [first, second, third],
  );
  if (drawn.lines.length === 0) return null;
  return (
    <Plot
      title="Use of throttles"
      {...drawn}
      valueText={(value) => `${Math.round(value)} %`}
      link={
        <Link to="/throttles" search={{}}>
          Throttles
        </Link>
      }
    />
  );
}

/** The name and key of the throttle that a series is of. */
function nameIn({ subject }: SeriesFacts): string {
  const text = subject.slice("throttle:".length);
  const [name = "", ...key] = text.split(" ");
  const shown = name.replaceAll("%20", " ").replaceAll("%25", "%");
  return visibleLine([shown, ...key].join(" "), 40);
}

function shareValue({ gauges }: PlotPoint): number {
  return useOf({ inFlight: gauges["inFlight"] ?? 0, bound: gauges["bound"] ?? 0 }) * 100;
}

function byUse(one: ThrottleFacts, other: ThrottleFacts): number {
  const used = ({ inFlight, waiting }: ThrottleFacts) => inFlight + waiting;
  return used(other) - used(one) || other.lastUpdateMs - one.lastUpdateMs;
}

const trendHours = 24;
const hourMs = 3_600_000;

/** How many tasks of an error failed in each of the last hours by the clock, of those that are failed still. */
export function GroupTrend({ trend, nowMs }: { trend: readonly number[]; nowMs: number }) {
  const thisHourMs = Math.floor(nowMs / hourMs) * hourMs;
  const drawn = useMemo(() => {
    const values = trend.slice(-trendHours);
    const timesMs = values.map((_, at) => thisHourMs - (values.length - 1 - at) * hourMs);
    return { timesMs, lines: [{ name: "failed", tone: "wrong", kind: "bars", values } as const] };
  }, [trend, thisHourMs]);
  return <Plot title="Failed with this error per hour" {...drawn} valueText={exactCount} />;
}

/** How often tasks of a name have failed in the last days, whatever their errors. */
export function FailureTrend({ name }: { name: string }) {
  const seesAll = useSeesAll();
  const { data } = useSeries(seesAll ? subjectText({ kind: "task", name }) : undefined, "7d");
  const lines = useMemo(() => data && linesOf(data, failures), [data]);
  if (!data || !lines || data.points.length === 0) return null;
  return (
    <Plot
      title={`Failures of ${visibleLine(name, 80)} ${perStep(data)}, whatever the error`}
      {...lines}
      valueText={exactCount}
    />
  );
}
