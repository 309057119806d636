import { FlotillaError, hasCode, transientCodes } from "../../base/errors.ts";
import { withFields } from "../../base/log.ts";
import { isJsonObject } from "../../base/json.ts";
import { contextKey } from "../../steps/key.ts";
import type { ModelCallOptions } from "../../steps/model-calls.ts";
import {
  type StepChildState,
  type StepJournal,
  type StepPark,
  taskStepLimits,
  type WaitHost,
} from "../../steps/model.ts";
import { findStep, readSteps, readStepValue, toStoredStep } from "../../steps/sql.ts";
import { createSteps, type Steps } from "../../steps/steps.ts";
import type { Database, Row } from "../../store/database.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import type { Statement } from "../../store/sql.ts";
import { throttleMiddleware } from "../../throttles/model-middleware.ts";
import { throttleKeyOf } from "../claim/throttle.ts";
import { prepareTask } from "../enqueue/options.ts";
import type { AttemptOutcome, AttemptParts, TaskAttempt, TaskContract } from "../model.ts";
import { lenientJson } from "../rows.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { firstSignal } from "../sql/signals.ts";
import { readStartedChildren, readStepChildren } from "../sql/step-children.ts";
import { storeSteps, taskPart, type TaskStep } from "../sql/steps.ts";
import { signalOf, stopAttempt, stopError, taskFields } from "./attempt.ts";

const noError = { code: "internal", message: "no error was stored" };
// Nothing was stored before the first claim of a task.
const firstToken = 1;

/** The steps of an attempt. */
export function stepsOf(attempt: TaskAttempt, parts: AttemptParts): Steps {
  attempt.steps ??= stepsFor(attempt, parts);
  return attempt.steps;
}

function stepsFor(attempt: TaskAttempt, parts: AttemptParts): Steps {
  const { claim } = attempt;
  const { clock, graceMs, stopping, onEvent } = parts.steps;
  return createSteps({
    ownerId: claim.taskId,
    journal: journalOf(attempt, parts),
    limits: { ...taskStepLimits, maxValueBytes: parts.maxResultBytes },
    clock,
    graceMs,
    log: () => withFields(parts.log, taskFields(attempt, parts.podId)),
    signal: () => signalOf(attempt),
    refusal() {
      if (attempt.ended) return attemptEnded(claim.taskId);
      if (attempt.stopReason !== undefined) return stopError(attempt);
      return stopping() ? stopError(attempt) : undefined;
    },
    // A step may be given more time than the attempt has left.
    onBegun: (timeoutMs) => giveTime(attempt, clock.monotonic() + timeoutMs + graceMs),
    onEnded: (outcome) => onEvent({ type: "step", name: claim.name, outcome }),
    waits: {
      async nextSignal(name) {
        const ask = () => parts.database.read(firstSignal(claim.taskId, [name]));
        const [row] = await readWhileRunning(ask, attempt, parts);
        return row && { signalId: row["signal_id"], payload: lenientJson(row["payload"]) };
      },
      ...childrenFor(attempt, parts),
    },
    onUncommitted: () => (attempt.rowHeld = true),
    modelCalls: modelCallsOf(attempt, parts),
  });
}

/** The task's throttle holds for each call to a model, and its own permit is taken over by the first. */
function modelCallsOf({ claim, handler }: TaskAttempt, { steps }: AttemptParts): ModelCallOptions {
  const { prices } = steps;
  const { throttle } = handler;
  if (throttle === undefined) return { prices };
  const key = throttleKeyOf(throttle, claim.name, claim.payload);
  return { prices, middleware: throttleMiddleware(throttle.declared, key) };
}

/** How an attempt ends whose steps wait. */
export function parkedOutcome(
  taskId: string,
  { delayMs, awaits, children }: StepPark,
): AttemptOutcome {
  const [first, ...others] = children;
  if (first === undefined) return { type: "parked", delayMs, awaits };
  // Of several steps with children, all have to end.
  const prefix = others.length === 0 ? childPrefix(taskId, first) : `${taskId}/`;
  const isOnly = delayMs === null && awaits === null;
  return { type: "parked", delayMs, awaits: prefix, children: isOnly ? "only" : "among" };
}

/** The children of steps are found by their keys, which begin with that of their step. */
function childPrefix(taskId: string, key: string): string {
  return `${contextKey(taskId, key)}/`;
}

/** Starts and reads the children of an attempt's steps. */
function childrenFor(
  attempt: TaskAttempt,
  parts: AttemptParts,
): Pick<WaitHost, "prepareChildren" | "readChildren"> {
  const { taskId, token, trace } = attempt.claim;
  const { database, maxResultBytes: maxPayloadBytes } = parts;
  const { ids } = parts.steps;
  const read = (statement: Statement) =>
    readWhileRunning(() => database.read(statement), attempt, parts);
  return {
    async prepareChildren(key, list) {
      const prefix = childPrefix(taskId, key);
      const found = await read(readStartedChildren(taskId, prefix));
      const tenant = (found[0]?.["tenant"] ?? "default") as string;
      const rows: NewTask[] = [];
      for (const [place, [contract, input, options]] of list.entries()) {
        const given = { tenant, ...options, key: `${prefix}${place}` };
        const row = prepareTask(
          contract as TaskContract,
          input,
          given,
          { ids, maxPayloadBytes },
          trace,
        );
        rows.push({ ...(await row), parentId: taskId });
      }
      const again = found
        .filter(({ status }) => status === "failed" || status === "cancelled")
        .map((row) => ({ taskId: row["task_id"], token: Number(row["claim_token"]) }));
      const children = { rows, again };
      return (step) => storeWrite({ taskId, token, step, children }, attempt, parts);
    },
    async readChildren(key, count) {
      const found = await read(readStepChildren(taskId, childPrefix(taskId, key)));
      const byPlace = new Map(found.map((row) => [Number(row["place"]), toChildState(row)]));
      const gone = { taskId: "", name: "", status: "gone" } as const;
      return Array.from({ length: count }, (_, place) => byPlace.get(place) ?? gone);
    },
  };
}

function toChildState(row: Row): StepChildState {
  const child = { taskId: row["task_id"] as string, name: row["name"] as string };
  switch (row["status"]) {
    case "completed":
      return { ...child, status: "completed", result: lenientJson(row["result"]) };
    case "failed": {
      const error = lenientJson(row["error"]);
      const isError = isJsonObject(error) && typeof error["message"] === "string";
      const stored = isError ? (error as { code: string; message: string }) : noError;
      return { ...child, status: "failed", error: { code: stored.code, message: stored.message } };
    }
    case "cancelled":
      return { ...child, status: "cancelled" };
    default:
      return { ...child, status: "open" };
  }
}

/** Stores a step. Rejects if another pod has the task by now. */
async function storeWrite(
  write: TaskStep,
  attempt: TaskAttempt,
  { steps: { clock, storeStep } }: AttemptParts,
): Promise<void> {
  if (attempt.ended) throw attemptEnded(write.taskId);
  const { type } = await storeStep(write);
  if (type === "lost") throw claimLost(attempt);
  giveTime(attempt, clock.monotonic() + attempt.timeoutMs);
}

function claimLost(attempt: TaskAttempt): FlotillaError {
  stopAttempt(attempt, "claim_lost");
  return stopError(attempt);
}

/** The attempt's time counts from its last stored step, as its attempts do. */
function giveTime(attempt: TaskAttempt, untilMs: number): void {
  if (attempt.stopReason === undefined) attempt.actAtMs = Math.max(attempt.actAtMs, untilMs);
}

function journalOf(attempt: TaskAttempt, parts: AttemptParts): StepJournal {
  const { database } = parts;
  const { taskId, token } = attempt.claim;
  const owner = { ownerId: taskId, part: taskPart };

  const read = (ask: () => Promise<Row[]>) => readWhileRunning(ask, attempt, parts);

  return {
    read:
      token > firstToken
        ? async () => (await read(() => database.read(readSteps(owner)))).map(toStoredStep)
        : undefined,
    async readValue(key) {
      const [row] = await read(() => database.read(readStepValue(owner, key)));
      if (row) return row["value"] as string;
      throw new FlotillaError("step_changed", `the stored step "${key}" is gone`, {
        details: { step: key },
      });
    },
    store: (step) => storeWrite({ taskId, token, step }, attempt, parts),
    async storeWithin(tx, step) {
      const isStored = await storeInTransaction(database, tx, { taskId, token, step });
      if (!isStored) throw claimLost(attempt);
    },
    async isStored({ key, seq }) {
      return (await read(() => database.read(findStep(owner, { key, seq, token })))).length > 0;
    },
  };
}

async function storeInTransaction(
  database: Database,
  tx: unknown,
  step: TaskStep,
): Promise<boolean> {
  const [written] = await database.within(tx).write(storeSteps([step]));
  return written!.length > 0;
}

/** A read that fails is repeated for as long as the attempt may run. */
async function readWhileRunning(
  ask: () => Promise<Row[]>,
  attempt: TaskAttempt,
  { steps: { clock, random } }: AttemptParts,
): Promise<Row[]> {
  return callUntilAnswered(ask, {
    clock,
    random,
    mayRetry: (error) =>
      hasCode(error, ...transientCodes) && !attempt.ended && attempt.stopReason === undefined,
  });
}

function attemptEnded(taskId: string): FlotillaError {
  return new FlotillaError(
    "closed",
    `this attempt of task ${taskId} has ended: await every step before you return`,
  );
}
