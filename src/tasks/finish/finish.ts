import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { untilStoreRecovers } from "../../store/retry.ts";
import { type DriveResult, type TaskAttempt, taskFields } from "../run/attempt.ts";
import type { AttemptReports } from "../run/events.ts";
import type { TaskProgress } from "../run/progress.ts";
import { notCommitted } from "../run/context.ts";
import type { Finish } from "../sql/finish.ts";
import type { FinishResult, FinishWriter } from "./finish-writer.ts";
import { completedFinish, type AttemptOutcome, decideFinish, withFollowUp } from "./outcome.ts";

export type FinishedAttempt = { readonly finish: Finish; readonly finished: FinishResult };

type AttemptFinisher = ReturnType<typeof createAttemptFinisher>;

type AttemptFinisherParts = {
  finishWriter: FinishWriter;
  random: Random;
  /** Makes the ids of what follows failures. */
  ids: Ids;
  clock: Clock;
  signal: AbortSignal;
  podId: string;
  log?: Logger;
};

const lostResult: FinishResult = { type: "lost" };
// A store that refuses every word about a task may be mended, but nobody need hurry to ask.
const refusedBackoff = { baseMs: 1_000, maxMs: 60_000 };
// Nobody knows whether another attempt fares better, and each may be dear.
const releaseDelayMs = 60_000;

/** Decides what an ending means and stores it; decides again where the row has been woken since. */
export function createAttemptFinisher(parts: AttemptFinisherParts) {
  const { finishWriter, random, ids, clock, signal, podId, log = silentLogger } = parts;

  const storeAs = async (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
    { delayMs }: Pick<Partial<Finish>, "delayMs"> = {},
  ): Promise<FinishedAttempt> => {
    for (let decided = outcome; ;) {
      const claim = { ...attempt.claim, wake: attempt.wake };
      const ended = decideFinish(claim, decided, attempt.handler.options, random);
      const settled = withFollowUp(ended, claim, attempt.handler, ids);
      const { gate, hasDependents: awaited } = claim;
      const finish = {
        ...settled,
        ...(awaited && { awaited }),
        ...(gate && { gate }),
        ...(delayMs !== undefined && settled.delayMs === 0 && { delayMs }),
      };
      const how = { alone: attempt.completing };
      const finished =
        attempt.stopReason === "claim_lost" ? lostResult : await finishWriter.finish(finish, how);
      if (finished.type !== "woken") return { finish, finished };
      attempt.wake = finished.wake;
      if (finished.cancelRequested) decided = { type: "cancelled" };
    }
  };

  /**
   * Whatever the store refuses for good, as it may what its encoding doesn't have, would leave the task
   * with this pod for ever. So less and less is said of it: that it has failed and why, that it has
   * failed, and at last only that somebody may have it. Even that may be refused, by a constraint of
   * somebody's; then it is said again later, until the store takes it or the pod ends.
   */
  const storeOrDegrade = async (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
    first = () => storeAs(attempt, outcome),
  ): Promise<FinishedAttempt> => {
    const what = outcome.type === "returned" ? "result" : "ending";
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
    for (let tries = 1, at = 0; ; tries++) {
      try {
        return await (tries === 1 ? first() : fallbacks[at]!());
      } catch (error) {
        if (signal.aborted || hasCode(error, "closed")) throw error;
        // Where it isn't known whether it was stored, the same is said until it is.
        const isKnown = !hasCode(error, ...untilStoreRecovers);
        if (isKnown) {
          refusal = messageOf(error);
          const fields = { ...taskFields(attempt, podId), error: refusal };
          log.error(fields, "the store refused how an attempt ended");
          at = (at + 1) % fallbacks.length;
        }
        if (!isKnown || at === 0) {
          await sleep(clock, backoffMs(tries, random, refusedBackoff), signal);
        }
      }
    }
  };

  /** Where the handler's own transaction has completed the task, that is how it ended. */
  const readCommitted = async ({ claim }: TaskAttempt): Promise<FinishedAttempt | undefined> => {
    const row = (await finishWriter.readStates([claim.taskId])).get(claim.taskId);
    if (row?.["status"] !== "completed" || Number(row["claim_token"]) !== claim.token) return;
    // That transaction wasn't ours to let others go on in.
    if (claim.gate) await finishWriter.unblock(claim.gate.group);
    return { finish: completedFinish(claim, ""), finished: { type: "stored" } };
  };

  const finishAttempt = async (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
  ): Promise<FinishedAttempt> => {
    if (!attempt.completing) return storeOrDegrade(attempt, outcome);
    const seen = await readCommitted(attempt);
    if (seen) return seen;
    // It was rolled back, or is open yet; then this write waits for it, and is refused if it commits.
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
   * The short way for nearly all: a result that nobody waits for, of a task behind no gate. There is
   * nothing to decide about it, also not later, since a completion asks for no wake. Gives whether it
   * was taken; if so, `on` is told once.
   */
  const finishCompleted = (
    attempt: TaskAttempt,
    outcome: AttemptOutcome,
    on: FinishCallbacks,
  ): boolean => {
    const { claim, completing, stopReason: stopped } = attempt;
    if (outcome.type !== "returned" || completing || stopped === "claim_lost") return false;
    if (claim.gate || claim.hasDependents) return false;
    const finish = completedFinish(claim, outcome.result);
    finishWriter.put(
      finish,
      (finished) => on.finished(attempt, { finish, finished }),
      (error) => {
        storeOrDegrade(attempt, outcome, () => Promise.reject(error)).then(
          (finishedAttempt) => on.finished(attempt, finishedAttempt),
          (failure) => on.failed(attempt, failure),
        );
      },
    );
    return true;
  };

  return { conclude: finishAttempt, complete: finishCompleted };
}

/** Told of what became of attempts. Must not throw. */
type FinishCallbacks = {
  finished(attempt: TaskAttempt, finishedAttempt: FinishedAttempt): void;
  failed(attempt: TaskAttempt, error: unknown): void;
};

function refusedOutcome(message: string): AttemptOutcome {
  return { type: "threw", thrown: new FlotillaError("payload_not_storable", message) };
}

type FinishParts = {
  finisher: AttemptFinisher;
  progress: Pick<TaskProgress, "concluded" | "leave">;
  report: Pick<AttemptReports, "ended" | "notStored">;
  /** Where what can't be stored is left, for people. */
  leftTo: string;
  /** Told when a task is there to be claimed again, now or when it is due. */
  onPending: () => void;
  /** Told of tasks and runs that have ended for good. */
  onEnded: (taskId: string) => void;
  /** Told once of each, when it is stored or never will be from here. */
  onSettled: (attempt: TaskAttempt) => void;
};

/** Stores how attempts ended, and says what became of that. */
export function createFinish(
  parts: FinishParts,
): (attempt: TaskAttempt, outcome: AttemptOutcome | DriveResult) => void {
  const { finisher, progress, report, onSettled } = parts;

  const on: FinishCallbacks = {
    finished(attempt, finishedAttempt) {
      try {
        publish(attempt, finishedAttempt);
      } catch (error) {
        report.notStored(attempt, error, parts.leftTo);
      } finally {
        onSettled(attempt);
      }
    },
    failed(attempt, error) {
      report.notStored(attempt, error, parts.leftTo);
      onSettled(attempt);
    },
  };

  const publish = (attempt: TaskAttempt, finishedAttempt: FinishedAttempt) => {
    progress.concluded(attempt, finishedAttempt);
    report.ended(attempt, finishedAttempt);
    wakeNext(finishedAttempt);
  };

  const wakeNext = ({ finish: { status, taskId } }: FinishedAttempt) => {
    // A run that was to go on, but whose pod was taken for dead, is there for everybody again.
    if (status === "pending" || status === "claimed") parts.onPending();
    else parts.onEnded(taskId);
  };

  const finish = async (attempt: TaskAttempt, outcome: AttemptOutcome): Promise<void> => {
    let finishedAttempt: FinishedAttempt;
    try {
      if (outcome.type !== "returned") await progress.leave(attempt);
      finishedAttempt = await finisher.conclude(attempt, outcome);
    } catch (error) {
      return on.failed(attempt, error);
    }
    on.finished(attempt, finishedAttempt);
  };

  /** Whoever drives a run has stored all of it, and told of it. */
  const driven = (attempt: TaskAttempt, outcome: DriveResult) => {
    if (outcome.type === "not_stored") {
      // The outbox is for tasks.
      report.notStored(attempt, outcome.error, "left to recovery");
      return onSettled(attempt);
    }
    progress.concluded(attempt, outcome);
    // Nothing that is held is claimed by the same pod, so it is let go before that looks.
    onSettled(attempt);
    wakeNext(outcome);
  };

  return (attempt, outcome) => {
    if (outcome.type === "driven" || outcome.type === "not_stored") return driven(attempt, outcome);
    if (!finisher.complete(attempt, outcome, on)) void finish(attempt, outcome);
  };
}
