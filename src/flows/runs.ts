import { type Act, type ActWrite, beginAct, writeAct } from "../audit/act.ts";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { defaultMaxBytes, encodeJson, type Json } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import type { Random } from "../base/random.ts";
import { checkForget } from "../tasks/acts.ts";
import {
  checkEventsOptions,
  type TaskEventsOptions,
  fitEvents,
  type Tasks,
} from "../tasks/tasks.ts";
import type { EnqueueOptions } from "../tasks/enqueue/options.ts";
import { untilKnown } from "../store/retry.ts";
import { getEvents, parked } from "../tasks/sql/task-state.ts";
import type { InputOf, ResultOf } from "../tasks/task.ts";
import type { WaitOptions } from "../tasks/inspect/wait-for.ts";
import type { Database, Row } from "../store/database.ts";
import {
  type DoingCounts,
  type FlowCount,
  type FlowCountOptions,
  readDoing,
  readFlowCounts,
} from "./counts.ts";
import { namePattern } from "./declare.ts";
import { listRuns, type RunListOptions, type RunPage, toRuns } from "./list.ts";
import { type HistoryEntry, type RunView, toHistoryEntry } from "./rows.ts";
import { readStuck, type StuckOptions, type StuckRuns } from "./stuck.ts";
import { sendSignal } from "../tasks/sql/signals.ts";
import { checkSignalId } from "../tasks/task.ts";
import { getRun, openSignals, resumeSetAside } from "./sql.ts";
import type { FlowContract, TaskContract } from "../tasks/model.ts";

/** The options of a task, except that attempts belong to transitions, and a run can't replace another. */
export type StartOptions = Omit<EnqueueOptions, "attempts" | "onDuplicate"> & {
  /** If the key is taken: return that run, or reject. Default `existing`. */
  onDuplicate?: "existing" | "reject";
};

export type StartedRun<F extends TaskContract = TaskContract> = {
  readonly runId: string;
  /** False where a run with that key existed already. */
  readonly created: boolean;
  readonly contract?: F;
};

export type OpenSignal = {
  /** Rises with every signal of a run. */
  readonly seq: number;
  readonly signalId: string;
  readonly name: string;
  readonly atMs: number;
};

export type HistoryOptions = TaskEventsOptions & {
  /** With a limit: the last events before the one with this number. They are in order as well. */
  before?: number;
};

export type SignalSendOptions = {
  /** The same id sent to the same run again is ignored. Default: a new id. */
  id?: string;
};

export type RunResumeOptions = {
  /** Hands a run that a later version has advanced to this version. */
  as?: number;
  /** The keys of stored steps that run again, with all that is stored within them. */
  forget?: readonly string[];
};

/** The client for runs: start, read, signal, cancel and resume them. */
export type Runs = {
  // Compiler errors refer to the last overload, so the most used one comes last.
  start(flow: string, input: unknown, options?: StartOptions): Promise<StartedRun>;
  start<F extends FlowContract>(
    flow: F,
    input: InputOf<F>,
    options?: StartOptions,
  ): Promise<StartedRun<F>>;
  get(runId: string): Promise<RunView | undefined>;
  list(options?: RunListOptions): Promise<RunPage>;
  /** Resolves to the result of a run once it has completed. Rejects if it fails or is cancelled. */
  wait<F extends TaskContract>(run: StartedRun<F>, options?: WaitOptions): Promise<ResultOf<F>>;
  wait(runId: string, options?: WaitOptions): Promise<Json>;
  /**
   * Resolves when the cancel is stored: `cancelling`, because the run's finalizers run after that, or
   * `cancelled` at once if the run was set aside, since no pod can run them.
   */
  cancel(runId: string): Promise<"cancelled" | "cancelling" | "finished">;
  /** Sends a signal to a run that waits for it, or will. Resolves once it is stored. */
  signal(
    runId: string,
    name: string,
    payload?: unknown,
    options?: SignalSendOptions,
  ): Promise<void>;
  /** The signals of a run that it hasn't used yet. */
  signals(runId: string, options?: TaskEventsOptions): Promise<OpenSignal[]>;
  history(runId: string, options?: HistoryOptions): Promise<HistoryEntry[]>;
  /**
   * Resumes a run that was set aside, has failed or was cancelled, at the transition where it stopped.
   */
  resume(runId: string, options?: RunResumeOptions): Promise<void>;
  /**
   * Counts the runs of each flow by transition and by what they do. Bounded: `atLeast` is true of a flow
   * whose numbers are lower bounds.
   */
  counts(options?: FlowCountOptions): Promise<FlowCount[]>;
  /** Counts open runs of these flows by what they do. Bounded: numbers beyond 10,000 aren't exact. */
  doing(flows: readonly string[]): Promise<DoingCounts>;
  /** Runs that make no progress and may need an operator. */
  stuck(options?: StuckOptions): Promise<StuckRuns[]>;
};

export type RunsParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Where acts are logged. Default: nowhere. */
  log?: Logger;
  maxPayloadBytes?: number;
  /** Called after a write that a pod in this process may wait for. */
  onEnqueued?: () => void;
  /** Whether the pod of this client is stopping, so that it starts no more runs. */
  stopping?: () => boolean;
};

type TasksUsed = Pick<Tasks, "cancel" | "enqueue" | "resumeTask" | "waitFor">;

/** Creates the client for runs. Runs are stored as tasks, so it builds on the client for tasks. */
export function createRuns(tasks: TasksUsed, parts: RunsParts): Runs {
  const { database, onEnqueued, maxPayloadBytes = defaultMaxBytes } = parts;

  /** Returns the row after the change, and the entry if the act was stored before. */
  const write = async (act: Act, statements: ActWrite["statements"]) => {
    const written = await writeAct(parts, act, { statements, notify: true }, untilKnown);
    return { row: written.tables.at(-1)![0], stored: written.stored };
  };

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
        throw new FlotillaError(
          "invalid_option",
          `start: ${name} isn't a flow: use enqueue for tasks`,
        );
      }
      if (parts.stopping?.()) {
        throw new FlotillaError(
          "closed",
          `start: this pod is stopping: start "${contract.name}" on another one`,
        );
      }
      const { taskId, created } = await tasks.enqueue(contract, input, options);
      return { runId: taskId, created };
    },
    async get(runId) {
      const [row] = await database.read(getRun(runId));
      return row && (await toRuns(database, [row]))[0];
    },
    list: async (options = {}) => listRuns(parts, options),
    async wait(run: StartedRun | string, options: WaitOptions = {}): Promise<any> {
      const runId = typeof run === "string" ? run : run.runId;
      if (typeof run === "string") await requireRun(runId);
      return tasks.waitFor({ taskId: runId }, options);
    },
    async cancel(runId) {
      await requireRun(runId);
      return tasks.cancel(runId);
    },
    async signal(runId, name, payload = null, options = {}) {
      checkOptions("signal", options, ["id"]);
      const { id = parts.ids.next() } = options;
      if (typeof name !== "string" || !namePattern.test(name)) {
        throw new FlotillaError(
          "invalid_option",
          "signal: its name must be 1 to 100 letters, digits and _ . : -, and begin with a letter",
        );
      }
      checkSignalId(id);
      const text = encodeJson(`the signal "${name}"`, payload, { maxBytes: maxPayloadBytes });
      const signal = { taskId: runId, to: "run", signalId: id, name, payload: text } as const;
      const act = await beginAct(parts, { action: "runs.signal", subject: runId });
      const { row, stored } = await write(act, (_, entry) => sendSignal(signal, entry));
      if (!row || row["flow_version"] === null) throw notFound(runId);
      if (stored || Number(row["sent"]) === 1) return onEnqueued?.();
      const isOpen = row["status"] === "pending" || row["status"] === "claimed";
      throw isOpen
        ? new FlotillaError("overloaded", `run ${runId} has too many unused signals: send fewer`)
        : new FlotillaError(
            "conflict",
            `run ${runId} is ${row["status"]}: it takes no more signals`,
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
      const { before, ...paging } = options;
      checkEventsOptions("history", paging);
      checkBefore(options);
      await requireRun(runId);
      const found = (await database.read(getEvents(runId, options))).map(toHistoryEntry);
      if (before === undefined) return fitEvents(found, paging);
      return fitEvents(found.toReversed(), paging).toReversed();
    },
    async resume(runId, options = {}) {
      checkOptions("resume", options, ["as", "forget"]);
      const { as, forget = [] } = options;
      if (as !== undefined) checkNumber("as", as, { min: 1, max: 1_000_000_000 });
      const { status, parked: parkedFor, flow_version: version } = await requireRun(runId);
      const act = await beginAct(parts, { action: "runs.resume", subject: runId });
      if (act.stored) return onEnqueued?.();
      if (status === "failed" || status === "cancelled") return tasks.resumeTask(runId, { forget });
      const isAside = status === "pending" && Number(parkedFor) === parked.setAside;
      const isLater = as !== undefined && Number(version) > as;
      if (status !== "pending" || !(isAside || isLater)) {
        const what = status === "completed" ? "has completed" : "continues by itself";
        throw new FlotillaError("conflict", `run ${runId} ${what}: there is nothing to resume`);
      }
      await checkForget(database, runId, forget);
      const { row } = await write(act, (requestId, entry) =>
        resumeSetAside({ runId, version: as ?? null, requestId, forget }, entry),
      );
      if (!row) throw notFound(runId);
      if (Number(row["resumed"]) === 1) return onEnqueued?.();
      throw new FlotillaError(
        "conflict",
        `run ${runId} was changed meanwhile and is ${row["status"]}: it wasn't resumed`,
      );
    },
    counts: async (options) => readFlowCounts(database, options),
    doing: (flows) => readDoing(database, flows),
    stuck: async (options) => readStuck(database, options),
  };
}

function checkBefore({ before, after, limit }: HistoryOptions): void {
  if (before === undefined) return;
  checkNumber("before", before, { min: 1, max: 2 ** 31 - 1 });
  if (after === undefined && limit !== undefined) return;
  throw new FlotillaError(
    "invalid_option",
    "history: `before` needs a limit, and can't be combined with `after`",
  );
}

function notFound(runId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no run ${runId}`, { details: { runId } });
}
