/**
 * What every part of one simulation shares: time, chance, the store, what may go wrong now, and
 * what has been counted and found.
 */
import { between, fraction, type Random, seededRandom } from "../../src/base/random.ts";
import { type AuditedStore, openAuditedStore } from "./audit.ts";
import { createScheduler, type Scheduler } from "./scheduler.ts";

/** How likely each trouble is for one request. All are zero once the faults have stopped. */
export type Troubles = {
  /** A request or an answer takes this long at most. */
  delayMs: number;
  /** It takes seconds. */
  slow: number;
  /** Refused for certain: the store was busy. */
  refused: number;
  /** The caller isn't told, and nothing was stored. */
  lostBefore: number;
  /** The caller isn't told, and it was stored. */
  lostAfter: number;
  /** The caller isn't told, and it is stored seconds later. */
  late: number;
  /** It is stored twice. */
  doubled: number;
  /** The pod crashes instead of sending. */
  crashBefore: number;
  /** The pod crashes after the commit and before its answer. */
  crashAfter: number;
  /** The pod stands still while a step is on its way, for so long that it is taken for dead. */
  pausedAtStep: number;
  /** A notification doesn't come. */
  hintLost: number;
  /** A notification comes seconds later. */
  hintLate: number;
};

export const noTroubles: Troubles = {
  delayMs: 5,
  slow: 0,
  refused: 0,
  lostBefore: 0,
  lostAfter: 0,
  late: 0,
  doubled: 0,
  crashBefore: 0,
  crashAfter: 0,
  pausedAtStep: 0,
  hintLost: 0,
  hintLate: 0,
};

export type Freeze = { readonly untilMs: number; readonly mode: "hang" | "refuse" };

export type Violation = { readonly invariant: string; readonly what: string };

export type World = {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly store: AuditedStore;
  /** The store's own wall clock, which can be stepped. */
  readonly storeClock: { offsetMs: number; now(): number };
  troubles: Troubles;
  /** Whether tasks named `broken` fail now. */
  broken: boolean;
  /** How many writes of each process are on their way to the store. */
  readonly onTheWay: Map<string, number>;
  /** The pods that can't write now; `*` is all of them. */
  readonly frozen: Map<string, Freeze>;
  readonly violations: Violation[];
  violate(invariant: string, what: string): void;
  /** How often each fault fired and each fence refused. */
  readonly counts: Map<string, number>;
  count(what: string): void;
  /** Whether something that has this probability happens. */
  chance(probability: number): boolean;
  pick<Item>(items: readonly Item[]): Item;
  between(low: number, high: number): number;
  /** A source of chance of its own, so that one part's draws don't move another's. */
  fork(): Random;
};

export const startOfTimeMs = 1_767_225_600_000;

export async function createWorld(seed: number, options: { keepTrace: boolean }): Promise<World> {
  const scheduler = createScheduler(options);
  const random = seededRandom(seed);
  const counts = new Map<string, number>();
  const violations: Violation[] = [];
  const storeClock = {
    offsetMs: 0,
    now: () => Math.floor(startOfTimeMs + scheduler.nowMs + storeClock.offsetMs),
  };
  return {
    scheduler,
    random,
    store: await openAuditedStore(storeClock),
    storeClock,
    troubles: noTroubles,
    broken: true,
    onTheWay: new Map(),
    frozen: new Map(),
    violations,
    violate(invariant, what) {
      violations.push({ invariant, what });
      scheduler.note(`VIOLATION ${invariant}: ${what}`);
    },
    counts,
    count(what) {
      counts.set(what, (counts.get(what) ?? 0) + 1);
    },
    chance: (probability) => probability > 0 && fraction(random) < probability,
    pick: (items) => items[between(random, 0, items.length - 1)]!,
    between: (low, high) => between(random, low, high),
    fork: () => seededRandom(random.uint32()),
  };
}
