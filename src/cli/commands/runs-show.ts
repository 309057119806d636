import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { HistoryEntry, RunView } from "../../flows/rows.ts";
import type { RunPage } from "../../flows/list.ts";
import type { OpenSignal } from "../../flows/runs.ts";
import type { PodInfo } from "../../runtime/pods.ts";
import type { Links } from "../../links/links.ts";
import { whyWaits } from "../why.ts";
import { printStarted, startedByFacts } from "../links.ts";
import { ifAllowed, onTarget } from "../connect.ts";
import type { TargetFlags } from "../flags.ts";
import { ago, columns, oneLine, paint, paintState, print, printJson } from "../output.ts";
import type { Operations } from "../remote.ts";

type RunDetails = {
  readonly run: RunView;
  readonly history: readonly HistoryEntry[];
  readonly signals: readonly OpenSignal[];
  readonly children: RunPage;
  readonly links: Links;
  readonly why: readonly string[];
  /** The pod that runs it, where its last heartbeat is old. */
  readonly silent: PodInfo | undefined;
};

type Fact = [name: string, value: string];

type Fields = Readonly<Record<string, unknown>>;

const pageEntries = 1_000;
const maxChildrenShown = 20;
const maxIdsShown = 10;
// For display only: pods judge each other by beats, and much sooner.
const silentAfterMs = 30_000;

const statusStyles = {
  open: "cyan",
  completed: "green",
  failed: "red",
  cancelled: "gray",
} as const;

/** Prints everything that the store has of a run. Needs no live pod. */
export async function printRun(runId: string, flags: TargetFlags & { json?: true }): Promise<void> {
  const details = await onTarget(flags, (flotilla) => readDetails(flotilla, runId));
  const { run, history, signals, children, links, why } = details;
  if (flags.json) {
    const waits = why.length > 0 && { why };
    return printJson({ run, history, signals, children: children.runs, links, ...waits });
  }
  const nowMs = systemClock.now();
  const known = [...facts(details, nowMs), ...startedByFacts(links)];
  print(columns(known.map(([name, value]) => [paint("dim", name), value])));
  print("");
  print(history.length === 0 ? paint("dim", "nothing has happened yet") : "history");
  if (history.length > 0) print(historyLines(history));
  if (signals.length > 0) print("\nunused signals");
  for (const { signalId, name, atMs } of signals) {
    print(
      `  ${paint("dim", time(atMs))}  ${oneLine(name, 100)}  ${paint("dim", oneLine(signalId, 200))}`,
    );
  }
  if (children.runs.length > 0) print("\nchildren");
  const rows = children.runs.map((child) => [
    `  ${oneLine(child.runId, 100)}`,
    oneLine(child.flow, 40),
    paintRunStatus(child.status),
    paint("dim", oneLine(child.error?.message ?? doingText(child, nowMs), 80)),
  ]);
  if (rows.length > 0) print(columns(rows));
  if (children.next !== null) print(paint("dim", `  more: flotilla runs list --parent ${runId}`));
  const shown = new Set(children.runs.map((child) => child.runId));
  printStarted({ ...links, started: links.started.filter(({ taskId }) => !shown.has(taskId)) });
}

/** What a run does right now, and what blocks it. */
export function doingText(run: RunView, nowMs: number): string {
  return [activityText(run, nowMs), ...runBlockers(run)].filter((each) => each !== "").join(", ");
}

/** Names the version, because a run needs the version that advanced it or a later one. */
export function noWorkerText(version: number): string {
  return version > 0 ? `no worker for version ${version}` : "no worker";
}

export function paintRunStatus(status: RunView["status"]): string {
  return paintState(statusStyles, status);
}

export function errorText(error: unknown): string {
  const { code, message, by } = (error ?? {}) as Fields;
  const whose = by === "user" || by === "system" ? ` by the ${by}` : "";
  return `${text(code)}${whose}: ${text(message)}`;
}

async function readDetails(flotilla: Operations, runId: string): Promise<RunDetails> {
  const { runs } = flotilla;
  const run = await runs.get(runId);
  if (!run) {
    throw new FlotillaError("not_found", `there is no run ${runId}`, { details: { runId } });
  }
  const { doing } = run;
  const [history, signals, children, task, links, pods] = await Promise.all([
    wholeHistory(flotilla, runId),
    runs.signals(runId),
    runs.list({ parent: runId, limit: maxChildrenShown }),
    flotilla.tasks.get(runId),
    flotilla.tasks.links(runId),
    doing?.type === "running" ? ifAllowed(flotilla.pods(), []) : [],
  ]);
  const why = task ? await whyWaits(flotilla, task) : [];
  const podId = doing?.type === "running" ? doing.podId : undefined;
  const longAgoMs = systemClock.now() - silentAfterMs;
  const silent = pods.find((pod) => pod.podId === podId && pod.lastHeartbeatMs < longAgoMs);
  return { run, history, signals, children, links, why, silent };
}

async function wholeHistory({ runs }: Operations, runId: string): Promise<HistoryEntry[]> {
  const history: HistoryEntry[] = [];
  for (;;) {
    const after = history.at(-1)?.seq ?? 0;
    const page = await runs.history(runId, { after, limit: pageEntries });
    // Entries that were read already would be read for ever.
    const isNew = (page.at(-1)?.seq ?? 0) > after;
    if (!isNew) return history;
    history.push(...page);
  }
}

function facts({ run, history, why, silent }: RunDetails, nowMs: number): Fact[] {
  const { key, parentId, waitsFor, deaths, progress, error, output } = run;
  const startedMs = startOf(run, history);
  const isOpen = run.status === "open";
  return [
    ["id", oneLine(run.runId, 100)],
    ["flow", `${oneLine(run.flow, 200)}${run.version > 0 ? `, version ${run.version}` : ""}`],
    ["status", paintRunStatus(run.status)],
    ...when(isOpen, ["at", run.at === null ? "start" : oneLine(run.at, 100)]),
    ...when(isOpen, ["attempt", String(run.attempt)]),
    ...when(isOpen, ["doing", doingText(run, nowMs)]),
    ...when(run.doing?.type === "running", ["since", time(sinceOf(run))]),
    ...when(silent !== undefined, [
      "pod",
      `last heartbeat ${ago(nowMs, silent?.lastHeartbeatMs ?? nowMs)} ago; the run goes on as soon as another pod is up`,
    ]),
    ...why.map((sentence): Fact => ["why", sentence]),
    ...when(isOpen && run.intent !== null, ["ends as", oneLine(String(run.intent), 100)]),
    ["tenant", oneLine(run.tenant, 200)],
    ...when(key !== null, ["key", oneLine(key ?? "", 200)]),
    ["priority", String(run.priority)],
    ["created", time(run.createdAtMs)],
    ["started", startedMs === undefined ? "not yet" : time(startedMs)],
    ["updated", time(run.updatedAtMs)],
    ...when(deaths > 0, ["deaths", `${deaths} pods died while they ran this transition`]),
    ...when(parentId !== null, ["parent", oneLine(String(parentId), 100)]),
    ...when(waitsFor.length > 0, [isOpen ? "waits for" : "waited for", ids(waitsFor)]),
    ["input", json(run.input)],
    ["state", json(run.state)],
    ...when(progress !== null, ["progress", json(progress)]),
    ...when(run.status === "completed", ["output", json(output)]),
    ...when(error !== null, ["error", errorText(error)]),
  ];
}

function when(is: boolean, fact: Fact): Fact[] {
  return is ? [fact] : [];
}

/** When its first transition began. Its event is stored when it ends; until then the row has the time. */
function startOf({ doing }: RunView, history: readonly HistoryEntry[]): number | undefined {
  const first = history.find(({ startedAtMs }) => startedAtMs !== null)?.startedAtMs;
  if (first !== undefined && first !== null) return first;
  const begun = history.find(({ type }) => type === "start")?.atMs;
  return begun ?? (doing?.type === "running" ? doing.sinceMs : undefined);
}

function sinceOf({ doing }: RunView): number {
  return doing?.type === "running" ? doing.sinceMs : 0;
}

function ids(all: readonly string[]): string {
  const more = all.length - maxIdsShown;
  return `${oneLine(all.slice(0, maxIdsShown).join(" "), 1_000)}${more > 0 ? ` and ${more} more` : ""}`;
}

/** The events of a run, one line each: time, type, transition, attempt, duration, and details. */
function historyLines(history: readonly HistoryEntry[]): string {
  return columns(history.map(toCells));
}

function toCells(entry: HistoryEntry): string[] {
  const { atMs, type, attempt, podId, transition, startedAtMs } = entry;
  return [
    paint("dim", `  ${time(atMs)}`),
    paintType(type),
    transition === null ? "" : oneLine(transition, 100),
    attempt === null ? "" : `attempt ${attempt}`,
    startedAtMs === null ? "" : took(atMs - startedAtMs),
    [
      ...detailTexts(type, (entry.detail ?? {}) as Fields),
      ...(podId === null ? [] : [paint("dim", `on ${oneLine(podId, 100)}`)]),
    ].join("  "),
  ];
}

function paintType(type: string): string {
  const shown = oneLine(type, 40);
  if (type === "error" || type === "set_aside" || type === "pod_died") return paint("red", shown);
  const isCancel = type === "cancel" || type === "cancel_requested" || type === "given_up";
  return isCancel ? paint("yellow", shown) : shown;
}

function detailTexts(type: string, detail: Fields): string[] {
  const { next, version } = detail;
  const onward = typeof next === "string" && next !== "$end" ? [`→ ${oneLine(next, 100)}`] : [];
  switch (type) {
    case "start":
      return [`version ${json(version)}`, ...onward];
    case "move":
      return [
        `version ${json(version)}`,
        `${text(detail["why"])} ${text(detail["from"])}`,
        ...onward,
      ];
    case "complete":
      return [...(detail["set"] ? [json(detail["set"])] : []), ...ending(detail), ...onward];
    case "error":
      return [errorText(detail["error"]), ...retried(detail), ...ending(detail)];
    case "park":
      return [...parkedFor(detail), ...(detail["message"] ? [text(detail["message"])] : [])];
    case "cancel":
      return [...reasonOf(detail["intent"]), ...onward];
    case "finish":
      return [text(detail["status"])];
    case "stepped":
      return ["a step is stored, and attempts count from there"];
    case "set_aside":
      return [`by version ${json(detail["byVersion"])}`, text(detail["message"])];
    case "cancel_requested":
      return [];
    case "given_up":
      return ["cancelled as it was, without its finalizers"];
    case "resume":
      return [`as version ${json(version)}`];
    case "retried":
    case "redriven":
      return ["started over from where it stopped"];
    default:
      return Object.keys(detail).length === 0 ? [] : [json(detail)];
  }
}

/** A handoff or an abort ends the run before its last transition. */
function ending(detail: Fields): string[] {
  const { type } = (detail["intent"] ?? {}) as Fields;
  return typeof type === "string" && type !== "completed" ? [`the run is ${text(type)}`] : [];
}

function retried({ retryAtMs }: Fields): string[] {
  return typeof retryAtMs === "number" ? [`retries at ${time(retryAtMs)}`] : [];
}

function parkedFor({ waiting, untilMs }: Fields): string[] {
  const what = ((waiting ?? {}) as Fields)["for"];
  return [
    ...(typeof what === "string" ? [`waits for ${what === "sleep" ? "a time" : text(what)}`] : []),
    ...(typeof untilMs === "number" ? [`until ${time(untilMs)}`] : []),
  ];
}

function reasonOf(intent: unknown): string[] {
  const { reason } = (intent ?? {}) as Fields;
  return typeof reason === "string" ? [text(reason)] : [];
}

function text(value: unknown): string {
  return oneLine(typeof value === "string" ? value : (JSON.stringify(value) ?? ""), 500);
}

function runBlockers({ noWorker, paused, version, cancelRequested, intent }: RunView): string[] {
  return [
    ...(paused ? ["paused"] : []),
    ...(noWorker ? [noWorkerText(version)] : []),
    ...(cancelRequested && intent === null ? ["cancel requested"] : []),
  ];
}

function activityText({ doing }: RunView, nowMs: number): string {
  switch (doing?.type) {
    case undefined:
      return "";
    case "running":
      return `running for ${ago(nowMs, doing.sinceMs)} on ${oneLine(doing.podId, 100)}`;
    case "ready":
      return "ready to run";
    case "retrying":
      return `retries ${until(nowMs, doing.atMs)}`;
    case "delayed":
      return `starts ${until(nowMs, doing.untilMs)}`;
    case "sleeping":
      return `sleeps, wakes ${until(nowMs, doing.untilMs)}`;
    case "waiting_for_signal": {
      const deadline = doing.untilMs === null ? "" : `, until ${time(doing.untilMs)} at most`;
      const since = `for ${ago(nowMs, doing.sinceMs)}`;
      return `waits for the signal ${oneLine(doing.name, 100)} ${since}${deadline}`;
    }
    case "waiting_for_children":
      return `has waited for its children for ${ago(nowMs, doing.sinceMs)}`;
    case "waiting_for_others":
      return "waits for its dependencies";
    case "waiting_for_room":
      return `blocked by a limit${doing.scope === null ? "" : ` of ${oneLine(doing.scope, 100)}`}`;
    case "set_aside":
      return `set aside by version ${doing.byVersion}: ${oneLine(doing.message, 300)}`;
  }
}

function until(nowMs: number, atMs: number): string {
  return atMs <= nowMs ? "now" : `in ${ago(atMs, nowMs)}, at ${time(atMs)}`;
}

function time(atMs: number): string {
  return new Date(atMs).toISOString();
}

/** A duration, in milliseconds where it is short. */
function took(ms: number): string {
  if (ms < 10_000) return `${Math.max(0, Math.round(ms))} ms`;
  return ago(ms, 0);
}

function json(value: unknown): string {
  return oneLine(JSON.stringify(value), 1_000);
}
