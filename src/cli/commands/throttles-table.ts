import type { ThrottleView } from "../../throttles/shares/admin.ts";
import { ago, columns, oneLine, paint } from "../output.ts";
import { count } from "../progress.ts";

/** What was counted of a throttle at an earlier look, to tell how fast it goes. */
export type Earlier = { readonly atMs: number; readonly calls: ReadonlyMap<string, Ended> };

type Ended = { readonly all: number; readonly throttled: number };

const barChars = 10;

/** All throttles with what goes on now; with an earlier look also how fast. */
export function throttlesTable(
  throttles: readonly ThrottleView[],
  nowMs: number,
  earlier?: Earlier,
): string[] {
  if (throttles.length === 0) return ["no throttles: they are known from their first use on"];
  const heading = [
    "throttle",
    "key",
    "limit",
    "in flight",
    "",
    "waiting",
    "p95",
    earlier ? "calls/s" : "calls",
    "throttled",
    "pods",
    "",
  ];
  const rows = throttles.map((each) => {
    const { calls, throttled } = paceOf(each, nowMs, earlier);
    return [
      oneLine(each.name, 40),
      oneLine(each.key, 40),
      count(each.bound),
      count(each.inFlight),
      barOf(each.bound > 0 ? each.inFlight / each.bound : 0),
      count(each.waiting),
      msText(each.p95Ms),
      calls,
      throttled,
      String(each.pods.filter(({ share }) => share > 0).length),
      stateOf(each),
    ];
  });
  return columns([heading.map((each) => paint("dim", each)), ...rows]).split("\n");
}

/** One throttle, and what each pod has of it. */
export function throttleFacts(throttle: ThrottleView, nowMs: number): string[] {
  const { name, key, bound, settings, outcomes, pods } = throttle;
  const { all, throttled } = endedOf(throttle);
  const learned = settings.pinned === null ? `${settings.min} to ${settings.max}` : "no";
  const facts: [string, string][] = [
    ["throttle", oneLine(name, 200)],
    ...(key === "" ? [] : [["key", oneLine(key, 200)] as [string, string]]),
    ["limit", `${count(bound)}${stateOf(throttle) === "" ? "" : `  ${stateOf(throttle)}`}`],
    ["learned", `${learned}  (${presetOf(settings)})`],
    ["in flight", count(throttle.inFlight)],
    ["waiting", count(throttle.waiting)],
    ...(throttle.refillPerS === undefined
      ? []
      : [
          ["refill", `${perS(throttle.refillPerS)} ${settings.bucket?.unit ?? ""}/s`] as [
            string,
            string,
          ],
        ]),
    ["p95", msText(throttle.p95Ms)],
    ...(throttle.firstTokenP95Ms === undefined
      ? []
      : [["first token p95", msText(throttle.firstTokenP95Ms)] as [string, string]]),
    ["calls", `${count(all)}, ${shareOf(throttled, all)} of them throttled`],
    ["timeouts", count(outcomes.timeout)],
    ["server errors", count(outcomes.server_error)],
    ["changed", `${ago(nowMs, throttle.lastUpdateMs)} ago`],
  ];
  const heading = ["pod", "share", "in flight", "waiting", "reported"];
  const rows = pods.map(({ podId, share, inFlight, waiting, reportedMs }) => [
    podId,
    count(share),
    count(inFlight),
    count(waiting),
    reportedMs === undefined ? paint("dim", "not lately") : `${ago(reportedMs, 0)} ago`,
  ]);
  return [
    columns(facts.map(([what, value]) => [paint("dim", what), value])),
    ...(rows.length === 0
      ? []
      : ["", columns([heading.map((each) => paint("dim", each)), ...rows])]),
  ];
}

export function earlierOf(throttles: readonly ThrottleView[], atMs: number): Earlier {
  return { atMs, calls: new Map(throttles.map((each) => [idOf(each), endedOf(each)])) };
}

function paceOf(throttle: ThrottleView, nowMs: number, earlier: Earlier | undefined) {
  const ended = endedOf(throttle);
  const before = earlier?.calls.get(idOf(throttle));
  if (!earlier) {
    return { calls: count(ended.all), throttled: shareOf(ended.throttled, ended.all) };
  }
  const all = ended.all - (before?.all ?? ended.all);
  const throttled = ended.throttled - (before?.throttled ?? ended.throttled);
  const seconds = Math.max(1, nowMs - earlier.atMs) / 1_000;
  return { calls: perS(all / seconds), throttled: shareOf(throttled, all) };
}

function idOf({ name, key }: ThrottleView): string {
  return JSON.stringify([name, key]);
}

function endedOf({ outcomes }: ThrottleView): Ended {
  const { success, throttled, timeout, server_error: failed, ignored } = outcomes;
  return { all: success + throttled + timeout + failed + ignored, throttled };
}

function stateOf({ pinned, settings, breaker, holdMs }: ThrottleView): string {
  return [
    ...((pinned ?? settings.pinned) === null ? [] : [paint("yellow", "pinned")]),
    ...(breaker === "open" ? [paint("red", "open: no calls")] : []),
    ...(breaker === "half_open" ? [paint("yellow", "half open: trying a few")] : []),
    ...(holdMs > 0 ? [paint("yellow", `asked to stay away ${msText(holdMs)}`)] : []),
  ].join(", ");
}

/** As it is called where it is chosen. */
function presetOf({ algorithm }: ThrottleView["settings"]): string {
  return algorithm === "ceiling" ? "default" : algorithm;
}

function shareOf(part: number, all: number): string {
  if (all === 0) return "";
  const percent = (100 * part) / all;
  return `${percent === 0 || percent >= 10 ? percent.toFixed(0) : percent.toFixed(1)} %`;
}

function perS(number: number): string {
  return number < 10 ? number.toFixed(1) : count(Math.round(number));
}

function msText(durationMs: number | undefined): string {
  if (durationMs === undefined) return "";
  return durationMs < 10_000
    ? `${Math.round(durationMs)} ms`
    : `${Math.round(durationMs / 1_000)} s`;
}

function barOf(share: number): string {
  const full = Math.round(Math.min(1, share) * barChars);
  return "█".repeat(full) + "░".repeat(barChars - full);
}
