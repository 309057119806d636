import { contentionMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { aloneAfterDeaths } from "../../base/death-limit.ts";
import type { Random } from "../../base/random.ts";
import { announceWaiting } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { Outbox } from "../finish/outbox.ts";
import type { Claim } from "../rows.ts";
import type { Running } from "../run/attempt.ts";
import type { Reporting } from "../run/events.ts";
import {
  capacityOf,
  claimLimit,
  type Elastic,
  fewest,
  limitedTo,
  type NameSlots,
} from "./capacity.ts";
import type { Claiming } from "./claim.ts";
import type { ThrottleGate } from "./throttle-gate.ts";

type ClaimLoop = {
  /** There may be something to claim. */
  wake(): void;
  /** There may be room for what is known to wait. */
  look(): void;
  /** An attempt has ended; a `look` comes once its ending is on its way. */
  ended(claim: Claim): void;
  /** The task that waited for this pod to be empty has gone elsewhere. */
  reservedIsGone(): void;
  /** A task that must run alone and waits for this pod to be empty. */
  readonly reserved: string | undefined;
  readonly runsAlone: boolean;
  /** Such a task runs, or is being claimed. */
  readonly hasSuspect: boolean;
  /** Everything that this pod knows is paused. */
  readonly paused: boolean;
  /** Whether the last claim failed. */
  readonly failing: boolean;
  /** How many claim calls are under way. */
  readonly underWay: number;
  stop(): void;
};

type ClaimLoopParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** How many names there are handlers for. */
  names: number;
  pollMs: number;
  claims: Claiming;
  slots: NameSlots;
  elastic: Elastic;
  gate: ThrottleGate | undefined;
  outbox: Outbox | undefined;
  report: Pick<Reporting, "claimed" | "claimFailed">;
  running: { readonly size: number };
  /** Attempts whose ending isn't stored yet: what runs, and what has just ended. */
  unsettled: ReadonlySet<Running>;
  /** Takes on what has come, unless a newer claim of the same task runs here. */
  take: (claim: Claim, nowMs: number) => Running | undefined;
  begin: (run: Running) => void;
  /** Whether a turn that pods were lost under has just begun on this pod. Default: none has. */
  hasSuspectTurn?: (() => boolean) | undefined;
  /** Told after each claim. */
  onAnswered: () => void;
};

/**
 * Decides when to claim and how much, and takes the answers. One claim call is under way at a time, or
 * two while there is a backlog.
 */
export function createClaimLoop(parts: ClaimLoopParts): ClaimLoop {
  const { clock, names, pollMs, claims, slots, elastic, gate, outbox, report } = parts;
  const { running, unsettled } = parts;
  const pace = createPace(parts);
  let stopped = false;
  /** Claim calls under way, and how many tasks they may bring. */
  let underWay = 0;
  let asked = 0;
  /** The last claim was full, so another would probably be, too. */
  let backlog = false;
  /** The last claim was full or somebody hinted, so there is probably something to claim. */
  let more = true;
  let reserved: string | undefined;
  let runsAlone = false;
  let claimsAlone = false;
  let paused = false;
  let cancelWake: (() => void) | undefined;

  const wake = () => {
    more = true;
    look();
  };
  const announcing = createAnnouncing({ ...parts, onWaiting: wake });
  const wakeIn = (delayMs: number) => {
    cancelWake?.();
    // A claim that was under way when the pod was stopped mustn't keep its process alive.
    if (!stopped) cancelWake = clock.after(delayMs, wake);
  };

  const room = (held: number) => limitedTo(claimLimit(elastic.capacity, held), slots, names);

  const look = () => {
    if (stopped || names === 0 || outbox?.full) return;
    if (underWay > 0) return lookBeside();
    let limit = reserved === undefined ? room(running.size + asked) : 1;
    announcing.set(!more && limit > 0 && !runsAlone);
    if (!more || runsAlone) return;
    const tooEarlyMs = pace.waitMs();
    if (tooEarlyMs > 0) return wakeIn(tooEarlyMs);
    if (reserved !== undefined && unsettled.size > 0) return;
    // Of two that may end this pod, only one should be to blame. The next poll looks again.
    if (reserved !== undefined && parts.hasSuspectTurn?.()) return;
    if (gate !== undefined && reserved === undefined && limit > 0) {
      gate.look(limit);
      limit = gate.room(limit);
      // Nothing comes of asking until there is a permit, and that is told.
      if (limit === 0) {
        more = false;
        announcing.set(true);
      }
    }
    if (limit > 0) void claim(limit);
  };

  // The store would wait for us else, while we read one answer and run what it brought. A claim of a
  // few tasks wouldn't be worth its transaction, so this is for pods that are at least half empty.
  const lookBeside = () => {
    // What is limited by name is counted when it has come, so then one claim waits for the other.
    if (!backlog || underWay > 1 || slots.any || gate !== undefined) return;
    const half = claimLimit(elastic.capacity, 0);
    if (running.size + asked > capacityOf(elastic.capacity) - half) return;
    if (reserved !== undefined || pace.waitMs() > 0) return;
    void claim(half);
  };

  const claim = async (limit: number): Promise<void> => {
    underWay++;
    asked += limit;
    more = false;
    const alone = reserved;
    claimsAlone = alone !== undefined;
    reserved = undefined;
    // Nothing may come beside what must run alone.
    if (alone !== undefined) backlog = false;
    const startedMs = clock.monotonic();
    const passes = gate?.ask(alone === undefined ? limit : 0);
    try {
      // A pod that is taken for dead can lose a task again as soon as it has claimed it.
      const held = [...unsettled].map((run) => run.claim.taskId).concat(outbox?.leftOver ?? []);
      const most = slots.free && new Map(slots.free);
      const claimed = await (passes === undefined
        ? claims.claim(limit, alone, held, most)
        : claims.claim(limit, alone, held, fewest(most, passes.most), passes.together));
      underWay--;
      claimsAlone = false;
      pace.succeeded();
      const { length } = claimed.claims;
      backlog = alone === undefined && length === limit;
      report.claimed(length, startedMs);
      runsAlone = alone !== undefined && length > 0;
      reserved ??= claimed.reserved;
      paused = claimed.paused === true;
      if (claimed.nextDueMs === 0) more = true;
      else if (claimed.nextDueMs !== undefined && claimed.nextDueMs < pollMs) {
        wakeIn(claimed.nextDueMs);
      }
      if (length === limit || alone !== undefined || reserved !== undefined) more = true;
      else if (length === 0) pace.foundNothing();
      // The next claim goes out before these run, so that the store works while they do.
      const nowMs = clock.monotonic();
      const begun: Running[] = [];
      for (const each of claimed.claims) {
        const run = parts.take(each, nowMs);
        if (run !== undefined) begun.push(run);
      }
      asked -= limit;
      if (most && alone === undefined && slots.answered(most, claimed.claims)) more = true;
      if (passes !== undefined) {
        for (const run of begun) passes.hand(run);
        if (passes.over("answered")) more = true;
      }
      look();
      for (const run of begun) parts.begin(run);
    } catch (error) {
      underWay--;
      claimsAlone = false;
      asked -= limit;
      backlog = false;
      more = true;
      report.claimFailed(error, pace.failed());
      passes?.over("failed");
      look();
    }
    parts.onAnswered();
  };

  return {
    wake,
    look,
    ended({ name, deaths }) {
      if (deaths >= aloneAfterDeaths) runsAlone = false;
      if (slots.ended(name)) more = true;
    },
    reservedIsGone() {
      reserved = undefined;
      wake();
    },
    get reserved() {
      return reserved;
    },
    get runsAlone() {
      return runsAlone;
    },
    get hasSuspect() {
      return runsAlone || claimsAlone;
    },
    get paused() {
      return paused;
    },
    get failing() {
      return pace.failing;
    },
    get underWay() {
      return underWay;
    },
    stop() {
      stopped = true;
      announcing.stop();
      cancelWake?.();
    },
  };
}

type Pace = {
  /** How long the next claim has to wait yet. */
  waitMs(): number;
  /** Whether the last claim failed. */
  readonly failing: boolean;
  succeeded(): void;
  /** Gives how long the next claim has to wait for it. */
  failed(): number;
  foundNothing(): void;
};

// Hints come with every commit of anybody; claims that find nothing are kept to this many a second.
const emptyClaimsPerSecond = 50;

/** How soon a pod may claim again: after failures it waits longer each time, in vain it only claims so often. */
export function createPace({ clock, random }: { clock: Clock; random: Random }): Pace {
  let notBeforeMs = 0;
  let failures = 0;
  let tokens = emptyClaimsPerSecond;
  let tokensAtMs = clock.monotonic();
  return {
    waitMs: () => notBeforeMs - clock.monotonic(),
    get failing() {
      return failures > 0;
    },
    succeeded() {
      failures = 0;
    },
    failed() {
      const waitMs = contentionMs(++failures, random);
      notBeforeMs = clock.monotonic() + waitMs;
      return waitMs;
    },
    foundNothing() {
      const nowMs = clock.monotonic();
      const earned = ((nowMs - tokensAtMs) / 1_000) * emptyClaimsPerSecond;
      tokens = Math.min(emptyClaimsPerSecond, tokens + earned) - 1;
      tokensAtMs = nowMs;
      if (tokens < 0) notBeforeMs = nowMs + 1_000 / emptyClaimsPerSecond;
    },
  };
}

export type Announcing = {
  /** Whether this pod would claim more if there were more. */
  set(waiting: boolean): void;
  stop(): void;
};

// A pod that is busy for a moment only would otherwise write with every task.
const busyForMs = 1_000;
// Who has looked before we said that we wait may commit a little later.
const lookAgainMs = 100;

/**
 * Says in the store whether this pod waits for work, where hints cost those who send them: nobody
 * calls out to pods that are all busy. What was committed before this was known to everybody nobody
 * will be told of, so `onWaiting` is called for another look, twice.
 */
export function createAnnouncing(parts: {
  podId: string;
  database: Database;
  clock: Clock;
  onWaiting: () => void;
}): Announcing {
  const { podId, database, clock, onWaiting } = parts;
  let wanted = false;
  let stored = false;
  let writing = false;
  let stopped = false;
  let cancel: (() => void) | undefined;
  let cancelLook: (() => void) | undefined;

  const later = (delayMs: number, act: () => void) => {
    cancel?.();
    cancel = clock.after(delayMs, () => {
      cancel = undefined;
      act();
    });
  };
  const write = async (waiting: boolean): Promise<void> => {
    writing = true;
    try {
      await database.write([announceWaiting(podId, waiting)]);
      stored = waiting;
    } catch {
      // Whether it was stored isn't known, and polling does meanwhile.
    }
    writing = false;
    if (stopped) return;
    if (wanted !== stored) return later(busyForMs, () => void write(wanted));
    if (!waiting) return;
    // On a timer of its own: the first look makes the pod busy, which sets the other.
    cancelLook?.();
    cancelLook = clock.after(lookAgainMs, onWaiting);
    onWaiting();
  };

  return {
    set(waiting) {
      if (waiting === wanted || !database.announces) return;
      wanted = waiting;
      if (writing || stopped || wanted === stored) return;
      if (wanted) void write(true);
      else later(busyForMs, () => (wanted ? undefined : void write(false)));
    },
    stop() {
      stopped = true;
      cancel?.();
      cancelLook?.();
    },
  };
}
