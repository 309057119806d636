import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { withTimeout } from "../../base/timeout.ts";
import type { Database } from "../../store/database.ts";
import { createLimitedClaims, type LimitOf } from "../concurrency/candidates.ts";
import { type KnownPauses, readPauses, unpaused } from "./pauses.ts";
import { writeUntilKnown, untilStoreRecovers } from "../../store/retry.ts";
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
  /** Claims up to `limit` tasks but none that is held, or the one that was reserved. */
  claim(
    limit: number,
    reserved: string | undefined,
    held: readonly string[],
    /** Names of which no more than so many may be claimed. */
    maxByName?: ReadonlyMap<string, number>,
    sharedLimits?: readonly SharedNameLimit[],
  ): Promise<ClaimBatch>;
  /** Those of its names that are paused, as far as it knows. */
  readonly pausedNames: readonly string[];
};

export type ClaimBatch = {
  readonly claims: readonly Claim[];
  /** How long until another claim should be made, if one is foreseen. */
  readonly nextDueMs: number | undefined;
  /** A task that must run alone and is now meant for this pod. */
  readonly reserved: string | undefined;
  /** Whether nothing was asked for, because all that this pod knows is paused. */
  readonly paused?: boolean;
};

export type ClaimCallsParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  names: readonly string[];
  flows?: FlowVersions | undefined;
  /** How many of a key of a name may run at once, as far as the code says. */
  limitOf?: LimitOf;
  /** Told of calls that were given up, for the heartbeat's upsert. */
  onAbandoned: (call: number) => void;
  /** Counts what must be over before the pod may leave. */
  onReleasing: (release: Promise<void>) => void;
  signal: AbortSignal;
  log: Logger;
};

const claimTimeoutMs = 10_000;
// Every sixteenth claim takes the oldest first, so that low priorities move too.
const oldestEvery = 16;

/** Makes claim calls, and takes back those whose answer never came. */
export function createClaimCalls(parts: ClaimCallsParts): ClaimCalls {
  const { podId, database, clock, random, names, flows, onAbandoned, signal, log } = parts;
  let lastCall = 0;
  /** The newest call that was given up. An older one may be given up after it. */
  let abandonedUpTo = 0;
  /** When something that waits for its time is due, as far as the last look has shown. */
  let dueMs = -Infinity;
  let anyAlone = true;
  let anyLimited = false;
  /** What is paused; undefined where it has to be looked at. */
  let pauses: KnownPauses | undefined;
  const limitedClaims = createLimitedClaims(parts);
  /** Where the last claim ended, while there is more to claim than anybody takes at once. */
  let frontier: Frontier | undefined;

  // Whether the claim landed isn't known: whatever it took, or may still take, is given back. An older
  // call that is under way keeps what it has taken, or finds that it may take nothing any more.
  const abandonCall = async (call: number): Promise<void> => {
    abandonedUpTo = Math.max(abandonedUpTo, call);
    onAbandoned(abandonedUpTo);
    try {
      const retryOptions = { clock, random, signal, codes: untilStoreRecovers, hint: true };
      await writeUntilKnown(database, releaseCall(podId, call), retryOptions);
    } catch (error) {
      const fields = { pod: podId, call, error: messageOf(error) };
      log.error(fields, "a claim that was given up is left to recovery");
    }
  };

  const levelsOf = async (open: readonly string[]): Promise<Level[]> => {
    try {
      const rows = await withClaimTimeout(clock, database.read(levelsInUse(open)));
      return rows.map((row) => ({ name: row["name"], priority: Number(row["priority"]) }));
    } catch (error) {
      // It steps over everything claimed that couldn't be cleaned up yet. The usual claim needn't.
      log.debug({ pod: podId, error: messageOf(error) }, "claiming by priority: no levels came");
      return [];
    }
  };

  const prepareLimited = async (call: ClaimCall, reserved: string | undefined) => {
    if (reserved !== undefined) return limitedClaims.prepareAlone(call, reserved);
    if (!anyLimited) return undefined;
    try {
      return await withClaimTimeout(clock, limitedClaims.prepare(call));
    } catch (error) {
      // What is behind no gate needn't wait for that.
      log.debug({ pod: podId, error: messageOf(error) }, "claiming without the gates: no look");
      return undefined;
    }
  };

  return {
    get pausedNames() {
      const open = pauses ? unpaused(names, pauses) : names;
      return names.filter((name) => !open.includes(name));
    },
    async claim(limit, reserved, held, most, together) {
      pauses ??= await withClaimTimeout(clock, readPauses(database, podId));
      const open = unpaused(names, pauses);
      if (open.length === 0) {
        pauses = undefined;
        return { claims: [], nextDueMs: undefined, reserved: undefined, paused: true };
      }
      const known = pauses.number;
      const call = {
        podId,
        call: ++lastCall,
        names: open,
        ...(flows && { flows }),
        limit,
        held,
        pauses: known,
        ...(most && { most }),
        ...(together && { together }),
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
        const { wait_ms: waitMs, alone, limited: gated, pauses: nowKnown } = ahead![0]!;
        const nextDueMs = waitMs === null ? undefined : Math.max(0, Number(waitMs));
        const passed = pass?.applyTables(tables);
        const plain = taken!.filter((row) => !passed?.ids.has(row["task_id"] as string));
        const claimed = [...(passed?.rows ?? []), ...plain];
        const cameShort = claimed.length < limit;
        limitedClaims.setUnlimitedBacklog(plain.length > 0 && !cameShort);
        if (inOrder && cameShort) frontier = undefined;
        else if (inOrder && plain.length > 0) frontier = frontierOf(plain);
        const pausesChanged = nowKnown !== null && Number(nowKnown) !== known;
        if (pausesChanged) pauses = undefined;
        // What must run alone, is at a gate, or came back before the place that this claim began at, is
        // for the next; so is what it didn't take because it didn't know of a pause.
        const again =
          pausesChanged ||
          (!anyAlone && Boolean(alone)) ||
          (!anyLimited && Boolean(gated)) ||
          (cameShort && (continuesFrontier || (passed?.moved === true && Boolean(gated))));
        dueMs = clock.monotonic() + (nextDueMs ?? Infinity);
        anyAlone = Boolean(alone);
        anyLimited = Boolean(gated);
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

/** The answer, unless it takes too long: then it is unknown, and dropped if it still comes. */
function withClaimTimeout<Answer>(clock: Clock, answer: Promise<Answer>): Promise<Answer> {
  const late = `the store took longer than ${claimTimeoutMs} ms`;
  return withTimeout(
    clock,
    claimTimeoutMs,
    answer,
    () => new FlotillaError("unknown_outcome", late),
  );
}
