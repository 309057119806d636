import { type ErrorCode, FlotillaError } from "../../base/errors.ts";
import type { closeCodes } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import type { ConnectionState, ErrorLike } from "./status.ts";

// Numbers of their own, so that a page doesn't load those that it never hears.
const expired: (typeof closeCodes)["expired"] = 4401;
const goingAway: (typeof closeCodes)["goingAway"] = 1001;
const tooMany: (typeof closeCodes)["tooMany"] = 4429;

const openMs = 10_000;
const heldMs = 5_000;
const freshHeldMs = 1_000;
const goingAwayMs = 500;
const tooManyMs = 5_000;
const answerMs = 10_000;
const probeMs = 3_000;
const asleepMs = 10_000;
const offlineTryMs = 30_000;
const lingerMs = 10_000;
const renewMarginMs = 60_000;
const renewAgainMs = 5_000;

/** Decides; never does. */
export function advance(link: Link, event: LinkEvent, moment: Moment): LinkStep {
  const { phase } = link;
  if (phase.at === "closed") return stay(link);
  if ("connection" in event && event.connection !== link.connection) return stay(link);
  const { nowMs } = moment;
  switch (event.type) {
    case "wanted":
      return want({ ...link, isWanted: event.isWanted }, moment);
    case "network":
      return heed(link, event.change, moment);
    case "hello": {
      if (phase.at !== "opening") return stay(link);
      const { tenant, user, expiresInMs } = event;
      const renewAtMs = renewalMs(link, expiresInMs, nowMs);
      const open: Phase = { at: "open", tenant, user, sinceMs: nowMs, heardMs: nowMs, renewAtMs };
      return want({ ...link, phase: open, strays: -Infinity }, moment);
    }
    case "heard":
      if (phase.at !== "open") return stay(link);
      return stay(link, { ...phase, heardMs: nowMs, answerByMs: undefined });
    case "ended":
      if (phase.at === "open")
        return lose(link, moment, { message: `the connection ended (${event.code})` }, event.code);
      // Sockets don't tell why they couldn't be opened.
      if (phase.at !== "opening" || phase.isExamined) return stay(link);
      return act(link, "examine", { ...phase, isExamined: true });
    case "failed":
      return phase.at === "opening" ? fail(link, event.error, moment) : stay(link);
    case "renewed": {
      if (phase.at !== "open") return stay(link);
      const { expiresInMs } = event;
      const renewAtMs =
        expiresInMs === undefined ? nowMs + renewAgainMs : renewalMs(link, expiresInMs, nowMs);
      return stay(link, { ...phase, renewAtMs });
    }
    case "tick":
      return tick(link, event.lateMs, moment);
    case "reconnect": {
      const { effects, link: ended } = end(link);
      const again = connect(anew(ended), moment, true);
      return { link: again.link, effects: [...effects, ...again.effects] };
    }
    case "close":
      return end(link, { at: "closed" });
  }
}

const stay = (link: Link, phase = link.phase): LinkStep => ({
  link: { ...link, phase },
  effects: [],
});
const act = (link: Link, type: LinkEffect["type"], phase = link.phase): LinkStep => ({
  link: { ...link, phase },
  effects: [{ type, connection: link.connection }],
});
const anew = (link: Link): Link => ({ ...link, failures: 0, strays: Math.min(link.strays, 0) });

function want(link: Link, moment: Moment): LinkStep {
  const { phase, isWanted } = link;
  if (phase.at === "open") {
    const endAtMs = isWanted ? undefined : (phase.endAtMs ?? moment.nowMs + lingerMs);
    return stay(link, { ...phase, endAtMs });
  }
  if (isWanted) return phase.at === "idle" ? connect(link, moment) : stay(link);
  return phase.at === "refused" ? stay(link) : end(anew(link));
}

function heed(link: Link, change: "online" | "offline" | "awake", moment: Moment): LinkStep {
  const isOnline = change === "awake" ? link.isOnline : change === "online";
  const now: Link = { ...link, isOnline };
  const { phase } = now;
  // What the browser says of the network may be wrong, and what it says after sleep is late.
  if (phase.at === "open") return probe(now, probeMs, moment);
  if (change === "offline") {
    if (phase.at !== "waiting" && phase.at !== "opening") return stay(now);
    return end(now, offline(moment));
  }
  // Networks that ask for a login first answer in the server's place.
  const isRefused = phase.at === "refused" && phase.error.code === "unauthorized";
  if (phase.at === "opening" || isRefused || !isOnline) return stay(now);
  return connect(anew(now), moment);
}

function tick(link: Link, lateMs: number, moment: Moment): LinkStep {
  const { phase } = link;
  const { nowMs } = moment;
  switch (phase.at) {
    case "opening":
      return nowMs < phase.giveUpAtMs ? stay(link) : giveUp(link, moment);
    case "waiting":
      return nowMs < phase.untilMs ? stay(link) : connect(link, moment);
    case "offline":
      return nowMs < phase.tryAtMs ? stay(link) : connect(link, moment, true);
    case "open": {
      // Asleep meanwhile, nothing could be heard: it is asked, and has a little time to answer.
      if (lateMs > asleepMs) return probe(link, probeMs, moment);
      const { answerByMs, renewAtMs, endAtMs, heardMs } = phase;
      if (endAtMs !== undefined && nowMs >= endAtMs) return end(link);
      if (answerByMs !== undefined && nowMs >= answerByMs) return giveUp(link, moment);
      if (renewAtMs !== undefined && nowMs >= renewAtMs) {
        // Whoever gets the token may take long, and is asked once at a time.
        return act(link, "renew", { ...phase, renewAtMs: undefined });
      }
      const isSilent = answerByMs === undefined && nowMs >= heardMs + silenceMs;
      return isSilent ? probe(link, answerMs, moment) : stay(link);
    }
    case "idle":
    case "refused":
    case "closed":
      return stay(link);
  }
}

function probe(link: Link, withinMs: number, { nowMs }: Moment): LinkStep {
  const { phase } = link;
  if (phase.at !== "open") return stay(link);
  return act(link, "ping", { ...phase, answerByMs: nowMs + withinMs });
}

function connect(link: Link, moment: Moment, isForced = false): LinkStep {
  if (!link.isWanted) return stay(link, idle);
  if (!link.isOnline && !isForced) return stay(link, offline(moment));
  return open(link, moment, false);
}

function open(link: Link, { nowMs }: Moment, isFresh: boolean): LinkStep {
  const phase: Phase = { at: "opening", giveUpAtMs: nowMs + openMs, isExamined: false };
  return act({ ...link, connection: link.connection + 1, isFresh }, "open", phase);
}

const idle: Phase = { at: "idle" };
const offline = ({ nowMs }: Moment): Phase => ({ at: "offline", tryAtMs: nowMs + offlineTryMs });

/** Ends what there is, and does nothing more. */
function end(link: Link, next = idle): LinkStep {
  const { phase, connection } = link;
  const hasSocket = phase.at === "open" || phase.at === "opening";
  return {
    // Whatever the old one still says is of another number.
    link: { ...link, phase: next, connection: connection + 1 },
    effects: hasSocket ? [{ type: "drop", connection }] : [],
  };
}

function fail(link: Link, error: ErrorLike, moment: Moment): LinkStep {
  const strays = error.code === "not_found" ? link.strays + 1 : Math.min(link.strays, 0);
  const now: Link = { ...link, strays };
  if (error.code === "unauthorized") return refuse(now, error, moment);
  // Where a server of ours never was, another try leads nowhere. One that was is being replaced.
  if (strays > strayMost) return refused(now, "invalid_option", `wrong url: ${error.message}`);
  return lose(now, moment, error);
}

function giveUp(link: Link, moment: Moment): LinkStep {
  return act(fail(link, { message: "the server fell silent" }, moment).link, "drop");
}

function lose(link: Link, moment: Moment, error: ErrorLike, code?: number): LinkStep {
  const { nowMs, chance } = moment;
  if (code === expired) {
    return refuse(link, { code: "unauthorized", message: "the token has expired" }, moment);
  }
  if (!link.isWanted) return stay(anew(link), idle);
  if (!link.isOnline) return stay(link, offline(moment));
  // One that was open, however briefly, is there: it is tried sooner than one that can't be reached.
  const before = link.phase.at === "open" ? Math.min(link.failures, 3) : link.failures;
  const failures = hasHeld(link, heldMs, nowMs) ? 1 : before + 1;
  let retryInMs = jitteredMs(failures, chance);
  if (code === goingAway && failures === 1) retryInMs = Math.round(chance * goingAwayMs);
  if (code === tooMany) retryInMs = Math.round(tooManyMs * (1 + chance));
  const untilMs = nowMs + retryInMs;
  return stay({ ...link, failures }, { at: "waiting", untilMs, retryInMs, error });
}

/** Another token is asked for once: were that one refused too, asking again would lead nowhere. */
function refuse(link: Link, { message }: ErrorLike, moment: Moment): LinkStep {
  const wasFresh = link.isFresh && !hasHeld(link, freshHeldMs, moment.nowMs);
  if (link.isRenewable && !wasFresh) {
    return link.isWanted ? open(link, moment, true) : stay(link, idle);
  }
  return refused(
    link,
    "unauthorized",
    `not let in: ${message}. With a good token, call reconnect()`,
  );
}

function refused(link: Link, code: ErrorCode, message: string): LinkStep {
  return stay(link, { at: "refused", error: new FlotillaError(code, message) });
}

function hasHeld({ phase }: Link, forMs: number, nowMs: number): boolean {
  return phase.at === "open" && nowMs - phase.sinceMs >= forMs;
}

/** Before it expires, by the clock of this side, which may be wrong by hours. */
function renewalMs(
  { isRenewable }: Link,
  expiresInMs: number | undefined,
  nowMs: number,
): number | undefined {
  if (!isRenewable || expiresInMs === undefined) return undefined;
  if (expiresInMs <= 0) return nowMs + renewMarginMs / 2;
  return nowMs + Math.max(expiresInMs - renewMarginMs, expiresInMs * 0.75);
}

/**
 * When a client connects, and when it gives a connection up. Connections are numbered: what an older
 * one still says isn't heeded.
 *
 * `idle` until something is wanted. `opening` until the server says hello, or until it is known why it
 * doesn't. `open` while anything is heard; who is silent is pinged. `waiting` for the next try.
 * `offline` where the network is said to be away. `refused` until `reconnect`, or, where another
 * program answered, until the network changes. `closed` for good.
 */
export type Link = {
  readonly phase: Phase;
  /** The number of the newest connection. */
  readonly connection: number;
  /** Whether anything is followed or waits to be sent. */
  readonly isWanted: boolean;
  readonly isOnline: boolean;
  /** Whether another token can be had where one is refused. */
  readonly isRenewable: boolean;
  /** Tries that have failed since a connection last held. */
  readonly failures: number;
  /** How many in a row found another program there: below any number, once it was ours. */
  readonly strays: number;
  /** Whether this try, or the connection that it led to, is with a token got because one was refused. */
  readonly isFresh: boolean;
};

type Phase =
  | { readonly at: "idle" | "closed" }
  | { readonly at: "opening"; readonly giveUpAtMs: number; readonly isExamined: boolean }
  | {
      readonly at: "open";
      readonly tenant: string;
      readonly user?: string | undefined;
      readonly sinceMs: number;
      readonly heardMs: number;
      /** It was pinged, and is given up if nothing is heard by then. */
      readonly answerByMs?: number | undefined;
      readonly renewAtMs?: number | undefined;
      /** Nothing is wanted any more: it ends then. */
      readonly endAtMs?: number | undefined;
    }
  | {
      readonly at: "waiting";
      readonly untilMs: number;
      readonly retryInMs: number;
      readonly error: ErrorLike;
    }
  | { readonly at: "offline"; readonly tryAtMs: number }
  | { readonly at: "refused"; readonly error: FlotillaError };

export type LinkEvent =
  | { readonly type: "wanted"; readonly isWanted: boolean }
  | { readonly type: "network"; readonly change: "online" | "offline" | "awake" }
  | {
      readonly type: "hello";
      readonly connection: number;
      readonly tenant: string;
      readonly user?: string | undefined;
      readonly expiresInMs?: number | undefined;
    }
  | { readonly type: "heard"; readonly connection: number }
  | { readonly type: "ended"; readonly connection: number; readonly code: number }
  /** It couldn't be opened, and why, as far as could be found out. */
  | {
      readonly type: "failed";
      readonly connection: number;
      readonly error: ErrorLike;
    }
  | {
      readonly type: "renewed";
      readonly connection: number;
      /** Undefined where it didn't work. */
      readonly expiresInMs?: number | undefined;
    }
  /** Time has passed; later than it should be, where the machine was asleep. */
  | { readonly type: "tick"; readonly lateMs: number }
  | { readonly type: "reconnect" }
  | { readonly type: "close" };

export type LinkEffect = {
  /**
   * `open`: with a token that is got anew where the link `isFresh`, else with the one that there is.
   * `examine`: find out why it couldn't be opened, which sockets don't tell.
   */
  readonly type: "open" | "examine" | "drop" | "ping" | "renew";
  readonly connection: number;
};

type LinkStep = { readonly link: Link; readonly effects: readonly LinkEffect[] };

/** When it is, and a fraction by chance. */
type Moment = { readonly nowMs: number; readonly chance: number };

/** Who was silent for so long is pinged. */
const silenceMs = 15_000;

/** So many take about a quarter of a minute, in which a server that is being replaced is there again. */
const strayMost = 7;

export function newLink(options: { isOnline: boolean; isRenewable: boolean }): Link {
  return {
    ...options,
    phase: { at: "idle" },
    connection: 0,
    isWanted: false,
    failures: 0,
    strays: 0,
    isFresh: false,
  };
}

/** When the next `tick` is needed. */
export function dueMs({ phase }: Link): number | undefined {
  switch (phase.at) {
    case "opening":
      return phase.giveUpAtMs;
    case "waiting":
      return phase.untilMs;
    case "offline":
      return phase.tryAtMs;
    case "open": {
      const { heardMs, answerByMs = heardMs + silenceMs, renewAtMs, endAtMs } = phase;
      return Math.min(answerByMs, renewAtMs ?? Infinity, endAtMs ?? Infinity);
    }
    case "idle":
    case "refused":
    case "closed":
      return undefined;
  }
}

export function stateOf({ phase, failures }: Link): ConnectionState {
  switch (phase.at) {
    case "idle":
    case "closed":
    case "offline":
      return { status: phase.at };
    case "opening":
      return { status: "connecting", attempt: failures + 1 };
    case "open": {
      const { tenant, user } = phase;
      return { status: "open", tenant, ...(user !== undefined && { user }) };
    }
    case "waiting": {
      const { retryInMs, error } = phase;
      return { status: "waiting", attempt: failures, retryInMs, error };
    }
    case "refused":
      return { status: "refused", error: phase.error };
  }
}
