import { encodeJson, type Json } from "../../base/json.ts";
import { type Logger, withFields } from "../../base/log.ts";
import type { Database } from "../../store/database.ts";
import type { Throttles } from "../../throttles/registry.ts";
import type { Middleware } from "./middleware.ts";
import type { Progress } from "./progress.ts";
import { type Running, signalOf, taskFields } from "./attempt.ts";
import type { TaskContext } from "../task.ts";
import { readParents } from "../dependencies.ts";
import { completeWithin } from "./within.ts";

export type RunParts = {
  database: Database;
  progress: Pick<Progress, "last" | "save">;
  log: Logger;
  podId: string;
  maxResultBytes: number;
  middleware: readonly Middleware[];
  /** The pod's own, where it has some. */
  throttles?: Throttles | undefined;
};

/** What a handler gets of an attempt. */
export function createContext(
  running: Running,
  input: unknown,
  parts: RunParts,
): TaskContext<unknown> {
  return new RunContext(running, input, parts);
}

/**
 * Most handlers look at their input alone, and to make the rest would cost more than a short task. So
 * it is made when it is asked for, by getters that all contexts share. What they give needs no `this`,
 * because handlers take contexts apart.
 */
class RunContext implements TaskContext<unknown> {
  readonly input: unknown;
  readonly taskId: string;
  readonly name: string;
  readonly attempt: number;
  readonly snoozes: number;
  readonly scheduledAtMs: number | undefined;
  readonly token: number;
  readonly #running: Running;
  readonly #parts: RunParts;

  constructor(running: Running, input: unknown, parts: RunParts) {
    const { claim } = running;
    this.input = input;
    this.taskId = claim.taskId;
    this.name = claim.name;
    this.attempt = claim.failures + 1;
    this.snoozes = claim.snoozes;
    this.scheduledAtMs = claim.scheduledAtMs;
    this.token = claim.token;
    this.#running = running;
    this.#parts = parts;
  }

  get signal(): AbortSignal {
    return signalOf(this.#running);
  }

  get progress(): TaskContext<unknown>["progress"] {
    const running = this.#running;
    const { progress } = this.#parts;
    return (value: Json) => {
      if (!running.ended) progress.save(running, encodeJson("progress", value));
    };
  }

  get parents(): TaskContext<unknown>["parents"] {
    const { database } = this.#parts;
    return () => readParents(database, this.taskId);
  }

  get lastProgress(): TaskContext<unknown>["lastProgress"] {
    const running = this.#running;
    const { progress } = this.#parts;
    return () => progress.last(running);
  }

  get complete(): TaskContext<unknown>["complete"] {
    const running = this.#running;
    const parts = this.#parts;
    return (tx, result) => completeWithin(running, tx, result, parts);
  }

  get log(): Logger {
    const { log, podId } = this.#parts;
    return withFields(log, taskFields(this.#running, podId));
  }
}
