import type { OutcomeKind } from "../learning/sample.ts";
import type { Quota } from "../rate-headers.ts";

/** How many limits of one downstream are followed. Answers state one to four. */
const maxQuotas = 4;
/** Of limits of one kind, how many are remembered besides the one that was stated last. */
const maxAside = 8;
/** A reset within this time is waited for. A later one may be wrong, so calls try in between. */
const patienceMs = 60_000;
const firstTryMs = 5_000;
/** So many calls in a row that succeed although nothing remained show that the headers are wrong. */
const maxContradictions = 3;
const nextTryMs = 500;
/** The wait after a refusal because nothing remained; twice as long each time. */
const firstMissMs = 500;
const disbeliefMs = 600_000;
const maxDisbelieved = 16;
/** What comes back within this time is waited for, by a pod that has just got its part. */
const soonMs = 1_000;
/** Whole seconds are rounded either way, and clocks differ a little. */
const resetMarginMs = 100;

/** The windows that limits are for. */
const windowsMs = [1_000, 10_000, 60_000, 3_600_000, 86_400_000];
const windowTolerance = 0.15;
const maxWindowMs = 31 * 86_400_000;

/**
 * The time that a limit is for. Of a limit that comes back steadily it follows from how long the used
 * units take to come back; of another one it is at least as long as the time to its reset.
 */
export function windowOf(quota: Quota): number | undefined {
  const { limit, remaining, resetMs = 0, windowMs, refills } = quota;
  if (windowMs !== undefined) return inRange(windowMs);
  if (limit === undefined || resetMs <= 0) return undefined;
  if (refills === "at_reset") return windowsMs.find((each) => each >= resetMs);
  if (remaining >= limit) return undefined;
  const found = (resetMs * limit) / (limit - remaining);
  const usual = windowsMs.find((each) => Math.abs(found / each - 1) < windowTolerance);
  return usual ?? inRange(found);
}

function inRange(windowMs: number): number | undefined {
  return windowMs >= windowsMs[0]! && windowMs <= maxWindowMs ? windowMs : undefined;
}

/** A limit of the downstream for all pods together, as the last answer stated it. */
type Followed = {
  readonly oneOf: string | undefined;
  readonly unit: Quota["unit"];
  readonly limit: number | undefined;
  readonly refills: Quota["refills"];
  /** Units that come back per ms. 0 where that isn't known, or where they come back at the reset. */
  readonly perMs: number;
  readonly windowMs: number | undefined;
  /** What remains for all pods at `atMs`, less what this pod has begun since, as if all pods did the same. */
  level: number;
  /** What this pod has begun since the call whose answer was read last did. */
  begun: number;
  atMs: number;
  resetAtMs: number;
  /** When the limit was reset since the last answer, by the time that the last answer stated. */
  wasResetMs: number;
  /** The number of the call whose answer was read last. An older call's answer comes too late. */
  number: number;
  readMs: number;
  /** When a call is tried although nothing remains, and how many such tries have been refused. */
  tryAtMs: number;
  tries: number;
  contradictions: number;
};

/** A call whose answer stated limits. */
export type ReadCall = {
  readonly number: number;
  readonly beganMs: number;
  /** How many calls of this pod have begun since it did. */
  readonly begunSince: number;
};

type EndedCall = {
  readonly number: number;
  /** The limits that it tried although nothing remained. */
  readonly tried: readonly string[];
  /** Its answer stated that nothing remains of a limit. */
  readonly sawNothingLeft: boolean;
};

type Ending = {
  readonly kind: OutcomeKind;
  /** Its answer says when to come back. */
  readonly comesBack: boolean;
  /** How many calls of this pod have begun. */
  readonly begun: number;
};

type QuotasOptions = {
  /** Whether callers say how many tokens a call takes. Otherwise limits on tokens count when there are none left. */
  readonly countsTokens: boolean;
  /** What a call probably costs in tokens, where its caller doesn't say. */
  readonly estimate: number;
};

/**
 * The downstream's limits per time, as its answers state them. Each answer says what remains
 * for all callers. Of that, a pod uses the part that its share of the permits is of all shares, less the
 * calls that it has begun since that answer's call. So pods together use what remains and no more,
 * without asking each other, and what other callers of the same account use is seen at the next answer.
 *
 * What a header says is believed within bounds. A wait of more than a minute is interrupted by single
 * calls; where these succeed, the limit is ignored for ten minutes. A limit that states less after its
 * reset than it should comes back steadily from then on.
 *
 * Parts of a downstream may have a limit each, such as GitHub's search. Which part a call is for isn't known
 * before its answer, so calls go by the limit that was stated last. The others are only set aside, because
 * what was learned of one, and what contradicts it, says nothing about the next.
 */
export function createQuotas({ countsTokens, estimate: usual }: QuotasOptions) {
  const followed = new Map<string, Followed>();
  const aside = new Map<string, Followed>();
  const disbelievedUntilMs = new Map<string, number>();
  /** Until when tokens are used up, and until when what is used up isn't tried again. */
  let noTokensUntilMs = 0;
  let missedUntilMs = 0;
  /** How long the last answer wants to be waited for where nothing remains. */
  let nothingLeftMs = 0;
  /** How often in a row calls were refused because nothing remained, and which had begun by the last time. */
  let misses = 0;
  let missedUpTo = 0;
  let part = 1;

  const fill = (each: Followed, nowMs: number): void => {
    if (nowMs >= each.resetAtMs) {
      // Where the next reset isn't known, nothing is known until the next answer.
      each.level = (each.windowMs !== undefined && each.limit) || Infinity;
      each.wasResetMs = nowMs;
      each.resetAtMs = nowMs + (each.windowMs ?? Infinity);
    }
    if (each.perMs > 0) {
      const came = each.perMs * Math.max(0, nowMs - each.atMs);
      each.level = Math.min(each.limit ?? Infinity, each.level + came);
    }
    each.atMs = nowMs;
  };

  const costOf = (each: Followed, estimate: number): number =>
    each.unit === "requests" ? 1 : estimate;

  /** What must remain for a call of this pod. One that costs more than its part ever is needs all of it. */
  const neededFor = (each: Followed, estimate: number): number =>
    Math.min(costOf(each, estimate) / part + marginOf(each, part), each.limit ?? Infinity) - tiny;

  /** How long until this limit lets a call of this pod begin, or until one is tried. */
  const waitOf = (each: Followed, estimate: number, nowMs: number): number => {
    fill(each, nowMs);
    const needed = neededFor(each, estimate);
    if (each.level >= needed) return 0;
    // Whole milliseconds, because sums of parts of units fall short of what was waited for.
    const steadyMs = each.perMs > 0 ? Math.ceil((needed - each.level) / each.perMs) : Infinity;
    const backMs = Math.min(steadyMs, each.resetAtMs - nowMs);
    if (backMs <= patienceMs + resetMarginMs) return Math.max(0, backMs);
    if (each.tryAtMs === Infinity) each.tryAtMs = nowMs + tryAfterMs(each);
    return Math.max(0, Math.min(backMs, each.tryAtMs - nowMs));
  };

  /** Makes room for a limit, if one hasn't been stated for a while. */
  const forgetStale = (nowMs: number): boolean => {
    for (const [name, { readMs }] of followed) {
      if (nowMs - readMs > patienceMs) return followed.delete(name);
    }
    return false;
  };

  /** Drops limits that calls succeed without stating, such as one that a proxy stated once. */
  const forgetUnstated = (nowMs: number): void => {
    for (const [name, { readMs, windowMs = 0 }] of followed) {
      if (nowMs - readMs > 2 * Math.max(windowMs, patienceMs)) followed.delete(name);
    }
  };

  /** Of limits of one kind the one that is stated now takes the place of the last one. */
  const setOthersAside = (name: string, oneOf: string): void => {
    aside.delete(name);
    for (const [other, each] of followed) {
      if (each.oneOf !== oneOf || other === name) continue;
      followed.delete(other);
      const [oldest] = aside.keys();
      if (aside.size >= maxAside && oldest !== undefined) aside.delete(oldest);
      aside.set(other, each);
    }
  };

  const follow = (quota: Quota, call: ReadCall, nowMs: number): void => {
    const { name, oneOf, unit, limit, remaining, resetMs } = quota;
    const before = followed.get(name) ?? aside.get(name);
    if (before && call.number < before.number) return;
    if (oneOf !== undefined) setOthersAside(name, oneOf);
    if (!followed.has(name) && followed.size >= maxQuotas && !forgetStale(nowMs)) return;
    const windowMs = windowOf(quota) ?? (before?.limit === limit ? before?.windowMs : undefined);
    const refills = refillsOf(quota, before, windowMs, call);
    const perMs =
      refills === "steadily" && limit !== undefined && windowMs !== undefined
        ? limit / windowMs
        : 0;
    // A reset that is farther away than the time that the limit is for makes no sense.
    const waitsMs = Math.min(resetMs ?? windowMs ?? firstTryMs, windowMs ?? maxWindowMs);
    const next: Followed = {
      oneOf,
      unit,
      limit,
      refills,
      perMs,
      windowMs,
      level: remaining,
      begun: 0,
      atMs: call.beganMs,
      // Without a rate, what comes back is only known to be back at the reset.
      resetAtMs: perMs > 0 ? Infinity : nowMs + Math.min(waitsMs + resetMarginMs, maxWindowMs),
      wasResetMs: -Infinity,
      number: call.number,
      readMs: nowMs,
      tryAtMs: before !== undefined && before.tryAtMs > nowMs ? before.tryAtMs : Infinity,
      tries: before?.tries ?? 0,
      contradictions: before?.contradictions ?? 0,
    };
    fill(next, nowMs);
    next.begun = call.begunSince * costOf(next, usual);
    if (part > 0) next.level -= next.begun / part;
    if (next.level >= neededFor(next, usual)) next.contradictions = 0;
    followed.set(name, next);
  };

  return {
    /** Sets which part of what remains is this pod's. */
    share(next: number): void {
      if (part === 0 && next > 0) {
        // Other pods have used this pod's part meanwhile. Unless it is back soon, one call finds out.
        for (const each of followed.values()) {
          const needed = (costOf(each, usual) * (1 + undivided)) / next;
          each.level = Math.min(each.level, each.perMs * soonMs >= needed ? 0 : needed);
        }
      }
      part = next;
    },

    /** An answer has stated these limits. Returns whether nothing remains of one that is believed. */
    read(quotas: readonly Quota[], call: ReadCall, nowMs: number): boolean {
      let nothingLeft = false;
      let tokensBackMs: number | undefined;
      for (const quota of quotas) {
        if ((disbelievedUntilMs.get(quota.name) ?? -Infinity) > nowMs) continue;
        disbelievedUntilMs.delete(quota.name);
        if (quota.remaining === 0) {
          nothingLeft = true;
          nothingLeftMs = quota.resetMs ?? patienceMs;
        }
        if (quota.unit === "requests" || countsTokens) follow(quota, call, nowMs);
        else
          tokensBackMs = Math.max(
            tokensBackMs ?? 0,
            quota.remaining === 0 ? (quota.resetMs ?? 0) : 0,
          );
      }
      if (tokensBackMs !== undefined) {
        noTokensUntilMs = tokensBackMs > 0 ? nowMs + Math.min(tokensBackMs, patienceMs) : 0;
      }
      return nothingLeft;
    },

    /** A call has ended. Returns whether it was refused although something remained. */
    ended(call: EndedCall, { kind, comesBack, begun }: Ending, nowMs: number): boolean {
      if (kind === "success") {
        misses = 0;
        forgetUnstated(nowMs);
      }
      if (kind === "throttled" && call.sawNothingLeft && call.number > missedUpTo) {
        misses++;
        missedUpTo = begun;
        // What was believed to be back isn't. Unless the downstream says when it is, it is tried ever later.
        const backMs = Math.min(firstMissMs * 2 ** (misses - 1), nothingLeftMs, patienceMs);
        if (!comesBack) missedUntilMs = nowMs + backMs;
      }
      for (const name of call.tried) {
        const each = followed.get(name);
        if (!each) continue;
        if (kind === "throttled") {
          each.tries++;
          each.contradictions = 0;
        } else if (kind === "success") {
          each.tries = 0;
          each.contradictions++;
        }
        each.tryAtMs = nowMs + tryAfterMs(each);
        if (each.contradictions < maxContradictions) continue;
        followed.delete(name);
        // Names come from outside. Those that were stated long ago need not be kept.
        if (disbelievedUntilMs.size >= maxDisbelieved) disbelievedUntilMs.clear();
        disbelievedUntilMs.set(name, nowMs + disbeliefMs);
      }
      return kind === "throttled" && followed.size > 0 && !call.sawNothingLeft;
    },

    /** How long until a call may begin. */
    waitMs(estimate: number, nowMs: number): number {
      if (followed.size === 0 && noTokensUntilMs === 0) return 0;
      let waitMs = Math.max(0, noTokensUntilMs - nowMs, missedUntilMs - nowMs);
      for (const each of followed.values())
        waitMs = Math.max(waitMs, waitOf(each, estimate, nowMs));
      return waitMs;
    },

    /** How many calls may begin at once, up to `max`. At least one: the caller has checked `waitMs`. */
    affordableCalls(estimate: number, max: number, nowMs: number): number {
      let found = max;
      for (const each of followed.values()) {
        fill(each, nowMs);
        const cost = costOf(each, estimate);
        if (cost <= 0) continue;
        const free = (each.level - marginOf(each, part)) * part;
        found = Math.min(found, Math.max(1, Math.floor(free / cost + tiny)));
      }
      return found;
    },

    /** A call begins. Returns the limits that it tries although nothing remains. */
    take(estimate: number, nowMs: number): readonly string[] {
      if (followed.size === 0) return noNames;
      let tried = noNames;
      for (const [name, each] of followed) {
        fill(each, nowMs);
        if (nowMs >= each.tryAtMs) {
          const short = each.level < neededFor(each, estimate);
          if (short) tried = [...tried, name];
          each.tryAtMs = short ? nowMs + tryAfterMs(each) : Infinity;
        }
        const cost = costOf(each, estimate);
        each.begun += cost;
        if (part > 0) each.level -= cost / part;
      }
      return tried;
    },

    /** The requests per second that the limits allow for long. 0 where that isn't known. */
    promisedPerS(): number {
      let least = Infinity;
      for (const { unit, limit, windowMs } of followed.values()) {
        if (unit === "tokens") continue;
        if (limit === undefined || windowMs === undefined) return 0;
        least = Math.min(least, (limit / windowMs) * 1_000);
      }
      return least === Infinity ? 0 : least;
    },

    get any() {
      return followed.size > 0;
    },
  };
}

const noNames: readonly string[] = [];
// Sums of parts of units aren't exact.
const tiny = 1e-9;

/** Three standard deviations hold back all but a thousandth of the calls that would be too many. */
const deviations = 3;
/** What other pods haven't used of their parts is divided anew with each answer, though they may still use it. */
const undivided = 0.5;

/** What stays unused, because other pods have begun about as much as their parts, by chance more. */
function marginOf({ begun }: Followed, part: number): number {
  if (part <= 0 || part >= 1) return 0;
  return deviations * Math.sqrt(begun * (1 / part - 1)) + undivided / part;
}

function tryAfterMs({ contradictions, tries }: Followed): number {
  return contradictions > 0 ? nextTryMs : Math.min(patienceMs, firstTryMs * 2 ** tries);
}

/** The share of a window in which a limit that has just been reset must still be almost whole. */
const freshShare = 0.05;
const wholeShare = 0.25;

/** Just after its reset a limit is almost whole. One that isn't comes back steadily. */
function refillsOf(
  { limit, remaining, refills }: Quota,
  before: Followed | undefined,
  windowMs: number | undefined,
  { beganMs }: ReadCall,
): Quota["refills"] {
  if (!before || refills === "steadily" || windowMs === undefined) return refills;
  if (before.refills === "steadily") return "steadily";
  const sinceMs = beganMs - before.wasResetMs;
  const fresh = sinceMs >= 0 && sinceMs < windowMs * freshShare;
  return fresh && limit !== undefined && remaining < limit * wholeShare ? "steadily" : refills;
}
