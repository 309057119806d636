import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf, untilStoreRecovers } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { withTimeout } from "../../base/timeout.ts";
import type { Database } from "../../store/database.ts";
import { createLimitedClaims, type LimitOf } from "../concurrency/candidates.ts";
import { type KnownPauses, readPauses, unpaused } from "./pauses.ts";
import { writeUntilKnown } from "../../store/retry.ts";
import { type Claim, toClaim } from "../rows.ts";
import {
  type ClaimCall,
  claimOldest,
  claimReserved,
  claimTasks,
  type FlowVersions,
  type Frontier,
  frontierOf,
  type Level,
  levelsInUse,
  readAhead,
  type SharedNameLimit,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "../sql/claim.ts";

export type ClaimCalls = {
  /** Claims up to `limit` tasks and none that is held, or the task that was reserved. */
  claim(
    limit: number,
    reserved: string | undefined,
    held: readonly string[],
    /** The most tasks of each name to claim. */
    maxByName?: ReadonlyMap<string, number>,
    sharedLimits?: readonly SharedNameLimit[],
  ): Promise<ClaimBatch>;
  /** The pod's names that are paused, as last read. */
  readonly pausedNames: readonly string[];
};

export type ClaimBatch = {
  readonly claims: readonly Claim[];
  /** How long until the next claim is useful, if that is known. */
  readonly nextDueMs: number | undefined;
  /** A task that must run alone and is now reserved for this pod. */
  readonly reserved: string | undefined;
  /** True if no claim was made, because all names of this pod are paused. */
  readonly paused?: boolean;
};

export type ClaimCallsParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  names: readonly string[];
  flows?: FlowVersions | undefined;
  /** The concurrency limit per key of a name, as declared in code. */
  limitOf?: LimitOf;
  /**
   * Called with the number of an abandoned claim call; the heartbeat stores it as the pod's floor.
   */
  onAbandoned: (call: number) => void;
  /** Called with releases that must settle before the pod may leave. */
  onReleasing: (release: Promise<void>) => void;
  signal: AbortSignal;
  log: Logger;
};

const claimTimeoutMs = 10_000;
// Every 16th claim takes the oldest tasks first, so that low priorities progress too.
const oldestEvery = 16;

/** Makes claim calls, and releases the tasks of calls whose answer never came. */
export function createClaimCalls(parts: ClaimCallsParts): ClaimCalls {
  const { podId, database, clock, random, names, flows, onAbandoned, signal, log } = parts;
  let lastCall = 0;
  /** The newest abandoned call. An older call may be abandoned after it. */
  let abandonedUpTo = 0;
  /** When the next parked task is due, as last read. */
  let dueMs = -Infinity;
  let anyAlone = true;
  let anyLimited = false;
  /** The pauses as last read; undefined if they must be read again. */
  let pauses: KnownPauses | undefined;
  const limitedClaims = createLimitedClaims(parts);
  /** Where the last claim ended in the order of tasks, while there is a backlog. */
  let frontier: Frontier | undefined;

  // It is unknown whether the claim landed, so all that it took or may still take is released. An
  // older call in flight keeps what it has taken, or its claim is refused.
  const abandonCall = async (call: number): Promise<void> => {
    abandonedUpTo = Math.max(abandonedUpTo, call);
    onAbandoned(abandonedUpTo);
    try {
      const retryOptions = { clock, random, signal, codes: untilStoreRecovers, notify: true };
      await writeUntilKnown(database, releaseCall(podId, call), retryOptions);
    } catch (error) {
      const fields = { pod: podId, call, error: messageOf(error) };
      log.error(fields, "releasing an abandoned claim failed, left to recovery");
    }
  };

  const levelsOf = async (open: readonly string[]): Promise<Level[]> => {
    try {
      const rows = await withClaimTimeout(clock, database.read(levelsInUse(open)));
      return rows.map((row) => ({ name: row["name"], priority: Number(row["priority"]) }));
    } catch (error) {
      // Reading the priorities steps over claimed rows that are not vacuumed yet and may time out.
      // The usual claim does not.
      log.debug(
        { pod: podId, error: messageOf(error) },
        "claim by age skipped: priorities could not be read",
      );
      return [];
    }
  };

  const prepareLimited = async (call: ClaimCall, reserved: string | undefined) => {
    if (reserved !== undefined) return limitedClaims.prepareAlone(call, reserved);
    if (!anyLimited) return undefined;
    try {
      return await withClaimTimeout(clock, limitedClaims.prepare(call));
    } catch (error) {
      // Tasks without a concurrency limit need not wait for that.
      log.debug(
        { pod: podId, error: messageOf(error) },
        "claim of limited tasks skipped: candidates could not be read",
      );
      return undefined;
    }
  };

  return {
    get pausedNames() {
      const open = pauses ? unpaused(names, pauses) : names;
      return names.filter((name) => !open.includes(name));
    },
    async claim(limit, reserved, held, maxByName, sharedLimits) {
      pauses ??= await withClaimTimeout(clock, readPauses(database, podId));
      const open = unpaused(names, pauses);
      if (open.length === 0) {
        pauses = undefined;
        return { claims: [], nextDueMs: undefined, reserved: undefined, paused: true };
      }
      const knownNumber = pauses.number;
      const call = {
        podId,
        call: ++lastCall,
        names: open,
        ...(flows && { flows }),
        limit,
        held,
        pauses: knownNumber,
        ...(maxByName && { maxByName }),
        ...(sharedLimits && { together: sharedLimits }),
      };
      const levels =
        call.call % oldestEvery === 0 && reserved === undefined ? await levelsOf(open) : [];
      const pass = await prepareLimited(call, reserved);
      const inOrder = reserved === undefined && levels.length === 0;
      const continuesFrontier = inOrder && frontier !== undefined;
      const rest = { ...call, shared: pass !== undefined };
      const claiming =
        reserved !== undefined
          ? claimReserved(rest, reserved)
          : levels.length > 0
            ? claimOldest(rest, levels)
            : claimTasks({ ...rest, ...(frontier && { from: frontier }) });
      const unparking = clock.monotonic() >= dueMs ? [unparkDue()] : [];
      const claimingLimited = pass?.statements ?? [];
      const reserving =
        anyAlone && reserved === undefined ? [reserveAlone(podId, open, flows)] : [];
      const readingAhead = readAhead(open, podId);
      try {
        const written = database.write([
          ...unparking,
          ...claimingLimited,
          claiming,
          readingAhead,
          ...reserving,
        ]);
        const tables = (await withClaimTimeout(clock, written)).slice(unparking.length);
        const [taken, ahead, marked] = tables.slice(claimingLimited.length);
        const { wait_ms: waitMs, alone, limited, pauses: currentNumber } = ahead![0]!;
        const nextDueMs = waitMs === null ? undefined : Math.max(0, Number(waitMs));
        const passed = pass?.applyTables(tables);
        const plain = taken!.filter((row) => !passed?.ids.has(row["task_id"] as string));
        const claimed = [...(passed?.rows ?? []), ...plain];
        const cameShort = claimed.length < limit;
        limitedClaims.setUnlimitedBacklog(plain.length > 0 && !cameShort);
        if (inOrder && cameShort) frontier = undefined;
        else if (inOrder && plain.length > 0) frontier = frontierOf(plain);
        const pausesChanged = currentNumber !== null && Number(currentNumber) !== knownNumber;
        if (pausesChanged) pauses = undefined;
        // The next claim takes what this one could not: tasks that must run alone, limited tasks,
        // tasks released before this claim's frontier, and tasks skipped because of an unknown
        // pause.
        const again =
          pausesChanged ||
          (!anyAlone && Boolean(alone)) ||
          (!anyLimited && Boolean(limited)) ||
          (cameShort && (continuesFrontier || (passed?.moved === true && Boolean(limited))));
        dueMs = clock.monotonic() + (nextDueMs ?? Infinity);
        anyAlone = Boolean(alone);
        anyLimited = Boolean(limited);
        limitedClaims.rememberReserved(marked?.[0]);
        return {
          claims: claimed.map(toClaim),
          nextDueMs: again ? 0 : nextDueMs,
          reserved: marked?.[0]?.["task_id"],
        };
      } catch (error) {
        if (hasCode(error, "unknown_outcome")) parts.onReleasing(abandonCall(call.call));
        throw error;
      }
    },
  };
}

/** Rejects with `unknown_outcome` after the timeout and ignores a later answer. */
function withClaimTimeout<Answer>(clock: Clock, answer: Promise<Answer>): Promise<Answer> {
  const late = `the store took longer than ${claimTimeoutMs} ms`;
  return withTimeout(
    clock,
    claimTimeoutMs,
    answer,
    () => new FlotillaError("unknown_outcome", late),
  );
}
