import { useMemo } from "react";
import {
  countValue,
  gaugeValue,
  hasCounted,
  linesOf,
  percentileValue,
  perStep,
  type SeriesFacts,
} from "../../facts/series/lines.ts";
import type { Span } from "../../facts/series/span.ts";
import { subjectText } from "../../../protocol/series-subject.ts";
import { durationText, exactCount } from "../../facts/spans.ts";
import { boundLine, boundMarks, withPresent } from "../../facts/throttles/bound-line.ts";
import type { ThrottleEventFacts, ThrottleFacts } from "../../facts/throttles/throttle.ts";
import { Plot } from "../../parts/plot.tsx";
import { Ready } from "../../parts/states.tsx";
import { useSeries } from "../../series.ts";

type PlotsProps = {
  throttle: ThrottleFacts;
  /** Undefined as long as they aren't read. */
  events: readonly ThrottleEventFacts[] | undefined;
  span: Span;
};

/** A throttle over time: its limit with the changes marked, calls, latency, tokens and money. */
export function ThrottlePlots({ throttle, events, span }: PlotsProps) {
  const series = useSeries(
    subjectText({ kind: "throttle", name: throttle.name, part: throttle.key }),
    span,
  );
  return (
    <Ready of={series} what="what was counted">
      {(found) => (
        <div className="plots">
          <LimitPlot throttle={throttle} events={events ?? []} series={found} />
          <CallPlots series={found} />
        </div>
      )}
    </Ready>
  );
}

function LimitPlot({
  throttle: { bound, inFlight, waiting },
  events,
  series,
}: {
  throttle: ThrottleFacts;
  events: readonly ThrottleEventFacts[];
  series: SeriesFacts;
}) {
  const { timesMs, lines, marks } = useMemo(() => {
    const counted = linesOf(series, [
      { name: "limit", tone: "accent", kind: "steps", value: gaugeValue("bound") },
      { name: "in flight", tone: "good", value: gaugeValue("inFlight") },
      { name: "waiting", tone: "warn", value: gaugeValue("waiting") },
    ]);
    const bounds = boundLine(counted.timesMs, events, counted.lines[0]!.values);
    const present = [bound, inFlight, waiting];
    return {
      timesMs: counted.timesMs,
      lines: counted.lines.map((line, at) => ({
        ...line,
        values: withPresent(at === 0 ? bounds : line.values, present[at]),
      })),
      marks: boundMarks(events, series),
    };
  }, [series, events, bound, inFlight, waiting]);
  return (
    <Plot
      title="Limit, calls in flight and waiting"
      timesMs={timesMs}
      lines={lines}
      marks={marks}
      valueText={amountText}
    />
  );
}

function CallPlots({ series }: { series: SeriesFacts }) {
  const per = perStep(series);
  const calls = useMemo(
    () =>
      linesOf(series, [
        { name: "succeeded", tone: "good", kind: "bars", value: countValue("success") },
        {
          name: "failed",
          tone: "warn",
          kind: "bars",
          value: countValue("timeout", "server_error"),
        },
        { name: "429", tone: "wrong", kind: "bars", value: countValue("throttled") },
      ]),
    [series],
  );
  const latency = useMemo(
    () =>
      linesOf(series, [
        { name: "p50", tone: "plain", value: percentileValue("run", "p50Ms") },
        { name: "p95", tone: "accent", value: percentileValue("run", "p95Ms") },
      ]),
    [series],
  );
  const tokens = useMemo(
    () =>
      linesOf(series, [
        { name: "in", tone: "accent", kind: "bars", value: countValue("inputTokens") },
        { name: "out", tone: "good", kind: "bars", value: countValue("outputTokens") },
      ]),
    [series],
  );
  const money = useMemo(
    () =>
      linesOf(series, [
        { name: "cost", tone: "accent", kind: "bars", value: countValue("costMillionths") },
      ]),
    [series],
  );
  return (
    <>
      <Plot title={`Calls ${per}`} {...calls} valueText={amountText} />
      <Plot
        title="Latency of calls that succeeded"
        {...latency}
        valueText={durationText}
        isDuration
      />
      {hasCounted(series, "inputTokens", "outputTokens") && (
        <Plot title={`Tokens ${per}`} {...tokens} valueText={amountText} />
      )}
      {hasCounted(series, "costMillionths") && (
        <Plot title={`Money ${per}`} {...money} valueText={moneyText} />
      )}
    </>
  );
}

function amountText(value: number): string {
  return exactCount(Math.round(value * 100) / 100);
}

/** In the currency of the config's `prices`. */
function moneyText(millionths: number): string {
  const amount = millionths / 1e6;
  return amount === 0 || amount >= 1 ? amount.toFixed(2) : amount.toPrecision(2);
}
