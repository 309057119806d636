import { batcher } from "../../base/batcher.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { withTimeout } from "../../base/timeout.ts";
import type { TenantCounter, TenantCounts } from "../../quotas/counts.ts";
import {
  type QuotaConfig,
  type QuotaName,
  quotaOf,
  type ResolvedQuota,
} from "../../runtime/quota-config.ts";
import type { SessionService } from "../../sessions/service.ts";
import { type Caller, onlyTenant } from "../auth/caller.ts";

/**
 * Holds callers of one tenant to the quotas of their tenant. Callers that act for all tenants pass.
 *
 * Servers divide a rate of requests evenly among them. Of sessions and turns the store has the counts: a
 * server adds what it has admitted since it read them. One server alone is exact. Several admit a small part
 * of what is left from each reading, and read anew where little is left, so that together they pass a quota by
 * an eighth at most, or by one for each other server where that is more.
 *
 * While the store can't be read, sessions and bytes that the last reading found used up stay so, and everything
 * else is admitted at once: what needs the store says so itself, and sessions may go on without it. It is read
 * again in the background, less and less often.
 */
export type TenantQuotas = {
  /** Counts a request or a frame. Throws where the tenant has sent as many as it may. */
  request(caller: Caller): void;
  /** Admits a new session. One that exists already is admitted, because it adds none. */
  session(caller: Caller, sessionId: string | undefined): Admitted;
  /**
   * Admits what is written to a session, or to one that is made with it without an id. What is stored already
   * is admitted, because it adds nothing.
   */
  write(caller: Caller, sessionId: string | undefined, written: Written): Admitted;
  readonly config: QuotaConfig;
  /** How many servers divide the quotas, as far as this one knows. */
  readonly servers: number;
  /** The requests of a tenant to this server in the last minute. */
  requestsOf(tenant: string): number;
  /** Says from now on that this server is up. Resolves when it is known how many divide the quotas. */
  start(): Promise<void>;
  close(): Promise<void>;
};

export type Written = {
  /** An agent is asked, so that a turn may begin. */
  readonly begins: boolean;
  /** The id that its sender has given it. */
  readonly id?: string | undefined;
};

/**
 * A function to call once it is stored or refused; undefined where nothing bounds it. Rejects where a quota
 * is used up.
 */
export type Admitted = Settle | undefined | Promise<Settle | undefined>;
export type Settle = () => void;

export type QuotaRefusal = { readonly type: "quota_refused"; readonly quota: QuotaName };

type TenantQuotaParts = {
  config: QuotaConfig;
  counter: Pick<TenantCounter, "of" | "announce" | "leave">;
  sessions: Pick<SessionService, "get" | "isStored">;
  /** Names this server to the others. */
  serverId: string;
  clock: Clock;
  log: Logger;
  onRefused?: (refusal: QuotaRefusal) => void;
};

/** What is admitted one by one. Bytes are not: how many an answer takes is known when it is stored. */
type CountedName = "sessions" | "turnsAtOnce";
type StoredName = CountedName | "storedBytes";
type Tally = Record<CountedName, number>;

type TenantState = {
  readonly tenant: string;
  readonly quota: ResolvedQuota;
  readonly requests: RequestWindow;
  reading: { readonly counts: TenantCounts; readonly atMs: number } | undefined;
  fetching: Promise<void> | undefined;
  /** What was admitted since the reading was asked for, and may not be in it. */
  admitted: Tally;
  /** The same for the read that is under way. */
  admittedNext: Tally;
  /** Admitted, and neither stored nor refused yet. */
  underWay: Tally;
  readonly onSettled: Set<() => void>;
};

// A reading serves for this long, unless little is left.
const maxAgeMs = 2_000;
// A refusal needs a reading that is no older, so that what was deleted or has ended counts soon.
const refusalAgeMs = 250;
// Another server may have read the same a moment ago.
const partsOfLeft = 8;
// A caller waits this long for what this server has admitted to be stored.
const maxWaitMs = 5_000;
const settleMs = 1_000;
const readTimeoutMs = 2_000;
// The store is away: reads of it are at least this far apart, and up to that.
const minAwayMs = 250;
const maxAwayMs = 4_000;
const announceMs = 3_000;
// Above it the tenants that have been quiet the longest are forgotten, with the requests of their last minute.
const maxTenants = 10_000;
const maxEvictionTries = 16;
const noBegin: readonly StoredName[] = ["storedBytes"];
// Bytes first: a session that is in a turn already may exceed the turns, and no session the bytes.
const begin: readonly StoredName[] = ["storedBytes", "turnsAtOnce"];
const create: readonly StoredName[] = ["storedBytes", "sessions"];

export function createTenantQuotas(parts: TenantQuotaParts): TenantQuotas {
  const { config, counter, sessions, serverId, clock, log } = parts;
  /** Least recently used first. */
  const tenants = new Map<string, TenantState>();
  let servers = 1;
  let closed = false;
  /** The last read has failed: no call waits for the next one. */
  let away: { readonly waitMs: number; readonly againMs: number } | undefined;
  let cancelAnnounce = () => {};

  const read = batcher((wanted: string[]) => counter.of(wanted));

  const stateOf = (tenant: string): TenantState => {
    const known = tenants.get(tenant);
    const state = known ?? newState(tenant, quotaOf(config, tenant), clock);
    if (known) tenants.delete(tenant);
    tenants.set(tenant, state);
    if (tenants.size > maxTenants) evictQuiet(tenants);
    return state;
  };
  const boundOf = (caller: Caller): TenantState | undefined => {
    const tenant = onlyTenant(caller);
    return tenant === undefined ? undefined : stateOf(tenant);
  };
  const shareOf = (amount: number): number => Math.max(1, Math.floor(amount / servers));
  /** How many of those that are left may be admitted from one reading. */
  const allowanceOf = (left: number): number =>
    servers === 1 ? left : shareOf(left / partsOfLeft);

  const fetchCounts = (state: TenantState): Promise<void> => {
    const fetching = async (): Promise<void> => {
      const atMs = clock.monotonic();
      state.admittedNext = { ...state.underWay };
      try {
        const counts = await withTimeout(clock, readTimeoutMs, read(state.tenant), tooLate);
        state.reading = { counts, atMs };
        state.admitted = { ...state.admittedNext };
        away = undefined;
      } catch (error) {
        log.debug({ error: messageOf(error) }, "counts of a tenant not read");
        if (!away) readLater(minAwayMs);
      } finally {
        state.fetching = undefined;
      }
    };
    return (state.fetching ??= fetching());
  };
  const readLater = (waitMs: number): void => {
    away = { waitMs, againMs: clock.monotonic() + waitMs };
  };
  /** Reads a store again that was away, once for all callers: no call waits for it. */
  const readAgain = (state: TenantState): void => {
    if (!away || clock.monotonic() < away.againMs) return;
    readLater(Math.min(maxAwayMs, 2 * away.waitMs));
    void fetchCounts(state);
  };
  const isNewer = ({ reading }: TenantState, ageMs: number): boolean =>
    reading !== undefined && clock.monotonic() - reading.atMs <= ageMs;

  /** How many the last reading leaves of a quota. */
  const leftOf = ({ quota, reading }: TenantState, name: StoredName): number =>
    quota[name]! - (reading?.counts[name] ?? 0);

  /** The first quota without room, and whether that is sure. */
  const obstacleOf = (state: TenantState, names: readonly StoredName[]) => {
    const { quota, admitted } = state;
    if (!state.reading) return undefined;
    for (const name of names) {
      if (quota[name] === undefined) continue;
      const left = leftOf(state, name);
      if (left <= 0) return { name, isFull: true };
      if (name !== "storedBytes" && admitted[name] >= allowanceOf(left))
        return { name, isFull: false };
    }
    return undefined;
  };

  /** What the last reading found used up, of what nothing but the tenant gives back. Turns end by themselves. */
  const fullBefore = (state: TenantState, names: readonly StoredName[]): StoredName | undefined =>
    names.find(
      (name) =>
        name !== "turnsAtOnce" &&
        state.reading !== undefined &&
        state.quota[name] !== undefined &&
        leftOf(state, name) <= 0,
    );

  const take = (state: TenantState, names: readonly StoredName[]): Settle => {
    const taken = names.filter((name) => name !== "storedBytes");
    for (const name of taken) {
      state.admitted[name]++;
      state.admittedNext[name]++;
      state.underWay[name]++;
    }
    let isSettled = false;
    return () => {
      if (isSettled) return;
      isSettled = true;
      for (const name of taken) state.underWay[name]--;
      for (const each of state.onSettled) each();
    };
  };

  /** Resolves when something that this server has admitted is stored or refused, or after a while. */
  const someSettled = ({ underWay, onSettled }: TenantState): Promise<void> =>
    new Promise((resolve) => {
      if (underWay.sessions + underWay.turnsAtOnce === 0) return resolve();
      const done = () => {
        cancel();
        onSettled.delete(done);
        resolve();
      };
      const cancel = clock.after(settleMs, done);
      onSettled.add(done);
    });

  const admitLater = async (
    state: TenantState,
    names: readonly StoredName[],
    addsNone: (name: StoredName) => Promise<boolean>,
  ): Promise<Settle> => {
    const beganMs = clock.monotonic();
    for (let isFirst = true; ; isFirst = false) {
      if (!away && (!isFirst || !isNewer(state, refusalAgeMs))) await fetchCounts(state);
      if (away) {
        const full = fullBefore(state, names);
        if (full && !(await addsNone(full))) throw refusalOf(state, full);
        return take(state, names);
      }
      const obstacle = obstacleOf(state, names);
      if (!obstacle) return take(state, names);
      const { name, isFull } = obstacle;
      if (isFull || clock.monotonic() - beganMs >= maxWaitMs) {
        if (await addsNone(name)) return take(state, names);
        const isTaken = name !== "storedBytes" && leftOf(state, name) <= state.underWay[name];
        throw isFull || isTaken ? refusalOf(state, name) : unsureOf(state, name);
      }
      // Some is left, but what this server has admitted may be just that: look again when it is stored.
      await someSettled(state);
    }
  };

  const admit = (
    caller: Caller,
    names: readonly StoredName[],
    addsNone: (name: StoredName, tenant: string) => Promise<boolean>,
  ): Admitted => {
    const state = boundOf(caller);
    if (!state || names.every((name) => state.quota[name] === undefined)) return undefined;
    if (isNewer(state, maxAgeMs) && !obstacleOf(state, names)) return take(state, names);
    readAgain(state);
    if (away && !fullBefore(state, names)) return take(state, names);
    return admitLater(state, names, (name) => addsNone(name, state.tenant));
  };

  const get = (tenant: string, sessionId: string) =>
    sessions.get(tenant, sessionId, { withoutMetadata: true });

  const refusalOf = (state: TenantState, name: QuotaName, waitMs?: number): FlotillaError => {
    parts.onRefused?.({ type: "quota_refused", quota: name });
    const limit = state.quota[name]!;
    const counted = name === "requestsPerMinute" ? limit : (state.reading?.counts[name] ?? limit);
    const used = Math.max(limit, counted);
    return quotaError(name, { limit, used, waitMs });
  };

  /** There may be room, but not all of it is this server's to give, and what it gave is still being stored. */
  const unsureOf = (state: TenantState, name: StoredName): FlotillaError => {
    parts.onRefused?.({ type: "quota_refused", quota: name });
    const message =
      "the tenant does so much at once that its quota can't be checked: send this again";
    const details = { quota: name, limit: state.quota[name]! };
    return new FlotillaError("overloaded", message, { details, retryAfterMs: settleMs });
  };

  const announce = async (): Promise<void> => {
    try {
      servers = Math.max(1, await counter.announce(serverId));
    } catch (error) {
      log.debug({ error: messageOf(error) }, "server not announced");
    }
    if (!closed) cancelAnnounce = clock.after(announceMs, () => void announce());
  };

  return {
    request(caller) {
      const state = boundOf(caller);
      const limit = state?.quota.requestsPerMinute;
      if (!state || limit === undefined) return;
      const waitMs = state.requests.take(shareOf(limit));
      if (waitMs > 0) throw refusalOf(state, "requestsPerMinute", waitMs);
    },
    session: (caller, sessionId) =>
      admit(caller, create, async (name, tenant) => {
        // One that is there already adds neither a session nor bytes.
        if (name === "turnsAtOnce" || sessionId === undefined) return false;
        return (await found(get(tenant, sessionId))) !== undefined;
      }),
    write: (caller, sessionId, { begins, id }) =>
      admit(caller, begins ? begin : noBegin, async (name, tenant) => {
        if (sessionId === undefined) return false;
        // Its sender may have missed the answer, and would be told that it isn't stored.
        if (id !== undefined && (await found(sessions.isStored(tenant, sessionId, id))))
          return true;
        if (name !== "turnsAtOnce") return false;
        const state = (await found(get(tenant, sessionId)))?.state.state;
        return state === "catching_up" || state === "waiting";
      }),
    config,
    get servers() {
      return servers;
    },
    requestsOf: (tenant) => tenants.get(tenant)?.requests.count() ?? 0,
    start: announce,
    async close() {
      closed = true;
      cancelAnnounce();
      await counter.leave(serverId).catch(() => {});
    },
  };
}

/** Does something that was admitted, and tells when it is done. */
export async function whileAdmitted<Result>(
  admitted: Admitted,
  act: () => Promise<Result>,
): Promise<Result> {
  const settle = await admitted;
  try {
    return await act();
  } finally {
    settle?.();
  }
}

/** Counts requests by slots of some seconds, so that no minute has more than the limit. */
export type RequestWindow = {
  /** Counts a request and returns 0, or returns how long to wait. */
  take(limit: number): number;
  /** The requests of the last minute. */
  count(): number;
};

const slotMs = 5_000;
// Those of a whole minute, and the one that is not over yet.
const slots = 60_000 / slotMs + 1;

/** Where a slot is kept. Slots from before the clock began are below zero. */
const placeOf = (slot: number): number => ((slot % slots) + slots) % slots;

export function createRequestWindow(clock: Pick<Clock, "monotonic">): RequestWindow {
  const counts = Array.from({ length: slots }, () => 0);
  let newest = Math.floor(clock.monotonic() / slotMs);
  let sum = 0;

  /** Empties the slots that have passed. */
  const moveOn = (nowMs: number): void => {
    const current = Math.floor(nowMs / slotMs);
    for (let passed = 0; newest < current && passed < slots; passed++) {
      newest++;
      sum -= counts[placeOf(newest)]!;
      counts[placeOf(newest)] = 0;
    }
    newest = Math.max(newest, current);
  };

  return {
    take(limit) {
      const nowMs = clock.monotonic();
      moveOn(nowMs);
      if (sum < limit) {
        counts[placeOf(newest)]!++;
        sum++;
        return 0;
      }
      let left = sum;
      let oldest = newest - slots + 1;
      for (; oldest < newest; oldest++) {
        left -= counts[placeOf(oldest)]!;
        if (left < limit) break;
      }
      return (oldest + slots) * slotMs - nowMs;
    },
    count() {
      moveOn(clock.monotonic());
      return sum;
    },
  };
}

/** The error of a quota that is used up. What passes by itself has the code that clients wait for. */
function quotaError(
  quota: QuotaName,
  { limit, used, waitMs }: { limit: number; used: number; waitMs: number | undefined },
): FlotillaError {
  const { code, retryAfterMs, message } = refusals[quota];
  const afterMs = waitMs ?? retryAfterMs;
  return new FlotillaError(
    code,
    `${message(limit, used, afterMs)}, or have \`server.quotas\` raised`,
    {
      details: { quota, limit, used },
      retryAfterMs: afterMs,
    },
  );
}

const minuteMs = 60_000;
const refusals: Readonly<
  Record<
    QuotaName,
    {
      readonly code: "overloaded" | "quota_exceeded";
      readonly retryAfterMs: number;
      readonly message: (limit: number, used: number, afterMs: number) => string;
    }
  >
> = {
  requestsPerMinute: {
    code: "overloaded",
    retryAfterMs: slotMs,
    message: (limit, _, afterMs) =>
      `the tenant has sent all requests of its quota of ${limit} a minute: send this again in ${Math.ceil(afterMs / 1_000)} s`,
  },
  sessions: {
    code: "quota_exceeded",
    retryAfterMs: minuteMs,
    message: (limit, used) =>
      `the tenant has ${used} sessions, and its quota is ${limit}: delete some that are no longer needed`,
  },
  turnsAtOnce: {
    code: "overloaded",
    retryAfterMs: 2_000,
    message: (limit, used) =>
      `${used} turns of the tenant are under way, and its quota is ${limit} at once: send this again when one has ended`,
  },
  storedBytes: {
    code: "quota_exceeded",
    retryAfterMs: minuteMs,
    message: (limit, used) =>
      `the sessions of the tenant store ${used} bytes, and its quota is ${limit}: delete some that are no longer needed`,
  },
};

function newState(tenant: string, quota: ResolvedQuota, clock: Clock): TenantState {
  const tally = (): Tally => ({ sessions: 0, turnsAtOnce: 0 });
  return {
    tenant,
    quota,
    requests: createRequestWindow(clock),
    reading: undefined,
    fetching: undefined,
    admitted: tally(),
    admittedNext: tally(),
    underWay: tally(),
    onSettled: new Set(),
  };
}

function tooLate(): FlotillaError {
  return new FlotillaError("timeout", `the store took more than ${readTimeoutMs} ms`);
}

/** Forgets the tenant that was quiet for the longest and has nothing under way. */
function evictQuiet(tenants: Map<string, TenantState>): void {
  let tries = 0;
  for (const [tenant, state] of tenants) {
    tenants.delete(tenant);
    if (state.underWay.sessions + state.underWay.turnsAtOnce === 0) return;
    tenants.set(tenant, state);
    if (++tries === maxEvictionTries) return;
  }
}

async function found<Found>(asked: Promise<Found>): Promise<Found | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}
