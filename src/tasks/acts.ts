import {
  type Act,
  type ActAbout,
  type ActParts,
  type ActWrite,
  beginAct,
  writeAct,
  type WriteEntry,
} from "../audit/act.ts";
import { FlotillaError } from "../base/errors.ts";
import { encodeJson, type Json } from "../base/json.ts";
import { checkOptions } from "../base/options.ts";
import { checkStepName } from "../steps/key.ts";
import type { Database, Row } from "../store/database.ts";
import { untilKnown } from "../store/retry.ts";
import { unblockScope } from "./concurrency/unblock.ts";
import { cancelTask, getTask, resumeTask, retryTask } from "./sql/inspect.ts";
import { sendSignal } from "./sql/signals.ts";
import { countSteps, listSteps } from "./sql/steps.ts";
import { parked } from "./sql/task-state.ts";
import { checkSignalId } from "./task.ts";

export type TaskRetryOptions = {
  /** Forgets the stored steps, so that all of them run again. Default false. */
  fromStart?: boolean;
};

export type TaskSignalOptions = {
  /** Sending a signal again with the same id does nothing. Default: a new id. */
  id?: string;
};

export type TaskResumeOptions = { forget?: readonly string[] };

export type Retried = {
  /** How many stored steps were forgotten, because it was to run from its start. */
  readonly forgottenSteps: number;
};

/** What operators do to one task. */
export type TaskActs = {
  /**
   * Resolves when the cancel is stored: `cancelled` at once, or `cancelling` while a pod must still
   * stop the attempt or run finalizers.
   */
  cancel(taskId: string): Promise<"cancelled" | "cancelling" | "finished">;
  /**
   * Starts a failed or cancelled task again. Its stored steps are kept, but those that have failed
   * for good; `fromStart` forgets all of them.
   */
  retry(taskId: string, options?: TaskRetryOptions): Promise<Retried>;
  /**
   * Lets a task go on that was set aside, has failed or was cancelled. `forget` are the keys of stored
   * steps that run again, with all that is stored within them.
   */
  resumeTask(taskId: string, options?: TaskResumeOptions): Promise<void>;
  /** Sends a signal to a task whose steps wait for it, or will. Resolves once it is stored. */
  signal(taskId: string, name: string, payload?: Json, options?: TaskSignalOptions): Promise<void>;
};

export type TaskActsParts = ActParts & {
  maxPayloadBytes: number;
  onEnqueued?: () => void;
  /** Called when a task may have ended. */
  ended: (taskId: string) => void;
};

/** Creates them. Each is a transaction that also stores its entry in the audit. */
export function createTaskActs(parts: TaskActsParts): TaskActs {
  const { database, onEnqueued, maxPayloadBytes, ended } = parts;

  const begin = (action: ActAbout["action"], taskId: string) =>
    beginAct(parts, { action, subject: taskId });

  /** Returns the row after the change, and the entry if the act was stored before. */
  const change = async (taskId: string, act: Act, statements: ActWrite["statements"]) => {
    const written = await writeAct(parts, act, { statements, notify: true }, untilKnown);
    const [row] = written.tables.at(-1)!;
    if (!row) throw notFound(taskId);
    return { row, stored: written.stored };
  };

  return {
    async cancel(taskId) {
      const act = await begin("tasks.cancel", taskId);
      const { row, stored } = await change(taskId, act, (id, entry) =>
        cancelTask(taskId, id, entry),
      );
      if (row["status"] === "cancelled") await unblockScope(parts, row["concurrency_key"]);
      // Its dependents may be ready now.
      onEnqueued?.();
      ended(taskId);
      if (stored) return stored.after["status"] as "cancelled" | "cancelling";
      if (row["status"] === "cancelled") return "cancelled";
      // A pending run that was cancelled still has to run its finalizers.
      const isOpen = row["status"] === "claimed" || row["status"] === "pending";
      // The cancelled task had ended, and was retried before the answer arrived.
      if (isOpen && Number(row["cancel_requested"]) === 0) return "finished";
      return isOpen ? "cancelling" : "finished";
    },
    async retry(taskId, options = {}) {
      checkOptions("retry", options, ["fromStart"]);
      const { fromStart = false } = options;
      // The steps of a task that has ended don't change.
      const [counted] = fromStart ? await database.read(countSteps(taskId)) : [];
      const forgottenSteps = Number(counted?.["steps"] ?? 0);
      const steps = fromStart ? "all" : "failed";
      const after = JSON.stringify({ status: "pending", forgottenSteps });
      const act = await begin("tasks.retry", taskId);
      const { row, stored } = await change(taskId, act, (id, entry) =>
        retryTask(taskId, id, steps, (facts) => entry({ ...facts, after })),
      );
      if (stored) return { forgottenSteps: Number(stored.after["forgottenSteps"]) };
      if (Number(row["retried"]) === 1) {
        onEnqueued?.();
        return { forgottenSteps };
      }
      throw new FlotillaError(
        "conflict",
        `task ${taskId} is ${row["status"]}: only failed and cancelled tasks can be retried`,
      );
    },
    async resumeTask(taskId, options = {}) {
      checkOptions("resumeTask", options, ["forget"]);
      const { forget = [] } = options;
      const [found] = await database.read(getTask(taskId));
      if (!found) throw notFound(taskId);
      const act = await begin("tasks.resume", taskId);
      if (!act.stored) await checkForget(database, taskId, forget);
      const isAside = Number(found["parked"]) === parked.setAside;
      const isHeld = found["status"] === "pending" && isAside && found["flow_version"] === null;
      const after = JSON.stringify({ status: "pending", forget: forget.length });
      const { row, stored } = await change(taskId, act, (id, entry) => {
        const stating: WriteEntry = (facts) => entry({ ...facts, after });
        return isHeld
          ? resumeTask(taskId, id, forget, stating)
          : retryTask(taskId, id, forget, stating);
      });
      if (stored || Number(row["resumed"] ?? row["retried"]) === 1) return onEnqueued?.();
      throw new FlotillaError(
        "conflict",
        `task ${taskId} is ${row["status"]}, and wasn't set aside: there is nothing to resume`,
      );
    },
    async signal(taskId, name, payload = null, options = {}) {
      checkOptions("signal", options, ["id"]);
      checkStepName(name);
      const { id: signalId = parts.ids.next() } = options;
      checkSignalId(signalId);
      const text = encodeJson(`the signal "${name}"`, payload, { maxBytes: maxPayloadBytes });
      const signal = { taskId, to: "task", signalId, name, payload: text } as const;
      const act = await begin("tasks.signal", taskId);
      const { row, stored } = await change(taskId, act, (_, entry) => sendSignal(signal, entry));
      if (row["flow_version"] !== null) {
        throw new FlotillaError("not_found", `${taskId} is a run: use \`runs.signal\``);
      }
      if (stored || Number(row["sent"]) === 1) return onEnqueued?.();
      const isOpen = row["status"] === "pending" || row["status"] === "claimed";
      throw isOpen
        ? new FlotillaError("overloaded", `task ${taskId} has too many unused signals: send fewer`)
        : new FlotillaError("conflict", `task ${taskId} is ${row["status"]}: it takes no signals`);
    },
  };
}

/** Throws unless these are keys of stored steps of a task or run. */
export async function checkForget(
  database: Database,
  taskId: string,
  keys: readonly string[],
): Promise<void> {
  if (!Array.isArray(keys) || keys.some((key) => typeof key !== "string")) {
    throw new FlotillaError("invalid_option", "forget must be a list of keys of steps");
  }
  if (keys.length === 0) return;
  const stored: Row[] = await database.read(listSteps(taskId, {}));
  const missing = keys.find((key) => !stored.some((row) => row["key"] === key));
  if (missing === undefined) return;
  throw new FlotillaError(
    "not_found",
    `${taskId} has no stored step ${JSON.stringify(missing)}: \`flotilla tasks show\` lists them`,
  );
}

export function notFound(taskId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no task ${taskId}`, { details: { taskId } });
}
