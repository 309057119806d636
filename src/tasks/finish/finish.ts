import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { untilMended } from "../../store/retry.ts";
import { type Driven, type Running, taskFields } from "../run/attempt.ts";
import type { Reporting } from "../run/events.ts";
import type { Progress } from "../run/progress.ts";
import { notCommitted } from "../run/context.ts";
import type { Finish } from "../sql/finish.ts";
import type { Finished, Finishing } from "./finish-writer.ts";
import { completion, type Ending, settle, withFollowUp } from "./outcome.ts";

export type Conclusion = { readonly finish: Finish; readonly finished: Finished };

type Concluding = ReturnType<typeof createConcluding>;

type ConcludingParts = {
  finishing: Finishing;
  random: Random;
  /** Makes the ids of what follows failures. */
  ids: Ids;
  clock: Clock;
  signal: AbortSignal;
  podId: string;
  log?: Logger;
};

const lost: Finished = { type: "lost" };
// A store that refuses every word about a task may be mended, but nobody need hurry to ask.
const refusedAgain = { baseMs: 1_000, maxMs: 60_000 };
// Nobody knows whether another attempt fares better, and each may be dear.
const givenBackMs = 60_000;

/** Decides what an ending means and stores it; decides again where the row has been woken since. */
export function createConcluding(parts: ConcludingParts) {
  const { finishing, random, ids, clock, signal, podId, log = silentLogger } = parts;

  const storeAs = async (
    run: Running,
    ending: Ending,
    { delayMs }: Pick<Partial<Finish>, "delayMs"> = {},
  ): Promise<Conclusion> => {
    for (let decided = ending; ;) {
      const claim = { ...run.claim, wake: run.wake };
      const ended = settle(claim, decided, run.handler.options, random);
      const settled = withFollowUp(ended, claim, run.handler, ids);
      const { gate, awaited } = claim;
      const finish = {
        ...settled,
        ...(awaited && { awaited }),
        ...(gate && { gate }),
        ...(delayMs !== undefined && settled.delayMs === 0 && { delayMs }),
      };
      const how = { apart: run.completing };
      const finished = run.stopped === "claim_lost" ? lost : await finishing.store(finish, how);
      if (finished.type !== "woken") return { finish, finished };
      run.wake = finished.wake;
      if (finished.cancelRequested) decided = { type: "cancelled" };
    }
  };

  /**
   * Whatever the store refuses for good, as it may what its encoding doesn't have, would leave the task
   * with this pod for ever. So less and less is said of it: that it has failed and why, that it has
   * failed, and at last only that somebody may have it. Even that may be refused, by a constraint of
   * somebody's; then it is said again later, until the store takes it or the pod ends.
   */
  const storeSomehow = async (
    run: Running,
    ending: Ending,
    first = () => storeAs(run, ending),
  ): Promise<Conclusion> => {
    const what = ending.type === "returned" ? "result" : "ending";
    let refusal = "";
    const lessAndLess = [
      () => storeAs(run, ending),
      () =>
        storeAs(run, refused(`the store refused the ${what} of "${run.claim.name}": ${refusal}`)),
      () => storeAs(run, refused(`the store refused the ${what}; the pod's log says why`)),
      () => storeAs(run, { type: "interrupted" }, { delayMs: givenBackMs }),
    ];
    for (let tries = 1, at = 0; ; tries++) {
      try {
        return await (tries === 1 ? first() : lessAndLess[at]!());
      } catch (error) {
        if (signal.aborted || hasCode(error, "closed")) throw error;
        // Where it isn't known whether it was stored, the same is said until it is.
        const isKnown = !hasCode(error, ...untilMended);
        if (isKnown) {
          refusal = messageOf(error);
          const fields = { ...taskFields(run, podId), error: refusal };
          log.error(fields, "the store refused how an attempt ended");
          at = (at + 1) % lessAndLess.length;
        }
        if (!isKnown || at === 0) {
          await sleep(clock, backoffMs(tries, random, refusedAgain), signal);
        }
      }
    }
  };

  /** Where the handler's own transaction has completed the task, that is how it ended. */
  const committed = async ({ claim }: Running): Promise<Conclusion | undefined> => {
    const row = (await finishing.look([claim.taskId])).get(claim.taskId);
    if (row?.["status"] !== "completed" || Number(row["claim_token"]) !== claim.token) return;
    // That transaction wasn't ours to let others go on in.
    if (claim.gate) await finishing.madeRoom(claim.gate.group);
    return { finish: completion(claim, ""), finished: { type: "stored" } };
  };

  const conclude = async (run: Running, ending: Ending): Promise<Conclusion> => {
    if (!run.completing) return storeSomehow(run, ending);
    const seen = await committed(run);
    if (seen) return seen;
    // It was rolled back, or is open yet; then this write waits for it, and is refused if it commits.
    const thrown = ending.type === "returned" ? notCommitted(run.claim.name) : undefined;
    const conclusion = await storeSomehow(run, thrown ? { type: "threw", thrown } : ending);
    const late = conclusion.finished.type === "lost" ? await committed(run) : undefined;
    return late ?? conclusion;
  };

  /**
   * The short way for nearly all: a result that nobody waits for, of a task behind no gate. There is
   * nothing to decide about it, also not later, since a completion asks for no wake. Gives whether it
   * was taken; if so, `on` is told once.
   */
  const complete = (run: Running, ending: Ending, on: OnConcluded): boolean => {
    const { claim, completing, stopped } = run;
    if (ending.type !== "returned" || completing || stopped === "claim_lost") return false;
    if (claim.gate || claim.awaited) return false;
    const finish = completion(claim, ending.result);
    finishing.put(
      finish,
      (finished) => on.concluded(run, { finish, finished }),
      (error) => {
        storeSomehow(run, ending, () => Promise.reject(error)).then(
          (conclusion) => on.concluded(run, conclusion),
          (failure) => on.failed(run, failure),
        );
      },
    );
    return true;
  };

  return { conclude, complete };
}

/** Told of what became of attempts. Must not throw. */
type OnConcluded = {
  concluded(run: Running, conclusion: Conclusion): void;
  failed(run: Running, error: unknown): void;
};

function refused(message: string): Ending {
  return { type: "threw", thrown: new FlotillaError("payload_not_storable", message) };
}

type EndingsParts = {
  concluding: Concluding;
  progress: Pick<Progress, "concluded" | "leave">;
  report: Pick<Reporting, "ended" | "notStored">;
  /** Where what can't be stored is left, for people. */
  leftTo: string;
  /** Told when a task is there to be claimed again, now or when it is due. */
  onPending: () => void;
  /** Told of tasks and runs that have ended for good. */
  onEnded: (taskId: string) => void;
  /** Told once of each, when it is stored or never will be from here. */
  onSettled: (run: Running) => void;
};

/** Stores how attempts ended, and says what became of that. */
export function createEndings(
  parts: EndingsParts,
): (run: Running, ending: Ending | Driven) => void {
  const { concluding, progress, report, onSettled } = parts;

  const on: OnConcluded = {
    concluded(run, conclusion) {
      try {
        tell(run, conclusion);
      } catch (error) {
        report.notStored(run, error, parts.leftTo);
      } finally {
        onSettled(run);
      }
    },
    failed(run, error) {
      report.notStored(run, error, parts.leftTo);
      onSettled(run);
    },
  };

  const tell = (run: Running, conclusion: Conclusion) => {
    progress.concluded(run, conclusion);
    report.ended(run, conclusion);
    goOn(conclusion);
  };

  const goOn = ({ finish: { status, taskId } }: Conclusion) => {
    // A run that was to go on, but whose pod was taken for dead, is there for everybody again.
    if (status === "pending" || status === "claimed") parts.onPending();
    else parts.onEnded(taskId);
  };

  const store = async (run: Running, ending: Ending): Promise<void> => {
    let conclusion: Conclusion;
    try {
      if (ending.type !== "returned") await progress.leave(run);
      conclusion = await concluding.conclude(run, ending);
    } catch (error) {
      return on.failed(run, error);
    }
    on.concluded(run, conclusion);
  };

  /** Whoever drives a run has stored all of it, and told of it. */
  const driven = (run: Running, ending: Driven) => {
    if (ending.type === "not_stored") {
      // The outbox is for tasks.
      report.notStored(run, ending.error, "left to recovery");
      return onSettled(run);
    }
    progress.concluded(run, ending);
    // Nothing that is held is claimed by the same pod, so it is let go before that looks.
    onSettled(run);
    goOn(ending);
  };

  return (run, ending) => {
    if (ending.type === "driven" || ending.type === "not_stored") return driven(run, ending);
    if (!concluding.complete(run, ending, on)) void store(run, ending);
  };
}
