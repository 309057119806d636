import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { OpenSignal, RunPage } from "../../flows/runs.ts";
import type { HistoryEntry, RunView } from "../../flows/rows.ts";
import type { Flotilla, PodInfo } from "../../runtime/connect.ts";
import { onStore } from "../connect.ts";
import type { StoreFlags } from "../flags.ts";
import { whatHoldsUp } from "../blocked-by.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";
import { errorText, historyLines } from "./runs-history.ts";
import { doingText, json, paintRunStatus, time } from "./runs-text.ts";

type Shown = {
  readonly run: RunView;
  readonly history: readonly HistoryEntry[];
  readonly signals: readonly OpenSignal[];
  readonly children: RunPage;
  readonly heldUp: readonly string[];
  /** The pod that has it, where that hasn't been heard of for a while. */
  readonly silent: PodInfo | undefined;
};

const pageEntries = 1_000;
const childrenShown = 20;
// For people: pods themselves judge each other by beats, and much sooner.
const silentAfterMs = 30_000;

/** All that the store tells of a run. It needs no pod, only the database. */
export async function show(runId: string, flags: StoreFlags & { json?: true }): Promise<void> {
  const shown = await onStore(flags, (flotilla) => look(flotilla, runId));
  const { run, history, signals, children, heldUp } = shown;
  if (flags.json) {
    const held = heldUp.length > 0 && { heldUp };
    return printJson({ run, history, signals, children: children.runs, ...held });
  }
  const nowMs = systemClock.now();
  print(columns(facts(shown, nowMs).map(([name, value]) => [paint("dim", name), value])));
  print("");
  print(history.length === 0 ? paint("dim", "nothing has happened yet") : "history");
  if (history.length > 0) print(historyLines(history));
  if (signals.length > 0) print("\nsignals that it hasn't used");
  for (const { signalId, name, atMs } of signals) {
    print(
      `  ${paint("dim", time(atMs))}  ${oneLine(name, 100)}  ${paint("dim", oneLine(signalId, 200))}`,
    );
  }
  if (children.runs.length > 0) print("\nchildren");
  const rows = children.runs.map((child) => [
    `  ${child.runId}`,
    oneLine(child.flow, 40),
    paintRunStatus(child.status),
    paint("dim", oneLine(child.error?.message ?? doingText(child, nowMs), 80)),
  ]);
  if (rows.length > 0) print(columns(rows));
  if (children.next !== null) print(paint("dim", `  more: flotilla runs list --parent ${runId}`));
}

async function look(flotilla: Flotilla, runId: string): Promise<Shown> {
  const { runs } = flotilla;
  const run = await runs.get(runId);
  if (!run) {
    throw new FlotillaError("not_found", `there is no run ${runId}`, { details: { runId } });
  }
  const { doing } = run;
  const [history, signals, children, task, pods] = await Promise.all([
    wholeHistory(flotilla, runId),
    runs.signals(runId),
    runs.list({ parent: runId, limit: childrenShown }),
    flotilla.get(runId),
    doing?.type === "running" ? flotilla.pods() : [],
  ]);
  const heldUp = task ? await whatHoldsUp(flotilla, task) : [];
  const podId = doing?.type === "running" ? doing.podId : undefined;
  const longAgoMs = systemClock.now() - silentAfterMs;
  const silent = pods.find((pod) => pod.podId === podId && pod.lastHeartbeatMs < longAgoMs);
  return { run, history, signals, children, heldUp, silent };
}

async function wholeHistory({ runs }: Flotilla, runId: string): Promise<HistoryEntry[]> {
  const history: HistoryEntry[] = [];
  for (;;) {
    const after = history.at(-1)?.seq ?? 0;
    const page = await runs.history(runId, { after, limit: pageEntries });
    history.push(...page);
    if (page.length === 0) return history;
  }
}

type Fact = [name: string, value: string];

function facts({ run, history, heldUp, silent }: Shown, nowMs: number): Fact[] {
  const { key, parentId, waitsFor, deaths, progress, error, output } = run;
  const startedMs = startOf(run, history);
  const isOpen = run.status === "open";
  return [
    ["id", run.runId],
    ["flow", `${oneLine(run.flow, 200)}${run.version > 0 ? `, version ${run.version}` : ""}`],
    ["status", paintRunStatus(run.status)],
    ...when(isOpen, ["at", run.at === null ? "start" : oneLine(run.at, 100)]),
    ...when(isOpen, ["attempt", String(run.attempt)]),
    ...when(isOpen, ["doing", doingText(run, nowMs)]),
    ...when(run.doing?.type === "running", ["since", time(sinceOf(run))]),
    ...when(silent !== undefined, [
      "pod",
      `not heard of for ${ago(nowMs, silent?.lastHeartbeatMs ?? nowMs)}; the run goes on as soon as another pod is up`,
    ]),
    ...heldUp.map((why): Fact => ["held up", why]),
    ...when(isOpen && run.intent !== null, ["ends as", String(run.intent)]),
    ["tenant", oneLine(run.tenant, 200)],
    ...when(key !== null, ["key", oneLine(key ?? "", 200)]),
    ["priority", String(run.priority)],
    ["created", time(run.createdAtMs)],
    ["started", startedMs === undefined ? "not yet" : time(startedMs)],
    ["updated", time(run.updatedAtMs)],
    ...when(deaths > 0, ["deaths", `${deaths} pods have died while they ran this transition`]),
    ...when(parentId !== null, ["parent", String(parentId)]),
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

/** When its first transition began. That is noted when it has ended; until then the row tells. */
function startOf({ doing }: RunView, history: readonly HistoryEntry[]): number | undefined {
  const first = history.find(({ startedAtMs }) => startedAtMs !== null)?.startedAtMs;
  if (first !== undefined && first !== null) return first;
  const begun = history.find(({ type }) => type === "start")?.atMs;
  return begun ?? (doing?.type === "running" ? doing.sinceMs : undefined);
}

function sinceOf({ doing }: RunView): number {
  return doing?.type === "running" ? doing.sinceMs : 0;
}

const idsShown = 10;

function ids(all: readonly string[]): string {
  const more = all.length - idsShown;
  return `${all.slice(0, idsShown).join(" ")}${more > 0 ? ` and ${more} more` : ""}`;
}
