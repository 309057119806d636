import {
  type EventRow,
  fold,
  type HistoryEvent,
  toHistory,
} from "../../../src/flows/decide/run.ts";
import { type RunColumns, toColumns } from "../../../src/flows/drive/load.ts";
import type { Fleet } from "../fleet.ts";
import { callsIn, readReports } from "./reports.ts";

/** A run as the store has it. */
export type StoredRun = {
  readonly runId: string;
  readonly key: string;
  readonly status: string;
  readonly parked: number;
  readonly events: readonly HistoryEvent[];
  /** What is stored of it besides, to be compared with what its history says. */
  readonly columns: RunColumns;
  readonly result: string | null;
  readonly error: string | null;
};

/** What a run has come to, without the times, and what its functions did. */
export type End = {
  readonly status: string;
  readonly result: string | null;
  readonly error: string | null;
  readonly state: string | null;
  readonly history: readonly string[];
  /** The last that each function came to. */
  readonly effects: Readonly<Record<string, string>>;
  /** How often each function was called, with each number of attempt. */
  readonly calls: Readonly<Record<string, number>>;
  /** How often it was recovered from a pod that was found dead. */
  readonly deaths: number;
};

/** What a run's key is made of. */
export type Named = {
  readonly flow: string;
  readonly payload: string;
  /** The unique key of the run that has begun its family. */
  readonly rootKey: string;
};

export async function storedRuns(
  fleet: Fleet,
  keyOf: (named: Named) => string,
): Promise<StoredRun[]> {
  const rows = await fleet.sql(
    `select task_id, name, payload, parent_id, unique_key, status, parked, result, error, flow_version, cursor, state, intent,
      waiting, stopped_at, retry_count, deaths
    from flotilla_task where flow_version is not null order by task_id`,
  );
  const events = new Map<string, EventRow[]>();
  const noted = await fleet.sql(
    "select task_id, type, attempt, detail from flotilla_task_event order by task_id, seq",
  );
  for (const { task_id: runId, type, attempt, detail } of noted) {
    const known = events.get(runId) ?? [];
    known.push({ type, attempt, detail });
    events.set(runId, known);
  }
  const byId = new Map(rows.map((row) => [row["task_id"], row]));
  const rootKey = (row: Record<string, any>): string =>
    row["parent_id"] === null ? (row["unique_key"] ?? "") : rootKey(byId.get(row["parent_id"])!);
  return rows.map((row) => ({
    runId: row["task_id"],
    key: keyOf({ flow: row["name"], payload: row["payload"], rootKey: rootKey(row) }),
    status: row["status"],
    parked: row["parked"],
    events: toHistory(events.get(row["task_id"]) ?? []),
    result: row["result"],
    error: row["error"],
    columns: {
      version: row["flow_version"],
      cursor: row["cursor"],
      state: row["state"],
      intent: row["intent"],
      waiting: row["waiting"],
      stoppedAt: row["stopped_at"],
      failures: row["retry_count"],
      deaths: row["deaths"],
    },
  }));
}

export function hasEnded({ status }: Pick<StoredRun, "status">): boolean {
  return status !== "pending" && status !== "claimed";
}

/** How all runs that have ended did, by their keys. */
export function endsOf(fleet: Fleet, runs: readonly StoredRun[]): Map<string, End> {
  const effects = new Map<string, Record<string, string>>();
  const calls = new Map<string, Record<string, number>>();
  const reports = readReports(fleet.folder);
  for (const each of reports) {
    if (each.event !== "end") continue;
    const known = effects.get(each.key) ?? {};
    known[each.transition] = each.value;
    effects.set(each.key, known);
  }
  for (const { key, transition, attempt } of callsIn(reports)) {
    const known = calls.get(key) ?? {};
    const name = `${transition} ${attempt}`;
    known[name] = (known[name] ?? 0) + 1;
    calls.set(key, known);
  }
  return new Map(
    runs.filter(hasEnded).map((run) => [
      run.key,
      {
        status: run.status,
        result: comparable(parsed(run.result)),
        error: comparable(parsed(run.error)),
        state: comparable(parsed(run.columns.state)),
        history: historyOf(run),
        effects: effects.get(run.key) ?? {},
        calls: calls.get(run.key) ?? {},
        deaths: run.events.filter(({ type }) => type === "pod_died").length,
      },
    ]),
  );
}

/**
 * Its events without times and stacks, which differ, and deaths, which are what the test has brought about. Whether
 * it has to wait depends on what comes first.
 */
export function historyOf({ events }: Pick<StoredRun, "events">): string[] {
  return events
    .filter(({ type }) => type !== "pod_died" && type !== "park")
    .map((event) => comparable(event)!);
}

// A stack tells from where something was called, which may be from where a run goes on.
const incomparable = /Ms$|^stack$/;

function comparable(value: unknown): string | null {
  if (value === null) return null;
  return JSON.stringify(value, (name, each: unknown) =>
    incomparable.test(name) ? undefined : each,
  );
}

function parsed(text: string | null): unknown {
  return text === null ? null : JSON.parse(text);
}

/** Runs of which the history tells something else than what is stored. */
export function misfolded(runs: readonly StoredRun[]): string[] {
  return runs.flatMap(({ key, events, columns }) => {
    if (events.every(({ type }) => type === "pod_died")) return [];
    const told = JSON.stringify(sortedColumns(toColumns(fold(events))));
    const stored = JSON.stringify(sortedColumns(columns));
    return told === stored ? [] : [`${key}: ${told} is told, ${stored} is stored`];
  });
}

function sortedColumns(columns: RunColumns): [string, unknown][] {
  return Object.entries(columns).toSorted(([a], [b]) => (a < b ? -1 : 1));
}
