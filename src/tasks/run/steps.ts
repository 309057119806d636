import { FlotillaError, hasCode, transientCodes } from "../../base/errors.ts";
import { withFields } from "../../base/log.ts";
import { type StepJournal, taskStepLimits } from "../../steps/model.ts";
import { findStep, readSteps, readStepValue, toStoredStep } from "../../steps/sql.ts";
import { createSteps, type Steps } from "../../steps/steps.ts";
import type { Database, Row } from "../../store/database.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import type { AttemptParts, TaskAttempt } from "../model.ts";
import { lenientJson } from "../rows.ts";
import { firstSignal } from "../sql/signals.ts";
import { storeSteps, taskPart, type TaskStep } from "../sql/steps.ts";
import { signalOf, stopAttempt, stopError, taskFields } from "./attempt.ts";

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
    },
    onUncommitted: () => (attempt.rowHeld = true),
  });
}

/** The attempt's time counts from its last stored step, as its attempts do. */
function giveTime(attempt: TaskAttempt, untilMs: number): void {
  if (attempt.stopReason === undefined) attempt.actAtMs = Math.max(attempt.actAtMs, untilMs);
}

function journalOf(attempt: TaskAttempt, parts: AttemptParts): StepJournal {
  const { database } = parts;
  const { taskId, token } = attempt.claim;
  const { clock, storeStep } = parts.steps;
  const owner = { ownerId: taskId, part: taskPart };

  const read = (ask: () => Promise<Row[]>) => readWhileRunning(ask, attempt, parts);

  const lost = (): FlotillaError => {
    stopAttempt(attempt, "claim_lost");
    return stopError(attempt);
  };

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
    async store(step) {
      if (attempt.ended) throw attemptEnded(taskId);
      const { type } = await storeStep({ taskId, token, step });
      if (type === "lost") throw lost();
      giveTime(attempt, clock.monotonic() + attempt.timeoutMs);
    },
    async storeWithin(tx, step) {
      if (!(await storeInTransaction(database, tx, { taskId, token, step }))) throw lost();
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
