/**
 * F1 to F3 and F7, by the history: it folds to the row after every write, no transition completes twice or
 * out of order, and a run ends only behind its finalizers.
 */
import {
  applyEvent,
  type HistoryEvent,
  type Run,
  toHistory,
  newRun,
} from "../../../src/flows/decide/run.ts";
import { type RunColumns, toColumns } from "../../../src/flows/drive/load.ts";
import type { Row } from "../../../src/store/database.ts";
import type { Noted } from "../audit.ts";
import type { World } from "../world.ts";
import { firstName, machines, orders, signalNames, type Version } from "./machines.ts";

type Known = {
  run: Run;
  /** The place of the last transition that completed. */
  place: number;
  /** The finalizers that were left behind since the run was started, in order. */
  finalized: string[];
  finished: string | undefined;
  /** How many completions are noted of what is called. */
  calls: number;
  /** It was cancelled while no pod could read it: it stands where it stood, and its finalizers didn't run. */
  givenUp: boolean;
  /** What was noted last. */
  last: HistoryEvent["type"] | undefined;
};

export function columnsOf(row: Row): RunColumns {
  return {
    version: row["flow_version"] === null ? null : Number(row["flow_version"]),
    cursor: row["cursor"],
    state: row["state"],
    intent: row["intent"],
    waiting: row["waiting"],
    stoppedAt: row["stopped_at"],
    failures: Number(row["retry_count"]),
    deaths: Number(row["deaths"]),
  };
}

export function createHistories(world: World) {
  const { violate } = world;
  const known = new Map<string, Known>();

  /** What was noted of each run and not judged yet. */
  const fresh = new Map<string, Row[]>();

  const take = (event: HistoryEvent, each: Known, flow: string, what: string): void => {
    each.run = applyEvent(each.run, event);
    each.last = event.type;
    world.count(`event: ${event.type}`);
    if (event.type === "retried" || event.type === "redriven") {
      each.finalized = [];
      each.finished = undefined;
      each.givenUp = false;
    }
    if (event.type === "finish") each.finished = event.status;
    if (event.type !== "complete" && event.type !== "error") return;
    if (event.type === "error" && event.retryAtMs !== null) return;
    const place = orders[flow]!.indexOf(firstName(event.transition));
    if (place < 0 && event.transition !== "$end") each.finalized.push(firstName(event.transition));
    if (event.type === "error") return;
    const isWait = signalNames.includes(event.transition) || event.transition === "$end";
    if (!isWait) each.calls++;
    if (place < 0) return;
    if (place <= each.place) violate("F1", `${what}: ${event.transition} completed again`);
    each.place = place;
  };

  const judgeEnded = (row: Row, each: Known, what: string): void => {
    if (each.givenUp) {
      const isLeft = row["status"] === "cancelled" && each.finished === undefined;
      if (!isLeft || row["cursor"] === null) violate("F7", `${what} was given up, and went on`);
      if (each.last !== "given_up") violate("F7", `${what} was given up, and noted ${each.last}`);
      return;
    }
    if (each.finished !== row["status"]) {
      violate("F7", `${what} is ${row["status"]}, its history says ${each.finished}`);
    }
    const version = Number(row["flow_version"]) as Version;
    const declared = machines.get(version)?.get(row["name"])?.finalizers ?? [];
    const wanted = declared.map(({ name }) => firstName(name)).join();
    if (each.finalized.join() !== wanted) {
      violate("F7", `${what} ended behind ${each.finalized.join()}, not behind ${wanted}`);
    }
  };

  return {
    /** Keeps what a write has noted until its runs are judged. */
    note(written: readonly Noted[]): void {
      for (const { table, after } of written) {
        if (table !== "task_event" || !after) continue;
        const events = fresh.get(after["task_id"]) ?? [];
        events.push(after);
        fresh.set(after["task_id"], events);
      }
    },
    /** Takes what is new of a run's history, and holds the row to all of it. */
    judge(row: Row, { givenUp }: { givenUp: boolean }): HistoryEvent[] {
      const flow = row["name"] as string;
      const what = `${flow} ${(row["task_id"] as string).slice(-6)}`;
      const each: Known = known.get(row["task_id"]) ?? {
        run: newRun,
        place: -1,
        finalized: [],
        finished: undefined,
        calls: 0,
        givenUp: false,
        last: undefined,
      };
      known.set(row["task_id"], each);
      const found = fresh.get(row["task_id"]) ?? [];
      fresh.delete(row["task_id"]);
      found.sort((one, other) => one["seq"] - other["seq"]);
      const events = toHistory(
        found.map(({ type, attempt, detail }) => ({ type, attempt, detail })),
      );
      for (const event of events) take(event, each, flow, what);
      if (givenUp) each.givenUp = true;
      judgeFold(world, columnsOf(row), each.run, what);
      const isOpen = row["status"] === "pending" || row["status"] === "claimed";
      if (!isOpen) judgeEnded(row, each, what);
      else if (each.finished !== undefined || each.last === "given_up")
        violate("F3", `${what} is open, and has finished`);
      return events;
    },
    known: known as ReadonlyMap<string, Readonly<Known>>,
  };
}

function judgeFold(world: World, row: RunColumns, run: Run, what: string): void {
  const folded = toColumns(run);
  const stored = { ...row, version: row.version ?? 0, state: row.state ?? "{}" };
  for (const [name, value] of Object.entries(folded)) {
    const there = stored[name as keyof RunColumns];
    if (there === value) continue;
    world.violate("F2", `${what}: ${name} is ${String(there)}, its history says ${String(value)}`);
  }
}
