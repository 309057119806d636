import { FlotillaError } from "../../base/errors.ts";
import { encodeJson, type Json } from "../../base/json.ts";
import { type Logger, withFields } from "../../base/log.ts";
import { check } from "../../base/schema.ts";
import { newFilesIn } from "../../files/new-file.ts";
import { readParents } from "../dependencies.ts";
import { completedFinish } from "../finish/outcome.ts";
import { finishTasks, wakeDependentsAfter } from "../sql/finish.ts";
import { signalOf, startedAtOf, taskFields } from "./attempt.ts";
import { begunBy, stepsOf } from "./steps.ts";
import type { TaskSteps } from "../../steps/model.ts";
import type { AttemptParts, TaskContext, TaskAttempt } from "../model.ts";

/** A typed value that middleware passes to inner middleware and the handler. */
export type ContextValue<Value> = {
  /** Sets the value for this attempt. */
  set(context: TaskContext<unknown>, value: Value): void;
  /** Returns the value of this attempt. Throws if no middleware has set it. */
  get(context: TaskContext<unknown>): Value;
};

/** Creates the context that a handler is called with. */
export function createContext(
  attempt: TaskAttempt,
  input: unknown,
  parts: AttemptParts,
): TaskContext<unknown> {
  return new AttemptContext(attempt, input, parts);
}

/**
 * Declares a value that middleware sets and handlers get. It is kept beside the context, so that
 * its type needs no global declaration and two libraries cannot collide on a name.
 */
export function contextValue<Value>(name: string): ContextValue<Value> {
  const values = new WeakMap<TaskContext<unknown>, { value: Value }>();
  return {
    set: (context, value) => void values.set(context, { value }),
    get(context) {
      const found = values.get(context);
      if (found) return found.value;
      throw new FlotillaError(
        "invalid_middleware",
        `no middleware has set \`${name}\` for the task "${context.name}": is it in \`middleware\` of the config?`,
      );
    },
  };
}

/** Checks and serialises a result. Synchronous unless it has new files, or the schema is asynchronous. */
export function resultText(
  attempt: TaskAttempt,
  result: unknown,
  { maxResultBytes, files }: Pick<AttemptParts, "maxResultBytes" | "files">,
): string | Promise<string> {
  const taken = files.takeResult(result, attempt.claim);
  return taken instanceof Promise
    ? taken.then((value: unknown) => checkedText(attempt, value, maxResultBytes))
    : checkedText(attempt, taken, maxResultBytes);
}

function checkedText(
  { claim, handler }: TaskAttempt,
  result: unknown,
  maxBytes: number,
): string | Promise<string> {
  const what = `the result of "${claim.name}"`;
  const encode = (value: unknown) => encodeJson(what, value, { maxBytes });
  const checked = check(handler.output, result, what, "invalid_output");
  return checked instanceof Promise ? checked.then(encode) : encode(checked);
}

export function notCommitted(name: string): FlotillaError {
  const message = `the handler of "${name}" called \`complete\`, but its transaction wasn't committed`;
  return new FlotillaError("not_committed", message);
}

/**
 * Most handlers read only their input, and building the rest would cost more than a short task. So
 * shared getters build it on demand. The functions they return need no `this`, because handlers
 * destructure contexts.
 */
class AttemptContext implements TaskContext<unknown> {
  readonly input: unknown;
  readonly taskId: string;
  readonly name: string;
  readonly attempt: number;
  readonly snoozes: number;
  readonly scheduledAtMs: number | undefined;
  readonly token: number;
  readonly #running: TaskAttempt;
  readonly #parts: AttemptParts;

  constructor(attempt: TaskAttempt, input: unknown, parts: AttemptParts) {
    const { claim } = attempt;
    this.input = input;
    this.taskId = claim.taskId;
    this.name = claim.name;
    this.attempt = claim.failures + 1;
    this.snoozes = claim.snoozes;
    this.scheduledAtMs = claim.scheduledAtMs;
    this.token = claim.token;
    this.#running = attempt;
    this.#parts = parts;
  }

  get signal(): AbortSignal {
    return signalOf(this.#running);
  }

  get begunBy(): number {
    return begunBy(this.#running);
  }

  get progress(): TaskContext<unknown>["progress"] {
    const attempt = this.#running;
    const { progress } = this.#parts;
    return (value: Json) => {
      if (!attempt.ended) progress.save(attempt, encodeJson("progress", value));
    };
  }

  get parents(): TaskContext<unknown>["parents"] {
    const { database } = this.#parts;
    return () => readParents(database, this.taskId);
  }

  get lastProgress(): TaskContext<unknown>["lastProgress"] {
    const attempt = this.#running;
    const { progress } = this.#parts;
    return () => progress.last(attempt);
  }

  get complete(): TaskContext<unknown>["complete"] {
    const attempt = this.#running;
    const parts = this.#parts;
    return (tx, result) => completeWithin(attempt, tx, result, parts);
  }

  get files(): TaskContext<unknown>["files"] {
    return this.#parts.files.ofTask(this.taskId);
  }

  get step(): TaskContext<unknown>["step"] {
    return stepsOf(this.#running, this.#parts).step as TaskSteps;
  }

  get log(): Logger {
    const { log, podId } = this.#parts;
    return withFields(log, taskFields(this.#running, podId));
  }
}

/**
 * Completes a task within a transaction of its handler. The handler decides whether that commits,
 * so from here on only the row shows how the attempt ended.
 */
async function completeWithin<Result>(
  attempt: TaskAttempt,
  tx: unknown,
  result: Result,
  parts: AttemptParts,
): Promise<Result> {
  const { claim } = attempt;
  const { database } = parts;
  if (newFilesIn(result).size > 0) {
    throw new FlotillaError(
      "unsupported",
      "new files aren't stored within your transaction: before it begins, store them by `files.store(file(…))`, and give what that returns",
    );
  }
  const transaction = database.within(tx);
  const stored = await resultText(attempt, result, parts);
  if (attempt.ended) throw claimLost(claim.taskId);
  attempt.completing = true;
  const finish = completedFinish(claim, stored, startedAtOf(attempt));
  const [changed] = claim.hasDependents ? [[]] : await transaction.write([finishTasks([finish])]);
  if (changed!.length > 0) return result;
  // Either the task has dependents or its claim is lost. Dependents are woken when the caller
  // commits.
  const finishes = [{ ...finish, hasDependents: true }];
  const statements = [finishTasks(finishes), ...wakeDependentsAfter(finishes)];
  const [finished] = await transaction.write(statements, { notify: true });
  if (finished!.length === 0) throw claimLost(claim.taskId);
  return result;
}

function claimLost(taskId: string): FlotillaError {
  return new FlotillaError(
    "claim_lost",
    `this attempt no longer holds task ${taskId}: roll back the transaction`,
  );
}
