import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf, untilStoreRecovers } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import { startedAtOf, taskFields } from "../run/attempt.ts";
import type { AttemptReports } from "../run/events.ts";
import { notCommitted } from "../run/context.ts";
import type { Finish } from "../sql/finish.ts";
import { unaskedEvent } from "../sql/steps.ts";
import type { FinishResult, FinishWriter } from "./finish-writer.ts";
import { completedFinish, decideFinish, withFollowUp, withStart } from "./outcome.ts";
import type {
  FinishedAttempt,
  DriveResult,
  TaskAttempt,
  TaskProgress,
  AttemptOutcome,
} from "../model.ts";

/** The pod has given up storing the outcome. */
type NotStored = { readonly error: unknown };

type AttemptFinisher = ReturnType<typeof createAttemptFinisher>;

type AttemptFinisherParts = {
  finishWriter: FinishWriter;
  random: Random;
  /** Makes the ids of tasks that follow failures. */
  ids: Ids;
  clock: Clock;
  signal: AbortSignal;
  podId: string;
  log?: Logger;
};

const lostResult: FinishResult = { type: "lost" };
// A store that refuses every write about a task may recover, but frequent retries would not help.
const refusedBackoff = { baseMs: 1_000, maxMs: 60_000 };
// An event is shown whole.
const maxUnaskedNoted = 100;
// It is unknown whether another attempt would fare better, and each may be expensive.
const releaseDelayMs = 60_000;

/**
 * Decides the finish of an attempt and stores it; decides again if the row has been woken since.
 */
export function createAttemptFinisher(parts: AttemptFinisherParts) {
  const { finishWriter, random, ids, clock, signal, podId, log = silentLogger } = parts;

  const storeAs = async (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
    { delayMs }: Pick<Partial<Finish>, "delayMs"> = {},
  ): Promise<FinishedAttempt> => {
    for (let decided = outcome; ;) {
      const stepped = hasStepped(attempt);
      const { failures } = attempt.claim;
      const claim = { ...attempt.claim, wake: attempt.wake, failures: stepped ? 0 : failures };
      const ended = withUnasked(
        decideFinish(claim, decided, attempt.handler.options, random),
        attempt,
      );
      const decidedFinish = withStart(
        withFollowUp(ended, claim, attempt.handler, ids),
        startedAtOf(attempt),
      );
      const { limited, hasDependents } = claim;
      const finish = {
        ...decidedFinish,
        ...(hasDependents && { hasDependents }),
        ...(stepped && { stepped }),
        ...(limited && { limited }),
        ...(delayMs !== undefined && decidedFinish.delayMs === 0 && { delayMs }),
      };
      const how = { alone: attempt.completing || attempt.rowHeld };
      const finished =
        attempt.stopReason === "claim_lost" ? lostResult : await finishWriter.finish(finish, how);
      if (finished.type !== "woken") return { finish, finished };
      attempt.wake = finished.wake;
      if (finished.cancelRequested) decided = { type: "cancelled" };
      // What it waits for may be there by now.
      else if (decided.type === "parked") decided = { type: "interrupted" };
    }
  };

  /**
   * If the store refuses an outcome for good, for example because of its encoding, the task would
   * stay with this pod forever. So each further try stores less: a failure with the reason, a
   * failure without it, and at last only a release. A user's constraint may refuse even that; then
   * the tries start over with a delay, until the store accepts one or the pod ends.
   */
  const storeOrDegrade = async (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
    first = () => storeAs(attempt, outcome),
  ): Promise<FinishedAttempt> => {
    const what = outcome.type === "returned" ? "result" : "outcome";
    let refusal = "";
    const fallbacks = [
      () => storeAs(attempt, outcome),
      () =>
        storeAs(
          attempt,
          refusedOutcome(`the store refused the ${what} of "${attempt.claim.name}": ${refusal}`),
        ),
      () =>
        storeAs(attempt, refusedOutcome(`the store refused the ${what}; the pod's log says why`)),
      () => storeAs(attempt, { type: "interrupted" }, { delayMs: releaseDelayMs }),
    ];
    let tries = 0;
    const waitMs = () => backoffMs(tries, random, refusedBackoff);
    for (let at = 0; ;) {
      try {
        // If it is unknown whether a write landed, the same write is repeated until it is known.
        return await callUntilAnswered(() => (++tries === 1 ? first() : fallbacks[at]!()), {
          clock,
          random,
          signal,
          codes: untilStoreRecovers,
          waitMs,
        });
      } catch (error) {
        if (signal.aborted || hasCode(error, "closed")) throw error;
        refusal = messageOf(error);
        const fields = { ...taskFields(attempt, podId), error: refusal };
        log.error(fields, "attempt outcome refused by the store");
        at = (at + 1) % fallbacks.length;
        if (at === 0) await sleep(clock, waitMs(), signal);
      }
    }
  };

  /** If the handler's own transaction has completed the task, that is the outcome. */
  const readCommitted = async ({ claim }: TaskAttempt): Promise<FinishedAttempt | undefined> => {
    const row = (await finishWriter.readStates([claim.taskId])).get(claim.taskId);
    if (row?.["status"] !== "completed" || Number(row["claim_token"]) !== claim.token) return;
    // The handler's transaction does not unblock other tasks of the scope.
    if (claim.limited) await finishWriter.unblock(claim.limited.scope);
    return { finish: completedFinish(claim, ""), finished: { type: "stored" } };
  };

  const finishAttempt = async (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
  ): Promise<FinishedAttempt> => {
    if (!attempt.completing) return storeOrDegrade(attempt, outcome);
    const committed = await readCommitted(attempt);
    if (committed) return committed;
    // The handler's transaction was rolled back or is still open. If open, this write waits for it,
    // and is refused if it commits.
    const thrown = outcome.type === "returned" ? notCommitted(attempt.claim.name) : undefined;
    const finishedAttempt = await storeOrDegrade(
      attempt,
      thrown ? { type: "threw", thrown } : outcome,
    );
    const late =
      finishedAttempt.finished.type === "lost" ? await readCommitted(attempt) : undefined;
    return late ?? finishedAttempt;
  };

  /**
   * The fast path for nearly all attempts: a result of an unlimited task without dependents. There
   * is nothing to decide, now or later, because a completion ignores wakes. Returns whether it took
   * the outcome; if so, `onFinished` is called once.
   */
  const finishCompleted = (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
    onFinished: (attempt: TaskAttempt, result: FinishedAttempt | NotStored) => void,
  ): boolean => {
    const { claim, completing, stopReason } = attempt;
    if (outcome.type !== "returned" || completing || attempt.rowHeld || stopReason === "claim_lost")
      return false;
    if (claim.limited || claim.hasDependents) return false;
    const finished = completedFinish(claim, outcome.result, startedAtOf(attempt));
    const completed = withUnasked(finished, attempt);
    const finish = hasStepped(attempt) ? { ...completed, stepped: true } : completed;
    finishWriter.put(
      finish,
      (finished) => onFinished(attempt, { finish, finished }),
      (refused) => {
        storeOrDegrade(attempt, outcome, () => Promise.reject(refused)).then(
          (result) => onFinished(attempt, result),
          (error: unknown) => onFinished(attempt, { error }),
        );
      },
    );
    return true;
  };

  return { finishAttempt, finishCompleted };
}

/** Notes which stored steps the attempt that completes a task has not asked for. */
function withUnasked(finish: Finish, { claim, steps }: TaskAttempt): Finish {
  const unasked = steps?.unasked ?? [];
  if (finish.status !== "completed" || unasked.length === 0) return finish;
  const noted = unasked.slice(0, maxUnaskedNoted);
  const detail = JSON.stringify({ token: claim.token, count: unasked.length, steps: noted });
  return { ...finish, event: { type: unaskedEvent, attempt: claim.failures + 1, detail } };
}

/** Attempts count from the last stored step. */
function hasStepped({ steps }: TaskAttempt): boolean {
  return steps !== undefined && steps.stored > 0;
}

function refusedOutcome(message: string): AttemptOutcome {
  return { type: "threw", thrown: new FlotillaError("payload_not_storable", message) };
}

type FinishParts = {
  finisher: AttemptFinisher;
  progress: Pick<TaskProgress, "finished" | "leave">;
  report: Pick<AttemptReports, "ended" | "notStored">;
  /** Where an outcome is left that cannot be stored; part of a log line. */
  leftTo: string;
  /**
   * Called once per attempt: with the finish, or with undefined if this pod has given up storing
   * it. Must not throw.
   */
  onFinished: (attempt: TaskAttempt, finish: Finish | undefined) => void;
};

/** Stores the outcomes of attempts and reports the results. */
export function createFinish(
  parts: FinishParts,
): (attempt: TaskAttempt, outcome: AttemptOutcome | DriveResult) => void {
  const { finisher, progress, report, leftTo, onFinished } = parts;

  const publish = (attempt: TaskAttempt, result: FinishedAttempt | NotStored): void => {
    let finish: Finish | undefined;
    try {
      if ("error" in result) throw result.error;
      progress.finished(attempt, result);
      report.ended(attempt, result);
      ({ finish } = result);
    } catch (error) {
      report.notStored(attempt, error, leftTo);
    }
    onFinished(attempt, finish);
  };

  const store = async (attempt: TaskAttempt, outcome: AttemptOutcome): Promise<void> => {
    let result: FinishedAttempt | NotStored;
    try {
      if (outcome.type !== "returned") await progress.leave(attempt);
      result = await finisher.finishAttempt(attempt, outcome);
    } catch (error) {
      result = { error };
    }
    publish(attempt, result);
  };

  /** The driver has stored the run and reported it already. */
  const driven = (attempt: TaskAttempt, outcome: DriveResult): void => {
    // The outbox does not keep runs.
    if (outcome.type === "not_stored") report.notStored(attempt, outcome.error, "recovery");
    else progress.finished(attempt, outcome);
    onFinished(attempt, outcome.type === "not_stored" ? undefined : outcome.finish);
  };

  return (attempt, outcome) => {
    if (outcome.type === "driven" || outcome.type === "not_stored") return driven(attempt, outcome);
    if (!finisher.finishCompleted(attempt, outcome, publish)) void store(attempt, outcome);
  };
}
