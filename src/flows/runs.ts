import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { defaultMaxBytes, encodeJson, type Json } from "../base/json.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import {
  checkEventsOptions,
  type TaskEventsOptions,
  fitEvents,
  type Tasks,
} from "../tasks/tasks.ts";
import type { EnqueueOptions } from "../tasks/enqueue/options.ts";
import { writeUntilKnown, untilKnown } from "../store/retry.ts";
import { readBlockers } from "../tasks/inspect/blocked-by.ts";
import { getEvents, parked } from "../tasks/sql/task-state.ts";
import type { FlowContract, InputOf, ResultOf, TaskContract } from "../tasks/task.ts";
import type { WaitOptions } from "../tasks/inspect/wait-for.ts";
import { readDependencies } from "../tasks/dependencies.ts";
import type { Database, Row } from "../store/database.ts";
import { hasMore } from "../store/page.ts";
import { type DoingCounts, type FlowCount, readDoing, toFlowCounts } from "./counts.ts";
import { namePattern } from "./declare.ts";
import { type HistoryEntry, type RunView, toHistoryEntry, toRun } from "./rows.ts";
import { readStuck, type StuckOptions, type StuckRuns } from "./stuck.ts";
import { countRuns, getRun, listRuns, openSignals, resumeSetAside, sendSignal } from "./sql.ts";

/** As for a task, but attempts belong to transitions, and a run can't replace another. */
export type StartOptions = Omit<EnqueueOptions, "attempts" | "onDuplicate"> & {
  /** What if the key is taken: that run is given, or it is refused. Default `existing`. */
  onDuplicate?: "existing" | "reject";
};

export type StartedRun<F extends TaskContract = TaskContract> = {
  readonly runId: string;
  /** False where a run with that key was there already. */
  readonly created: boolean;
  readonly contract?: F;
};

export type RunListOptions = {
  flow?: string;
  /** `open`: pending or claimed. */
  status?: "open" | "pending" | "claimed" | "completed" | "failed" | "cancelled";
  tenant?: string;
  /** Only those that stand at this transition or finalizer. */
  at?: string;
  /** Only those that this run has started. */
  parent?: string;
  /** Only those that were set aside, because they can't be read. */
  setAside?: boolean;
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
};

export type RunPage = { readonly runs: RunView[]; readonly next: string | null };

export type OpenSignal = {
  /** Rises with every signal of a run. */
  readonly seq: number;
  readonly signalId: string;
  readonly name: string;
  readonly atMs: number;
};

export type HistoryOptions = TaskEventsOptions;

export type SignalSendOptions = {
  /** Sending the same id to the same run again says nothing new. Default: one of its own. */
  id?: string;
};

/** Everything that can be asked of runs from outside. */
export type Runs = {
  // Compilers complain in terms of the last one, which most mistakes are about.
  start(flow: string, input: unknown, options?: StartOptions): Promise<StartedRun>;
  start<F extends FlowContract>(
    flow: F,
    input: InputOf<F>,
    options?: StartOptions,
  ): Promise<StartedRun<F>>;
  get(runId: string): Promise<RunView | undefined>;
  list(options?: RunListOptions): Promise<RunPage>;
  /** What a run gives, once it has completed. Rejects if it fails or is cancelled. */
  wait<F extends TaskContract>(run: StartedRun<F>, options?: WaitOptions): Promise<ResultOf<F>>;
  wait(runId: string, options?: WaitOptions): Promise<Json>;
  /** Resolves when the cancel is stored. The run's finalizers are yet to come. */
  cancel(runId: string): Promise<"cancelling" | "finished">;
  /** Says something to a run that waits for it, or will. Resolves once it is stored. */
  signal(
    runId: string,
    name: string,
    payload?: unknown,
    options?: SignalSendOptions,
  ): Promise<void>;
  /** What was said to a run and not used yet. */
  signals(runId: string, options?: HistoryOptions): Promise<OpenSignal[]>;
  history(runId: string, options?: HistoryOptions): Promise<HistoryEntry[]>;
  /**
   * Lets a run go on that was set aside, or one that has failed or was cancelled: from the transition where
   * it stopped. With `as`, one that a later version has advanced is given to that version.
   */
  resume(runId: string, options?: { as?: number }): Promise<void>;
  /** How many runs of each flow stand where. */
  counts(): Promise<FlowCount[]>;
  /** What open runs of these flows do, at a cost that doesn't grow with the table: no number is exact beyond 10,000. */
  doing(flows: readonly string[]): Promise<DoingCounts>;
  /** Runs that don't get on and may need somebody. */
  stuck(options?: StuckOptions): Promise<StuckRuns[]>;
};

export type RunsParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  maxPayloadBytes?: number;
  /** Told after something was stored that a pod in this process may have waited for. */
  onEnqueued?: () => void;
  /** Whether the pod that these belong to stops, so that nothing new is begun with it. */
  stopping?: () => boolean;
};

type TasksUsed = Pick<Tasks, "cancel" | "enqueue" | "retry" | "waitFor">;

const listOptionNames = [
  "flow",
  "status",
  "tenant",
  "at",
  "parent",
  "setAside",
  "cursor",
  "limit",
] as const;
const maxIdChars = 200;
const statuses = ["open", "pending", "claimed", "completed", "failed", "cancelled"] as const;

export function createRuns(tasks: TasksUsed, parts: RunsParts): Runs {
  const { database, onEnqueued, maxPayloadBytes = defaultMaxBytes } = parts;
  const retryOptions = { ...parts, ...untilKnown, hint: true };

  const requireRun = async (runId: string): Promise<Row> => {
    const [row] = await database.read(getRun(runId));
    if (row) return row;
    throw notFound(runId);
  };

  return {
    async start(flow: TaskContract | string, input: unknown, options: StartOptions = {}) {
      const contract: TaskContract =
        typeof flow === "string"
          ? { name: flow, input: undefined, output: undefined, isFlow: true }
          : flow;
      if (contract?.isFlow !== true) {
        const name = JSON.stringify(contract?.name);
        throw new FlotillaError("invalid_option", `start: ${name} is no flow: enqueue it`);
      }
      if (parts.stopping?.()) {
        throw new FlotillaError(
          "closed",
          `start: this pod stops: start "${contract.name}" on another`,
        );
      }
      const { taskId, created } = await tasks.enqueue(contract, input, options);
      return { runId: taskId, created };
    },
    async get(runId) {
      const [row] = await database.read(getRun(runId));
      return row && (await toRuns(database, [row]))[0];
    },
    async list(options = {}) {
      checkOptions("list", options, listOptionNames);
      const { cursor, limit = 50, ...filter } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (filter.status !== undefined) checkChoice("status", filter.status, statuses);
      const before = cursor !== undefined && { before: cursor };
      const found = await database.read(listRuns({ ...filter, ...before, limit }));
      const page = fitPage(await toRuns(database, found), hasMore(found));
      return { runs: page.items, next: page.hasMore ? page.items.at(-1)!.runId : null };
    },
    async wait(run: StartedRun | string, options: WaitOptions = {}): Promise<any> {
      const runId = typeof run === "string" ? run : run.runId;
      if (typeof run === "string") await requireRun(runId);
      return tasks.waitFor({ taskId: runId, created: false }, options);
    },
    async cancel(runId) {
      await requireRun(runId);
      // Only its finalizers end a run, so one that is cancelled had ended before.
      return (await tasks.cancel(runId)) === "cancelling" ? "cancelling" : "finished";
    },
    async signal(runId, name, payload = null, options = {}) {
      checkOptions("signal", options, ["id"]);
      const { id = parts.ids.next() } = options;
      if (typeof name !== "string" || !namePattern.test(name)) {
        throw new FlotillaError("invalid_option", "signal: its name is that of a flow's signal");
      }
      checkId(id);
      const text = encodeJson(`the signal "${name}"`, payload, { maxBytes: maxPayloadBytes });
      const statements = sendSignal({ runId, signalId: id, name, payload: text });
      const { tables } = await writeUntilKnown(database, statements, retryOptions);
      const [row] = tables.at(-1)!;
      if (!row || row["flow_version"] === null) throw notFound(runId);
      if (Number(row["sent"]) === 1) return onEnqueued?.();
      const isOpen = row["status"] === "pending" || row["status"] === "claimed";
      throw isOpen
        ? new FlotillaError("overloaded", `run ${runId} has too many signals that it hasn't used`)
        : new FlotillaError(
            "conflict",
            `run ${runId} is ${row["status"]}: it hears nothing any more`,
          );
    },
    async signals(runId, options = {}) {
      checkEventsOptions("signals", options);
      await requireRun(runId);
      const found = await database.read(openSignals(runId, options));
      return fitEvents(
        found.map((row) => ({
          seq: Number(row["seq"]),
          signalId: row["signal_id"] as string,
          name: row["name"] as string,
          atMs: Number(row["at"]),
        })),
        options,
      );
    },
    async history(runId, options = {}) {
      checkEventsOptions("history", options);
      await requireRun(runId);
      const found = await database.read(getEvents(runId, options));
      return fitEvents(found.map(toHistoryEntry), options);
    },
    async resume(runId, options = {}) {
      checkOptions("resume", options, ["as"]);
      const { as } = options;
      if (as !== undefined) checkNumber("as", as, { min: 1, max: 1_000_000_000 });
      const { status, parked: parkedFor, flow_version: version } = await requireRun(runId);
      if (status === "failed" || status === "cancelled") return tasks.retry(runId);
      const isAside = status === "pending" && Number(parkedFor) === parked.setAside;
      const isLater = as !== undefined && Number(version) > as;
      if (status !== "pending" || !(isAside || isLater)) {
        const what = status === "completed" ? "has completed" : "goes on by itself";
        throw new FlotillaError("conflict", `run ${runId} ${what}: there is nothing to resume`);
      }
      const request = { runId, version: as ?? null, requestId: parts.ids.next() };
      const { tables } = await writeUntilKnown(database, resumeSetAside(request), retryOptions);
      const [row] = tables.at(-1)!;
      if (!row) throw notFound(runId);
      if (Number(row["resumed"]) === 1) return onEnqueued?.();
      throw new FlotillaError(
        "conflict",
        `run ${runId} was changed meanwhile, and is ${row["status"]}: it wasn't resumed`,
      );
    },
    async counts() {
      return toFlowCounts(await database.read(countRuns()));
    },
    doing: (flows) => readDoing(database, flows),
    stuck: async (options) => readStuck(database, options),
  };
}

/** Runs as people see them, with what each waits for. */
async function toRuns(database: Database, rows: readonly Row[]): Promise<RunView[]> {
  const waits = await readDependencies(database, rows);
  const isWaiting = rows.some((row) => row["status"] === "pending");
  const holds = isWaiting ? await readBlockers(database) : undefined;
  return rows.map((row) => toRun(row, waits.get(row["task_id"]), holds));
}

function checkId(id: unknown): void {
  if (typeof id === "string" && id.length > 0 && id.length <= maxIdChars) {
    if (id.isWellFormed() && !id.includes("\u0000")) return;
  }
  throw new FlotillaError("invalid_option", `signal: id must be 1 to ${maxIdChars} characters`);
}

function notFound(runId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no run ${runId}`, { details: { runId } });
}
