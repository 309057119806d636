import { FlotillaError, hasCode, transientCodes } from "../../base/errors.ts";
import { type Logger, withFields } from "../../base/log.ts";
import { isJsonObject } from "../../base/json.ts";
import { contextKey } from "../../steps/key.ts";
import type { ModelCallOptions } from "../../steps/model-calls.ts";
import {
  type StepChildState,
  type StepJournal,
  type StepPark,
  type Steps,
  type StepWrite,
  taskStepLimits,
  type WaitHost,
} from "../../steps/model.ts";
import { findStep, readStepValue, toStoredStep } from "../../steps/sql.ts";
import { createSteps } from "../../steps/steps.ts";
import type { Row } from "../../store/database.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import type { Statement } from "../../store/sql.ts";
import { throttleMiddleware } from "../../throttles/model-middleware.ts";
import { throttleKeyOf } from "../claim/throttle.ts";
import { prepareTask } from "../enqueue/options.ts";
import type { StepResult } from "../finish/finish-writer.ts";
import type { AttemptOutcome, AttemptParts, TaskAttempt, TaskContract } from "../model.ts";
import { lenientJson } from "../rows.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { firstSignal } from "../sql/signals.ts";
import { readStartedChildren, readStepChildren } from "../sql/step-children.ts";
import { type StepChildren, storeSteps, taskPart, type TaskStep } from "../sql/steps.ts";
import { activeTracer, stepTrace } from "../trace.ts";
import { signalOf, stopAttempt, stopError, taskFields } from "./attempt.ts";

const noError = { code: "internal", message: "no error was stored" };
// Nothing was stored before the first claim of a task.
const firstToken = 1;

/** What tells the steps of a task from those of a run's transition. */
export type StepOwner = {
  /** The part of the journal: that of the rows that were found, where it has had several names. */
  part: string;
  /** The names that the part may have. */
  readonly names: readonly string[];
  /** What the keys for downstreams begin with. */
  readonly keyOwner: () => string;
  /** Whether earlier attempts may have stored rows. */
  readonly hasRows: boolean;
  readonly isOver: () => boolean;
  readonly log: () => Logger;
  /** Stores a row, together with the children that it starts. */
  readonly store: (write: StepWrite, children?: StepChildren) => Promise<StepResult>;
  /** The row with its fences, for a transaction of the caller's. */
  readonly toStep: (write: StepWrite) => TaskStep;
  /** Called when a row is known to be stored by a transaction of the caller's. */
  readonly onCommitted?: () => Promise<void>;
  readonly waits?: boolean;
};

/** The steps of an attempt at a task. */
export function stepsOf(attempt: TaskAttempt, parts: AttemptParts): Steps {
  attempt.steps ??= attemptSteps(attempt, parts, taskOwner(attempt, parts));
  return attempt.steps;
}

/** The version of the code that has stored a task's first step, or is about to. */
export function begunBy({ claim, handler }: TaskAttempt): number {
  return claim.versions?.begunBy ?? handler.version ?? 0;
}

function taskOwner(attempt: TaskAttempt, parts: AttemptParts): StepOwner {
  const { taskId, token, versions } = attempt.claim;
  const { version = 0 } = attempt.handler;
  let highest = versions?.highest ?? 0;
  const toStep = (step: StepWrite): TaskStep => ({
    taskId,
    token,
    step,
    ...(version > highest && { raises: { version, begunBy: begunBy(attempt) } }),
  });
  return {
    part: taskPart,
    names: [taskPart],
    keyOwner: () => taskId,
    hasRows: token > firstToken,
    isOver: () => attempt.ended,
    log: () => withFields(parts.log, taskFields(attempt, parts.podId)),
    async store(step, children) {
      const result = await parts.steps.storeStep({
        ...toStep(step),
        ...(children && { children }),
      });
      if (result.type === "stored") highest = Math.max(highest, version);
      return result;
    },
    toStep,
    waits: true,
  };
}

/** The steps of an attempt at a task, or at a transition of a run. */
export function attemptSteps(attempt: TaskAttempt, parts: AttemptParts, owner: StepOwner): Steps {
  const { claim } = attempt;
  const { clock, graceMs, stopping, onEvent } = parts.steps;
  const { log } = owner;
  const storeWrite = storesFor(attempt, parts, owner);
  return createSteps({
    get ownerId() {
      return owner.keyOwner();
    },
    journal: journalOf(attempt, parts, owner, storeWrite),
    limits: { ...taskStepLimits, maxValueBytes: parts.maxResultBytes },
    clock,
    graceMs,
    log,
    signal: () => signalOf(attempt),
    refusal() {
      if (owner.isOver()) return attemptEnded(claim.taskId);
      if (attempt.stopReason !== undefined) return stopError(attempt);
      return stopping() ? stopError(attempt) : undefined;
    },
    // A step may be given more time than the attempt has left.
    onBegun: (timeoutMs) => giveTime(attempt, clock.monotonic() + timeoutMs + graceMs),
    onEnded: (outcome) => onEvent({ type: "step", name: claim.name, outcome }),
    ...(activeTracer() && { trace: stepTrace }),
    ...(owner.waits && { waits: waitsFor(attempt, parts, storeWrite) }),
    setsAside: true,
    onUncommitted: () => (attempt.rowHeld = true),
    modelCalls: modelCallsOfTask(attempt, parts),
  });
}

/** The task's throttle holds for each call to a model, and its own permit is taken over by the first. */
function modelCallsOfTask(
  { claim, handler }: TaskAttempt,
  { steps }: AttemptParts,
): ModelCallOptions {
  const { prices, onEvent } = steps;
  const { throttle } = handler;
  const calls: ModelCallOptions = {
    prices,
    onTokens: (used, { again }) => onEvent({ type: "tokens", saved: again, ...used }),
  };
  if (throttle === undefined) return calls;
  const key = throttleKeyOf(throttle, claim.name, claim.payload);
  return { ...calls, middleware: throttleMiddleware(throttle.declared, key) };
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

/** Finds signals, and starts and reads the children of an attempt's steps. */
function waitsFor(attempt: TaskAttempt, parts: AttemptParts, storeWrite: StoreWrite): WaitHost {
  const { taskId, trace } = attempt.claim;
  const { database, maxResultBytes: maxPayloadBytes } = parts;
  const { ids } = parts.steps;
  const read = (statement: Statement) =>
    readWhileRunning(() => database.read(statement), attempt, parts);
  return {
    async nextSignal(name) {
      const [row] = await read(firstSignal(taskId, [name]));
      return row && { signalId: row["signal_id"], payload: lenientJson(row["payload"]) };
    },
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
      return (step) => storeWrite(step, { rows, again });
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

type StoreWrite = (write: StepWrite, children?: StepChildren) => Promise<void>;

/** Stores a step. Rejects if another pod has the task by now. */
function storesFor(
  attempt: TaskAttempt,
  { steps: { clock } }: AttemptParts,
  owner: StepOwner,
): StoreWrite {
  return async (write, children) => {
    if (owner.isOver()) throw attemptEnded(attempt.claim.taskId);
    const { type } = await owner.store(write, children);
    if (type === "lost") throw claimLost(attempt);
    giveTime(attempt, clock.monotonic() + attempt.timeoutMs);
  };
}

function claimLost(attempt: TaskAttempt): FlotillaError {
  stopAttempt(attempt, "claim_lost");
  return stopError(attempt);
}

/** The attempt's time counts from its last stored step, as its attempts do. */
function giveTime(attempt: TaskAttempt, untilMs: number): void {
  if (attempt.stopReason === undefined) attempt.actAtMs = Math.max(attempt.actAtMs, untilMs);
}

function journalOf(
  attempt: TaskAttempt,
  parts: AttemptParts,
  owner: StepOwner,
  store: StoreWrite,
): StepJournal {
  const { database } = parts;
  const { readSteps } = parts.steps;
  const { taskId: ownerId, token } = attempt.claim;
  const read = (ask: Statement) => readWhileRunning(() => database.read(ask), attempt, parts);

  /** The rows of the first name that has any. */
  const readRows = async () => {
    for (const part of owner.names) {
      const found = await readWhileRunning(() => readSteps({ ownerId, part }), attempt, parts);
      if (found.length === 0) continue;
      owner.part = part;
      return found.map(toStoredStep);
    }
    return [];
  };

  return {
    read: owner.hasRows ? readRows : undefined,
    async readValue(key) {
      const [row] = await read(readStepValue({ ownerId, part: owner.part }, key));
      if (row) return row["value"] as string;
      throw new FlotillaError("step_changed", `the stored step "${key}" is gone`, {
        details: { step: key },
      });
    },
    store,
    async storeWithin(tx, write) {
      const [written] = await database.within(tx).write(storeSteps([owner.toStep(write)]));
      if (written!.length === 0) throw claimLost(attempt);
    },
    async isStored({ key, seq }) {
      const found = await read(findStep({ ownerId, part: owner.part }, { key, seq, token }));
      if (found.length > 0 && !owner.isOver()) await owner.onCommitted?.();
      return found.length > 0;
    },
  };
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
