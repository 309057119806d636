import { aloneAfterDeaths } from "../../base/death-limit.ts";
import { yearMs } from "../../base/durations.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf, snooze } from "../../base/errors.ts";
import type { Backoff } from "../../base/backoff.ts";
import type { Ids } from "../../base/ids.ts";
import { defaultMaxBytes, encodeJson, type Json } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { checkNumber } from "../../base/options.ts";
import type { Random } from "../../base/random.ts";
import { parseStored } from "../../store/codec/codec.ts";
import type { Database } from "../../store/database.ts";
import { createClaimCalls } from "./claim.ts";
import { createAttemptFinisher } from "../finish/finish.ts";
import { createFinishWriter } from "../finish/finish-writer.ts";
import { readHeldClaims } from "../run/held-claims.ts";
import type { Claim } from "../rows.ts";
import { startAttempt, stopAttempt } from "../run/attempt.ts";
import { handleDefaults } from "../task.ts";
import { dependencyFailedOutcome } from "../dependencies.ts";
import type { TaskAttempt, AttemptOutcome, TaskHandler } from "../model.ts";

/** A task that the caller holds until it reports an outcome or loses the claim. */
export type ClaimedTask = {
  readonly taskId: string;
  readonly name: string;
  readonly input: Json;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Grows with every claim. Pass it to systems that can reject writes with an older token. */
  readonly token: number;
  /** Aborts when the claim is lost or the task is to be cancelled. */
  readonly signal: AbortSignal;
};

/** `stored` if the outcome was stored, `lost` if another pod has the task by now. */
export type ClaimResult = "stored" | "lost";

export type LostReason = "claim_lost" | "cancel";

/**
 * Claims for callers with a loop of their own, with the same statements and the same fencing as a
 * pod.
 */
export type Claimer = {
  readonly podId: string;
  /**
   * Claims up to `limit` due tasks; may return none, and does while the pod drains. Rejects while the
   * store is unavailable.
   */
  claim(limit: number): Promise<ClaimedTask[]>;
  /** Completes the task. Resolves when that is stored, however long the store is unavailable. */
  complete(claim: ClaimedTask, result?: unknown): Promise<ClaimResult>;
  /** Counts a failed attempt. The task is retried later or fails for good. */
  fail(claim: ClaimedTask, error: unknown): Promise<ClaimResult>;
  /**
   * Releases the task for any pod to claim, without counting the attempt. A task that was cancelled
   * ends as cancelled.
   */
  release(claim: ClaimedTask): Promise<ClaimResult>;
  /** Releases the task for any pod to claim after a delay, without counting the attempt. */
  reschedule(claim: ClaimedTask, delayMs: number): Promise<ClaimResult>;
  /** Claims without an outcome yet. */
  readonly held: readonly ClaimedTask[];
  /** Releases all held claims and leaves the fleet. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

export type ClaimerParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  names: readonly string[];
  /** How many attempts a task gets that sets no number itself. Default 3. */
  attempts?: number;
  backoff?: Backoff;
  pollMs?: number;
  maxResultBytes?: number;
  /** Called once when a held task went to another pod, or is to be cancelled. */
  onLost?: (claim: ClaimedTask, reason: LostReason) => void;
  /** The concurrency limit per key of a name, as declared in code. */
  limitOf?: (name: string) => number | undefined;
  onAbandoned?: (call: number) => void;
  /** Whether an operator wants it to claim nothing. Default: no. */
  isDraining?: () => boolean;
  log?: Logger;
};

type HeldClaim = { readonly attempt: TaskAttempt; readonly task: ClaimedTask };

const maxClaimLimit = 1_000;
const maxCalls = 4;

/** Creates a claimer, which also polls for lost and cancelled claims. */
export function createClaimer(parts: ClaimerParts): Claimer {
  const { podId, database, clock, names, log = silentLogger, pollMs = 1_000 } = parts;
  const { attempts = handleDefaults.attempts, backoff = {}, onLost = () => {} } = parts;
  const { maxResultBytes = defaultMaxBytes, onAbandoned = () => {} } = parts;
  const givingUp = new AbortController();
  const { signal } = givingUp;
  const held = new Map<ClaimedTask, HeldClaim>();
  const releasing = new Set<Promise<void>>();
  const { finishAttempt } = createAttemptFinisher({
    ...parts,
    finishWriter: createFinishWriter({ ...parts, signal }),
    signal,
  });
  const claimCalls = createClaimCalls({
    ...parts,
    log,
    signal,
    onAbandoned,
    onReleasing(release) {
      releasing.add(release);
      void release.finally(() => releasing.delete(release));
    },
  });
  let calls: Promise<unknown> = Promise.resolve();
  let reserved: string | undefined;
  let stopped: Promise<void> | undefined;
  let cancelPoll = () => {};

  const runsAlone = () => [...held.values()].some(({ attempt }) => isAlone(attempt.claim));

  const claimNow = async (limit: number): Promise<ClaimedTask[]> => {
    if (stopped) throw new FlotillaError("closed", "the claimer was stopped");
    const claimedTasks: ClaimedTask[] = [];
    for (let tries = 0; tries < maxCalls && claimedTasks.length < limit; tries++) {
      if (parts.isDraining?.()) break;
      if (runsAlone() || (reserved !== undefined && held.size > 0)) break;
      const alone = reserved;
      reserved = undefined;
      const ids = [...held.values()].map(({ attempt }) => attempt.claim.taskId);
      const count = alone === undefined ? limit - claimedTasks.length : 1;
      const claimed = await claimCalls
        .claim({ limit: count, reserved: alone, held: ids })
        .catch((error: unknown) => {
          if (claimedTasks.length === 0) throw error;
        });
      reserved = claimed?.reserved;
      claimedTasks.push(...(claimed?.claims ?? []).flatMap((claim) => hold(claim) ?? []));
      // Limited tasks, and tasks that were released meanwhile, need another call.
      if (claimed?.nextDueMs !== 0) break;
    }
    return claimedTasks;
  };

  const hold = (claim: Claim): ClaimedTask | undefined => {
    const attempt = startAttempt(claim, handlerOf(claim.name), clock.monotonic());
    attempt.controller = new AbortController();
    if (claim.dependencyFailed) {
      // A dependency did not complete, so the task must not run.
      const outcome = dependencyFailedOutcome(database, claim.taskId);
      void outcome.then((unmet) => finishAttempt(attempt, unmet)).catch(() => {});
      return undefined;
    }
    let input: Json;
    try {
      input = parseStored(claim.payload) as Json;
    } catch (error) {
      const what = `the stored payload of "${claim.name}" isn't JSON`;
      const isUndecoded = hasCode(error, "codec_failed");
      const thrown = isUndecoded ? error : new FlotillaError("invalid_input", what);
      void finishAttempt(attempt, { type: "threw", thrown }).catch(() => {});
      return undefined;
    }
    const task: ClaimedTask = {
      taskId: claim.taskId,
      name: claim.name,
      input,
      attempt: claim.failures + 1,
      token: claim.token,
      signal: attempt.controller.signal,
    };
    attempt.begun = true;
    held.set(task, { attempt, task });
    return task;
  };

  const handlerOf = (name: string): TaskHandler => ({
    name,
    input: undefined,
    output: undefined,
    options: { attempts, timeoutMs: Infinity, backoff },
    run: () => {},
  });

  const finishClaim = async (claim: ClaimedTask, outcome: AttemptOutcome): Promise<ClaimResult> => {
    const heldClaim = held.get(claim);
    if (!heldClaim) {
      const what = `the claim of task ${claim?.taskId} isn't held here: it has ended already`;
      throw new FlotillaError("conflict", what);
    }
    heldClaim.attempt.ended = true;
    held.delete(claim);
    const cancelled = heldClaim.attempt.stopReason === "cancel" && outcome.type !== "returned";
    const { finished } = await finishAttempt(
      heldClaim.attempt,
      cancelled ? { type: "cancelled" } : outcome,
    );
    return finished.type === "lost" ? "lost" : "stored";
  };

  const pollHeld = async (): Promise<void> => {
    const attempts = [...held.values()].map(({ attempt }) => attempt);
    const { stops } = await readHeldClaims(database, { attempts, podId });
    for (const { attempt, reason } of stops) {
      const task = [...held.values()].find((each) => each.attempt === attempt)?.task;
      if (!task || (reason !== "claim_lost" && reason !== "cancel")) continue;
      stopAttempt(attempt, reason);
      onLost(task, reason);
    }
  };

  const poll = () => {
    cancelPoll = clock.after(pollMs, () => {
      pollHeld()
        .catch((error: unknown) => {
          log.debug({ pod: podId, error: messageOf(error) }, "reading held claims failed");
        })
        .finally(() => (stopped ? undefined : poll()));
    });
  };
  if (names.length > 0) poll();

  const stop = async (): Promise<void> => {
    cancelPoll();
    await calls.catch(() => {});
    const releases = [...held.keys()].map((claim) => finishClaim(claim, { type: "interrupted" }));
    await Promise.all([...releases, ...releasing]).catch((error: unknown) => {
      log.error({ pod: podId, error: messageOf(error) }, "releasing claims failed");
    });
    givingUp.abort();
  };

  return {
    podId,
    claim(limit) {
      checkNumber("limit", limit, { min: 1, max: maxClaimLimit });
      // One call at a time, because the number of an abandoned call is a floor for all earlier
      // ones.
      const call = calls.then(
        () => claimNow(limit),
        () => claimNow(limit),
      );
      calls = call;
      return call;
    },
    async complete(claim, result = null) {
      const text = encodeJson(`the result of "${claim.name}"`, result, {
        maxBytes: maxResultBytes,
      });
      return finishClaim(claim, { type: "returned", result: text });
    },
    fail: (claim, error) => finishClaim(claim, { type: "threw", thrown: error }),
    release: (claim) => finishClaim(claim, { type: "interrupted" }),
    async reschedule(claim, delayMs) {
      checkNumber("delayMs", delayMs, { min: 1, max: yearMs });
      return finishClaim(claim, { type: "threw", thrown: snooze(delayMs) });
    },
    get held() {
      return [...held.keys()];
    },
    stop: () => (stopped ??= stop()),
    [Symbol.asyncDispose]: () => (stopped ??= stop()),
  };
}

function isAlone({ deaths }: Claim): boolean {
  return deaths >= aloneAfterDeaths;
}
