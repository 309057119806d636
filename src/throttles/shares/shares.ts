import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import type { StatedRate } from "../limiter/limiter.ts";
import { createHolder, type Holder, type SharedLimiter } from "./holder.ts";
import {
  createSqlShares,
  type HeldThrottle,
  mayBeStored,
  type ShareChange,
  type ShareStore,
} from "./share-store.ts";

export type ShareEvent = {
  readonly type: "share";
  readonly name: string;
  readonly key: string;
  /** How many calls this pod may have in flight, and how many all pods together. */
  readonly share: number;
  readonly bound: number;
  readonly epoch: number;
};

export type SharesOptions = {
  readonly podId: string;
  readonly database: Database;
  /** Where shares are kept. Default: in the database. */
  readonly store?: ShareStore | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly host?: string | undefined;
  readonly isGone?: ((host: string) => boolean) | undefined;
  readonly onEvent?: ((event: ShareEvent) => void) | undefined;
};

export type Shares = {
  /** Gives this limiter its share of the fleet's permits from now on, unless its mode is `local`. */
  add(limiter: SharedLimiter): void;
  /** Returns the share of this limiter, which is no longer used. */
  drop(limiter: SharedLimiter): void;
  /** The limiter could use more than its share: syncs soon, at most once a second. */
  syncSoon(limiter: SharedLimiter): void;
  /** Returns all permits that aren't in flight. */
  stop(): Promise<void>;
};

type HeldShare = {
  readonly holder: Holder;
  readonly unsubscribe: () => void;
  syncedMs: number;
  dueMs: number;
  /** How many syncs in a row found that other pods still hold what this one should have. */
  polls: number;
  lastReported: string;
  /** What the downstream has stated, until the bound was raised to it. */
  rate: StatedRate | undefined;
};

const syncMs = 1_000;
const owedMs = 250;
const loweringMs = 50;
// Pods that write the same row at once retry; all of them succeed well within a second.
const maxTries = 12;
const baseRetryMs = 8;
const maxRetryMs = 100;

/** A pod's shares of all its throttles: one sync for all of them, one write for each that changes. */
export function createShares(options: SharesOptions): Shares {
  const { podId, clock, random, log, host, isGone, onEvent } = options;
  const store = options.store ?? createSqlShares(options);
  const held = new Map<SharedLimiter, HeldShare>();
  let cancelTimer: (() => void) | undefined;
  let timerMs = Infinity;
  let busy: Promise<void> | undefined;
  let stopped = false;
  let renewals = 0;

  const spread = (delayMs: number) => delayMs * (0.9 + 0.2 * fraction(random));
  const pause = (delayMs: number) =>
    new Promise<void>((resolve) => void clock.after(spread(delayMs), resolve));

  /** Schedules a round, unless an earlier one is scheduled or one is running. */
  const arm = (dueMs: number): void => {
    if (stopped || busy || dueMs >= timerMs) return;
    cancelTimer?.();
    timerMs = dueMs;
    cancelTimer = clock.after(Math.max(0, dueMs - clock.monotonic()), () => {
      cancelTimer = undefined;
      timerMs = Infinity;
      busy = round().finally(() => {
        busy = undefined;
        let nextMs = Infinity;
        for (const each of held.values()) nextMs = Math.min(nextMs, each.dueMs);
        arm(nextMs);
      });
    });
  };

  const round = async (): Promise<void> => {
    const nowMs = clock.monotonic();
    const due = [...held.values()].filter(({ dueMs }) => dueMs <= nowMs);
    for (const each of due) each.dueMs = Infinity;
    // A holder that only waits for its calls to end needs no sync.
    const soon = due.filter(
      ({ rate, syncedMs, holder }) =>
        nowMs - syncedMs < syncMs - loweringMs && holder.lowering && !rate,
    );
    const full = due.filter((each) => !soon.includes(each));
    try {
      await Promise.all(full.map(raiseBound));
      if (full.length > 0) await sync(full);
      await writeAll([...full, ...soon.filter(({ holder }) => holder.lowered)]);
    } catch (error) {
      log.debug({ error: messageOf(error) }, "throttle share sync failed");
    }
    for (const each of due) scheduleNext(each);
  };

  const raiseBound = async (each: HeldShare): Promise<void> => {
    const { rate, holder } = each;
    each.rate = undefined;
    if (rate) await store.raise(holder.place, rate);
  };

  /** Reports this pod's demand, and reads the rows and the other pods' demands. */
  const sync = async (all: readonly HeldShare[]): Promise<void> => {
    const sentMs = clock.monotonic();
    for (const each of all) each.syncedMs = sentMs;
    const found = await store.sync(all.map(({ holder }) => toHeld(holder)));
    const roundTrip = { sentMs, answeredMs: clock.monotonic() };
    for (const [nth, { holder }] of all.entries()) {
      const { row, demands } = found[nth]!;
      holder.onReports(demands, roundTrip);
      if (row) holder.onRow(row, roundTrip);
    }
  };

  /** Changes the pod's own entry, until it is stored or the outcome of a write is unknown. */
  const writeShare = async ({ holder }: HeldShare): Promise<void> => {
    const { place: throttleId } = holder;
    for (let attempt = 1; attempt <= maxTries; attempt++) {
      const change = holder.change();
      if (!change) return;
      const { sent, shares } = change;
      let answer: ShareChange;
      try {
        answer = await store.change(throttleId, sent.rev, shares);
      } catch (error) {
        // With an unknown outcome the write may be stored: the next read shows.
        if (!mayBeStored(error)) holder.onRefused(sent);
        throw error;
      }
      const roundTrip = { sentMs: sent.sentMs, answeredMs: clock.monotonic() };
      const { type, row } = answer;
      if (type === "refused") holder.onRefused(sent);
      if (row) holder.onRow(row, roundTrip);
      if (type === "stored" || !row) return;
      await pause(Math.min(maxRetryMs, baseRetryMs * 2 ** (attempt - 1)));
    }
  };

  /** Waits for all writes, even after one failed, so that no two rounds change an entry at once. */
  const writeAll = async (all: readonly HeldShare[]): Promise<void> => {
    const results = await Promise.allSettled(all.map(writeShare));
    for (const each of results) if (each.status === "rejected") throw each.reason;
  };

  /** Decides when this share is synced again. */
  const scheduleNext = (each: HeldShare): void => {
    const { holder } = each;
    reportShare(each);
    const nowMs = clock.monotonic();
    each.polls = holder.owed ? each.polls + 1 : 0;
    let delayMs = spread(syncMs);
    if (holder.atRest) {
      if (holder.leaving) remove(each);
      delayMs = Infinity;
    }
    if (holder.lowering) delayMs = loweringMs;
    else if (holder.owed) delayMs = Math.min(delayMs, owedMs * 2 ** (each.polls - 1));
    each.dueMs = Math.min(each.dueMs, nowMs + delayMs);
  };

  const remove = ({ holder }: HeldShare): void => {
    held.delete(holder.limiter);
    store.forget(holder.place);
  };

  const reportShare = (each: HeldShare): void => {
    const { place: throttleId, limit: share, row } = each.holder;
    if (!row || !onEvent) return;
    const event = {
      type: "share" as const,
      ...throttleId,
      share,
      bound: row.bound,
      epoch: row.epoch,
    };
    const reported = `${share}/${row.bound}@${row.epoch}`;
    if (reported !== each.lastReported) onEvent(event);
    each.lastReported = reported;
  };

  const syncSoon = (limiter: SharedLimiter): void => {
    const each = held.get(limiter);
    if (!each || stopped) return;
    each.dueMs = Math.min(each.dueMs, Math.max(clock.monotonic(), each.syncedMs + syncMs));
    arm(each.dueMs);
  };

  /** The first answer that states a rate lets the fleet grow to it at once. */
  const syncNow = (limiter: SharedLimiter, rate: StatedRate): void => {
    const each = held.get(limiter);
    if (!each || stopped) return;
    each.rate = rate;
    each.dueMs = clock.monotonic();
    arm(each.dueMs);
  };

  return {
    add(limiter) {
      if (limiter.settings.mode === "local" || held.has(limiter) || stopped) return;
      const holder = createHolder({
        podId,
        limiter,
        clock,
        nextRenewal: () => ++renewals,
        host,
        isGone,
      });
      const leave = [
        limiter.onDemand(() => syncSoon(limiter)),
        limiter.onThrottled(() => syncSoon(limiter)),
        limiter.onRate((rate) => syncNow(limiter, rate)),
      ];
      held.set(limiter, {
        holder,
        rate: undefined,
        unsubscribe: () => leave.forEach((end) => end()),
        syncedMs: -Infinity,
        dueMs: Infinity,
        polls: 0,
        lastReported: "",
      });
      const { inFlight, waiting, blockedTasks } = limiter.demand();
      if (inFlight + waiting + blockedTasks > 0) syncSoon(limiter);
    },
    drop(limiter) {
      const each = held.get(limiter);
      if (!each || stopped) return;
      each.unsubscribe();
      each.holder.leave();
      if (each.holder.atRest) remove(each);
      else each.dueMs = clock.monotonic();
      arm(each.dueMs);
    },
    syncSoon,
    async stop() {
      stopped = true;
      cancelTimer?.();
      await busy;
      const all = [...held.values()];
      for (const { holder, unsubscribe } of all) {
        unsubscribe();
        holder.leave();
      }
      const active = all.filter(({ holder }) => !holder.atRest);
      if (active.length === 0) return;
      try {
        await sync(active);
        await writeAll(active);
      } catch (error) {
        log.debug(
          { error: messageOf(error) },
          "throttle shares not returned, their leases will end",
        );
      }
    },
  };
}

function toHeld(holder: Holder): HeldThrottle {
  const { controller } = holder.limiter.settings;
  const bound = controller.pinned ?? controller.initial;
  const declared = { bound, settings: JSON.stringify(controller) };
  return { id: holder.place, declared, report: holder.report() };
}
