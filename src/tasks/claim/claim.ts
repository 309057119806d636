import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf, untilStoreRecovers } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { withTimeout } from "../../base/timeout.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { createLimitedClaims, type LimitedClaim, type LimitOf } from "../concurrency/candidates.ts";
import { type KnownPauses, readPauses, unpaused } from "./pauses.ts";
import { writeUntilKnown } from "../../store/retry.ts";
import { type Claim, toClaim } from "../rows.ts";
import {
  type ClaimCall,
  claimOldest,
  claimReserved,
  claimTasks,
  type Frontier,
  frontierOf,
  type Level,
  levelsInUse,
  type NameVersions,
  readAhead,
  type SharedNameLimit,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "../sql/claim.ts";

export type ClaimCalls = {
  /** Claims up to `limit` tasks and none that is held, or the task that was reserved. */
  claim(request: ClaimRequest): Promise<ClaimBatch>;
  /** A claim that another write of this process makes, once: its number must not be used again. */
  claimWithin(request: ClaimRequest): ClaimWithin;
  /** False if something must be read before a claim. */
  readonly canClaimWithin: boolean;
  /** The pod's names that are paused, as last read. */
  readonly pausedNames: readonly string[];
  /** The number of the pauses as last read; undefined if they must be read again. */
  readonly pausesNumber: number | undefined;
};

/** A claim that is part of another write. */
export type ClaimWithin = {
  /** The last statements of that write. */
  readonly statements: readonly Statement[];
  /** Takes their answers, or the error of the write. */
  settle(answers: Promise<Row[][]>): void;
  readonly claimed: Promise<ClaimBatch>;
};

export type ClaimRequest = {
  readonly limit: number;
  readonly held: readonly string[];
  readonly reserved?: string | undefined;
  /** The most tasks of each name to claim. */
  readonly maxByName?: ReadonlyMap<string, number> | undefined;
  readonly sharedLimits?: readonly SharedNameLimit[] | undefined;
  /** Claims only tasks of these names, which will wait for a slot. */
  readonly ahead?: readonly string[];
};

export type ClaimBatch = {
  /** The number of the call; undefined if none was made. */
  readonly call?: number;
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
  flows?: NameVersions | undefined;
  versions?: NameVersions | undefined;
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
  const { podId, database, clock, random, names, flows, versions, onAbandoned, signal, log } =
    parts;
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
  let callsInOrder = 0;
  /** The last claim took all that was ready, so that no priority waits behind another. */
  let tookAll = false;
  /** Where the last claim ended in the order of tasks, while there is a backlog. */
  let frontier: Frontier | undefined;
  /** The same for calls ahead that leave names out. */
  let aheadFrontier: Frontier | undefined;

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
    const turn = limitedClaims.prepare(call);
    try {
      return await withClaimTimeout(clock, turn.prepared);
    } catch (error) {
      turn.settle();
      // Tasks without a concurrency limit need not wait for that.
      log.debug(
        { pod: podId, error: messageOf(error) },
        "claim of limited tasks skipped: candidates could not be read",
      );
      return undefined;
    }
  };

  const callOf = (request: ClaimRequest, known: KnownPauses): ClaimCall => {
    const { limit, held, maxByName, sharedLimits, ahead } = request;
    return {
      podId,
      call: ++lastCall,
      names: unpaused(ahead ?? names, known),
      ...(flows && { flows }),
      ...(versions && { versions }),
      ...(ahead && { ahead: true }),
      limit,
      held,
      pauses: known.number,
      ...(maxByName && { maxByName }),
      ...(sharedLimits && { together: sharedLimits }),
    };
  };

  /** The statements of a call, and what follows from their answer. */
  const prepare = (
    call: ClaimCall,
    {
      request: { limit, reserved, ahead },
      open,
      levels,
      pass,
    }: {
      request: ClaimRequest;
      open: readonly string[];
      levels: readonly Level[];
      pass?: LimitedClaim | undefined;
    },
  ) => {
    const inOrder = reserved === undefined && levels.length === 0;
    const isPartial = ahead !== undefined && ahead.length < names.length;
    const from = isPartial ? aheadFrontier : frontier;
    const continuesFrontier = inOrder && from !== undefined;
    const rest = { ...call, shared: pass !== undefined };
    const claiming =
      reserved !== undefined
        ? claimReserved(rest, reserved)
        : levels.length > 0
          ? claimOldest(rest, levels)
          : claimTasks({ ...rest, ...(from && { from }) });
    const unparking = clock.monotonic() >= dueMs ? [unparkDue()] : [];
    const claimingLimited = pass?.statements ?? [];
    const reserving =
      anyAlone && reserved === undefined && ahead === undefined
        ? [reserveAlone(podId, open, { flows, versions })]
        : [];
    const settle = (answers: readonly Row[][]): ClaimBatch => {
      const tables = answers.slice(unparking.length);
      const [taken, next, marked] = tables.slice(claimingLimited.length);
      const { wait_ms: waitMs, alone, limited, pauses: currentNumber } = next![0]!;
      // Of the same transaction, and so of the claim.
      const claimedAtMs = Number(next![0]!["now"]);
      const nextDueMs = waitMs === null ? undefined : Math.max(0, Number(waitMs));
      const passed = pass?.applyTables(tables);
      const plain = taken!.filter((row) => !passed?.ids.has(row["task_id"] as string));
      const claimed = [...(passed?.rows ?? []), ...plain];
      const cameShort = claimed.length < limit;
      if (ahead === undefined) {
        // Where a name or a key has its own limit, more of it may be left.
        const bounded = Boolean(limited) || Boolean(call.maxByName ?? call.together);
        tookAll = cameShort && !bounded;
      }
      limitedClaims.setUnlimitedBacklog(plain.length > 0 && !cameShort);
      if (inOrder && (cameShort || plain.length > 0)) {
        const reached = cameShort ? undefined : frontierOf(plain);
        if (isPartial) aheadFrontier = reached;
        else frontier = reached;
      }
      const pausesChanged = currentNumber !== null && Number(currentNumber) !== call.pauses;
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
        call: call.call,
        claims: claimed.map((row) => toClaim(row, claimedAtMs)),
        nextDueMs: again ? 0 : nextDueMs,
        reserved: marked?.[0]?.["task_id"],
      };
    };
    return {
      statements: [
        ...unparking,
        ...claimingLimited,
        claiming,
        readAhead(open, podId),
        ...reserving,
      ],
      settle,
      failed(error: unknown) {
        if (hasCode(error, "unknown_outcome")) parts.onReleasing(abandonCall(call.call));
      },
    };
  };

  return {
    get pausedNames() {
      const open = pauses ? unpaused(names, pauses) : names;
      return names.filter((name) => !open.includes(name));
    },
    get pausesNumber() {
      return pauses?.number;
    },
    async claim(request) {
      pauses ??= await withClaimTimeout(clock, readPauses(database, podId));
      const { reserved, ahead } = request;
      const open = unpaused(names, pauses);
      const call = callOf(request, pauses);
      if (call.names.length === 0) {
        pauses = undefined;
        return { claims: [], nextDueMs: undefined, reserved: undefined, paused: open.length === 0 };
      }
      const byAge = ahead === undefined && !tookAll && ++callsInOrder % oldestEvery === 0;
      const levels = byAge && reserved === undefined ? await levelsOf(open) : [];
      const pass = ahead === undefined ? await prepareLimited(call, reserved) : undefined;
      const { statements, settle, failed } = prepare(call, { request, open, levels, pass });
      try {
        return settle(await withClaimTimeout(clock, database.write(statements)));
      } catch (error) {
        failed(error);
        throw error;
      } finally {
        pass?.settle();
      }
    },
    get canClaimWithin() {
      return pauses !== undefined && !anyLimited && unpaused(names, pauses).length > 0;
    },
    claimWithin(request) {
      const open = unpaused(names, pauses!);
      const call = callOf(request, pauses!);
      const { statements, settle, failed } = prepare(call, { request, open, levels: [] });
      const written = Promise.withResolvers<Row[][]>();
      const claimed = async (): Promise<ClaimBatch> => {
        try {
          return settle(await withClaimTimeout(clock, written.promise));
        } catch (error) {
          failed(error);
          if (hasCode(error, "unknown_outcome")) throw error;
          // The other statements were refused, which says nothing about claims.
          return { claims: [], nextDueMs: 0, reserved: undefined };
        }
      };
      return { statements, claimed: claimed(), settle: written.resolve };
    },
  };
}

/** Rejects with `unknown_outcome` after the timeout and ignores a later answer. */
export function withClaimTimeout<Answer>(clock: Clock, answer: Promise<Answer>): Promise<Answer> {
  const late = `the store took longer than ${claimTimeoutMs} ms`;
  return withTimeout(
    clock,
    claimTimeoutMs,
    answer,
    () => new FlotillaError("unknown_outcome", late),
  );
}
