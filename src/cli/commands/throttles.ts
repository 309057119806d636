import process from "node:process";
import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { ThrottleView } from "../../throttles/shares/admin.ts";
import { onTarget } from "../connect.ts";
import {
  listsByDefault,
  number,
  type TargetFlags,
  withJson,
  withPage,
  withTarget,
} from "../flags.ts";
import { createScreen } from "../live-counts.ts";
import { ago, columns, oneLine, paint, print, printJson, printNotice } from "../output.ts";
import type { Operations } from "../remote.ts";
import { count } from "../progress.ts";
import { stopSignals } from "../signals.ts";

type Flags = TargetFlags & { json?: true };
type KeyFlags = Flags & { key?: string };
type ListFlags = Flags & { cursor?: string; limit: number; watch?: true };

/** The calls of each throttle at the previous refresh, for the rate. */
type Earlier = { readonly atMs: number; readonly calls: ReadonlyMap<string, Ended> };

type Ended = { readonly all: number; readonly throttled: number };

const refreshMs = 1_000;

const barChars = 10;

export function throttlesCommand(program: Command): void {
  const throttles = program
    .command("throttles")
    .description("list and show throttles, and pin their limits")
    .addHelpText(
      "after",
      `
A throttle learns how many calls a downstream takes at once, from all pods together.

Examples:
  $ flotilla throttles                       lists them, with calls in flight
  $ flotilla throttles --watch               refreshes every second
  $ flotilla throttles show openai           with each pod's share
  $ flotilla throttles holders openai        which tasks and turns hold its permits
  $ flotilla throttles events openai         how its limit has changed, and why
  $ flotilla throttles pin openai 10         fixes the limit
  $ flotilla throttles unpin openai          learns the limit again`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(throttles.command(words, options).description(does)));
  const key = () => new Option("--key <key>", "the key of its limit, where it is keyed");

  const listed = "list throttles with their limits and calls in flight";
  const listing = command("list", listed, { isDefault: true }).option(
    "-w, --watch",
    "refresh every second until interrupted",
  );
  withPage(listing, 100).action(list);
  listsByDefault(throttles, listing);
  command("show <name>", "show one throttle and each pod's share").addOption(key()).action(show);
  command("holders <name>", "show which tasks, runs and turns hold its permits now")
    .addOption(key())
    .addOption(
      new Option("--limit <count>", "how many at most (default: 100)").argParser(
        number("--limit", { min: 1, max: 1_000 }),
      ),
    )
    .action(holders);
  const changes = command("events <name>", "show how its limit has changed, and why");
  withPage(changes.addOption(key()), 50).action(events);
  command("pin", "fix a limit, so that nothing is learned; 0 stops all calls")
    .argument("<name>")
    .argument("<limit>", "0 to 100,000", number("<limit>", { min: 0, max: 100_000 }))
    .addOption(key())
    .action(pin);
  command("unpin <name>", "learn a limit again, from where it was before")
    .addOption(key())
    .action(unpin);
}

async function list({ json, cursor, limit, watch, ...flags }: ListFlags): Promise<void> {
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  if (watch) return onTarget(flags, (flotilla) => watchAll(flotilla, options, json));
  const page = await onTarget(flags, ({ throttles }) => throttles.list(options));
  if (json) return printJson(page);
  for (const line of throttlesTable(page.throttles, systemClock.now())) print(line);
  if (page.next !== null) print(`more: --cursor ${oneLine(page.next, 500)}`);
}

/** Refreshes the table: in place on a terminal, elsewhere one table after another. */
async function watchAll(
  { throttles }: Operations,
  options: { limit: number; cursor?: string },
  json: true | undefined,
): Promise<void> {
  const screen = process.stdout.isTTY && !json ? createScreen(process.stdout) : undefined;
  let earlier: Earlier | undefined;
  let stopping = false;
  const interrupted = stopSignals().received.then(() => {
    stopping = true;
  });
  while (!stopping) {
    const page = await throttles.list(options);
    const nowMs = systemClock.monotonic();
    const lines = throttlesTable(page.throttles, nowMs, earlier);
    earlier = earlierOf(page.throttles, nowMs);
    if (json) printJson(page);
    else if (screen) screen.show(lines);
    else print(lines.join("\n"));
    await Promise.race([interrupted, pause(refreshMs)]);
  }
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => void systemClock.after(durationMs, resolve));
}

async function show(name: string, { key, json, ...flags }: KeyFlags): Promise<void> {
  const throttle = await onTarget(flags, ({ throttles }) => throttles.get(name, keyOf(key)));
  if (!throttle) {
    throw new FlotillaError(
      "not_found",
      `there is no throttle ${oneLine(name, 200)}: it exists from its first use on`,
    );
  }
  if (json) return printJson({ throttle });
  for (const line of throttleFacts(throttle, systemClock.now())) print(line);
}

async function holders(
  name: string,
  { key, limit, json, ...flags }: KeyFlags & { limit?: number },
): Promise<void> {
  const options = { ...keyOf(key), ...(limit !== undefined && { limit }) };
  const found = await onTarget(flags, ({ throttles }) => throttles.holders(name, options));
  if (json) return printJson(found);
  const nowMs = systemClock.now();
  const heading = ["pod", "key", "since", "held by", ""];
  const rows = found.permits.map(({ podId, key: ofKey, sinceMs, holder }) => [
    oneLine(podId, 100),
    oneLine(ofKey, 40),
    `${ago(nowMs, sinceMs)} ago`,
    holder === null ? "other code" : `${holder.what} ${oneLine(holder.name ?? "", 60)}`,
    holder === null ? "" : oneLine(holder.id, 100),
  ]);
  if (rows.length === 0) print("no permits are in use");
  else print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  if (found.inFlight > rows.length) print(paint("dim", `${found.inFlight} are in use in all`));
  for (const { podId, reason } of found.unanswered) {
    printNotice(`pod ${oneLine(podId, 100)} hasn't answered: ${oneLine(reason, 200)}`);
  }
}

async function events(
  name: string,
  { key, cursor, limit, json, ...flags }: KeyFlags & { cursor?: string; limit: number },
): Promise<void> {
  const options = { ...keyOf(key), limit, ...(cursor !== undefined && { cursor }) };
  const page = await onTarget(flags, ({ throttles }) => throttles.events(name, options));
  if (json) return printJson(page);
  if (page.events.length === 0) return print("no changes are kept");
  const rows = page.events.map((event) => [
    paint("dim", new Date(event.atMs).toISOString()),
    event.before === null ? count(event.bound) : `${count(event.before)} → ${count(event.bound)}`,
    event.cause.replaceAll("_", " "),
    event.breaker === "closed" ? "" : paint("yellow", event.breaker.replaceAll("_", " ")),
    oneLine(event.by ?? "", 100),
  ]);
  print(columns(rows));
  if (page.next !== null) print(`more: --cursor ${oneLine(page.next, 500)}`);
}

async function pin(name: string, limit: number, { key, json, ...flags }: KeyFlags): Promise<void> {
  const throttle = await onTarget(flags, ({ throttles }) => throttles.pin(name, limit, keyOf(key)));
  if (json) return printJson({ throttle });
  print(`${labelOf(name, key)} is pinned: ${limit} calls at once in the whole fleet`);
}

async function unpin(name: string, { key, json, ...flags }: KeyFlags): Promise<void> {
  const throttle = await onTarget(flags, ({ throttles }) => throttles.unpin(name, keyOf(key)));
  if (json) return printJson({ throttle });
  const { pinned } = throttle.settings;
  const now = pinned === null ? "is learned again" : `is held at ${pinned} by its options`;
  print(`${labelOf(name, key)} ${now}`);
}

function keyOf(key: string | undefined): { key?: string } {
  return key === undefined ? {} : { key };
}

function labelOf(name: string, key: string | undefined): string {
  return oneLine(key === undefined ? name : `${name} (${key})`, 200);
}

/** A table of all throttles; with an earlier count, rates instead of totals. */
function throttlesTable(
  throttles: readonly ThrottleView[],
  nowMs: number,
  earlier?: Earlier,
): string[] {
  if (throttles.length === 0) return ["no throttles: each exists from its first use on"];
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

/** One throttle, and each pod's share. */
function throttleFacts(throttle: ThrottleView, nowMs: number): string[] {
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

function earlierOf(throttles: readonly ThrottleView[], atMs: number): Earlier {
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
    ...(breaker === "half_open" ? [paint("yellow", "half open: a few probes")] : []),
    ...(holdMs > 0 ? [paint("yellow", `on hold for ${msText(holdMs)}`)] : []),
  ].join(", ");
}

/** The algorithm's name in the options of a throttle. */
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
