import { type ErrorCode, FlotillaError } from "../../base/errors.ts";
import type { closeCodes } from "../../protocol/frames.ts";
import { jitteredMs } from "../backoff.ts";
import type { ConnectionState, ErrorLike } from "./status.ts";

/**
 * When a client connects, and when it abandons a connection. Connections are numbered, and events of an
 * older one are ignored.
 *
 * `idle` while no connection is wanted. `opening` until the server sends hello, or until the reason of
 * the failure is known. `open` while frames arrive; a silent server is pinged. `waiting` for the next
 * try. `offline` while the network is reported as down. `refused` until `reconnect`, or, where another
 * program answered, until the network changes. `closed` for good.
 */
export type SocketState = {
  readonly phase: Phase;
  /** The number of the newest connection. */
  readonly connection: number;
  /** Whether anything is followed or waits to be sent. */
  readonly isWanted: boolean;
  readonly isOnline: boolean;
  /** Whether a refused token can be replaced. */
  readonly isRenewable: boolean;
  /** Failed tries since the last stable connection. */
  readonly failures: number;
  /** Consecutive tries that another program answered; -Infinity once Flotilla has. */
  readonly notFounds: number;
  /** Whether this connection uses a token that replaced a refused one. */
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
      /** It was pinged, and is abandoned where nothing arrives by then. */
      readonly answerByMs?: number | undefined;
      readonly renewAtMs?: number | undefined;
      /** No connection is wanted any more: it ends then. */
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

export type SocketInput =
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
  /** It couldn't be opened; the reason as far as it is known. */
  | {
      readonly type: "failed";
      readonly connection: number;
      readonly error: ErrorLike;
    }
  | {
      readonly type: "renewed";
      readonly connection: number;
      /** Undefined where it failed. */
      readonly expiresInMs?: number | undefined;
    }
  /** The timer fired; late where the machine was asleep. */
  | { readonly type: "tick"; readonly lateMs: number }
  | { readonly type: "reconnect" }
  | { readonly type: "close" };

export type SocketEffect = {
  /**
   * `open`: with a new token where the state `isFresh`, else with the current one. `examine`: find out
   * over HTTP why it couldn't be opened.
   */
  readonly type: "open" | "examine" | "drop" | "ping" | "renew";
  readonly connection: number;
};

type SocketStep = { readonly state: SocketState; readonly effects: readonly SocketEffect[] };

/** The time, and a random fraction. */
type Moment = { readonly nowMs: number; readonly chance: number };

// Copies of the numbers, so that a page doesn't load the close codes that it never uses.
const expired: (typeof closeCodes)["expired"] = 4401;
const goingAway: (typeof closeCodes)["goingAway"] = 1001;
const tooMany: (typeof closeCodes)["tooMany"] = 4429;
const openTimeoutMs = 10_000;
const stableMs = 5_000;
const freshStableMs = 1_000;
const goingAwayRetryMs = 500;
const tooManyRetryMs = 5_000;
const pongTimeoutMs = 10_000;
const probeTimeoutMs = 3_000;
const sleptMs = 10_000;
const offlineRetryMs = 30_000;
const idleCloseMs = 10_000;
const renewMarginMs = 60_000;
const renewRetryMs = 5_000;
/** How long a server may be silent before it is pinged. */
const silenceMs = 15_000;
/** So many tries take about 15 seconds, in which a server that is being replaced is back. */
const maxNotFounds = 7;
const idle: Phase = { at: "idle" };

/** Decides the next state and its effects; `createSocket` performs them. */
export function advanceSocket(state: SocketState, event: SocketInput, moment: Moment): SocketStep {
  const { phase } = state;
  if (phase.at === "closed") return stay(state);
  if ("connection" in event && event.connection !== state.connection) return stay(state);
  const { nowMs } = moment;
  switch (event.type) {
    case "wanted":
      return want({ ...state, isWanted: event.isWanted }, moment);
    case "network":
      return onNetworkChange(state, event.change, moment);
    case "hello": {
      if (phase.at !== "opening") return stay(state);
      const { tenant, user, expiresInMs } = event;
      const renewAtMs = renewalAtMs(state, expiresInMs, nowMs);
      const open: Phase = { at: "open", tenant, user, sinceMs: nowMs, heardMs: nowMs, renewAtMs };
      return want({ ...state, phase: open, notFounds: -Infinity }, moment);
    }
    case "heard":
      if (phase.at !== "open") return stay(state);
      return stay(state, { ...phase, heardMs: nowMs, answerByMs: undefined });
    case "ended":
      if (phase.at === "open")
        return lose(state, moment, { message: `the connection ended (${event.code})` }, event.code);
      // Sockets don't report why they couldn't be opened.
      if (phase.at !== "opening" || phase.isExamined) return stay(state);
      return act(state, "examine", { ...phase, isExamined: true });
    case "failed":
      return phase.at === "opening" ? fail(state, event.error, moment) : stay(state);
    case "renewed": {
      if (phase.at !== "open") return stay(state);
      const { expiresInMs } = event;
      const renewAtMs =
        expiresInMs === undefined ? nowMs + renewRetryMs : renewalAtMs(state, expiresInMs, nowMs);
      return stay(state, { ...phase, renewAtMs });
    }
    case "tick":
      return tick(state, event.lateMs, moment);
    case "reconnect": {
      const { effects, state: ended } = end(state);
      const again = connect(withoutFailures(ended), moment, true);
      return { state: again.state, effects: [...effects, ...again.effects] };
    }
    case "close":
      return end(state, { at: "closed" });
  }
}

export function initialSocketState(options: {
  isOnline: boolean;
  isRenewable: boolean;
}): SocketState {
  return {
    ...options,
    phase: { at: "idle" },
    connection: 0,
    isWanted: false,
    failures: 0,
    notFounds: 0,
    isFresh: false,
  };
}

/** The time of the next `tick`. */
export function dueMs({ phase }: SocketState): number | undefined {
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

export function connectionStateOf({ phase, failures }: SocketState): ConnectionState {
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

const stay = (state: SocketState, phase = state.phase): SocketStep => ({
  state: { ...state, phase },
  effects: [],
});
const act = (state: SocketState, type: SocketEffect["type"], phase = state.phase): SocketStep => ({
  state: { ...state, phase },
  effects: [{ type, connection: state.connection }],
});
const withoutFailures = (state: SocketState): SocketState => ({
  ...state,
  failures: 0,
  notFounds: Math.min(state.notFounds, 0),
});

function want(state: SocketState, moment: Moment): SocketStep {
  const { phase, isWanted } = state;
  if (phase.at === "open") {
    const endAtMs = isWanted ? undefined : (phase.endAtMs ?? moment.nowMs + idleCloseMs);
    return stay(state, { ...phase, endAtMs });
  }
  if (isWanted) return phase.at === "idle" ? connect(state, moment) : stay(state);
  return phase.at === "refused" ? stay(state) : end(withoutFailures(state));
}

function onNetworkChange(
  state: SocketState,
  change: "online" | "offline" | "awake",
  moment: Moment,
): SocketStep {
  const isOnline = change === "awake" ? state.isOnline : change === "online";
  const now: SocketState = { ...state, isOnline };
  const { phase } = now;
  // The browser's report may be wrong, and comes late after sleep: so ping.
  if (phase.at === "open") return probe(now, probeTimeoutMs, moment);
  if (change === "offline") {
    if (phase.at !== "waiting" && phase.at !== "opening") return stay(now);
    return end(now, offline(moment));
  }
  // A captive portal may have answered in the server's place, so a refusal may be void now.
  const isRefused = phase.at === "refused" && phase.error.code === "unauthorized";
  if (phase.at === "opening" || isRefused || !isOnline) return stay(now);
  return connect(withoutFailures(now), moment);
}

function tick(state: SocketState, lateMs: number, moment: Moment): SocketStep {
  const { phase } = state;
  const { nowMs } = moment;
  switch (phase.at) {
    case "opening":
      return nowMs < phase.giveUpAtMs ? stay(state) : giveUp(state, moment);
    case "waiting":
      return nowMs < phase.untilMs ? stay(state) : connect(state, moment);
    case "offline":
      return nowMs < phase.tryAtMs ? stay(state) : connect(state, moment, true);
    case "open": {
      // During sleep nothing arrives: so ping, with a short time to answer.
      if (lateMs > sleptMs) return probe(state, probeTimeoutMs, moment);
      const { answerByMs, renewAtMs, endAtMs, heardMs } = phase;
      if (endAtMs !== undefined && nowMs >= endAtMs) return end(state);
      if (answerByMs !== undefined && nowMs >= answerByMs) return giveUp(state, moment);
      if (renewAtMs !== undefined && nowMs >= renewAtMs) {
        // The token function may take long, and is called once at a time.
        return act(state, "renew", { ...phase, renewAtMs: undefined });
      }
      const isSilent = answerByMs === undefined && nowMs >= heardMs + silenceMs;
      return isSilent ? probe(state, pongTimeoutMs, moment) : stay(state);
    }
    case "idle":
    case "refused":
    case "closed":
      return stay(state);
  }
}

function probe(state: SocketState, withinMs: number, { nowMs }: Moment): SocketStep {
  const { phase } = state;
  if (phase.at !== "open") return stay(state);
  return act(state, "ping", { ...phase, answerByMs: nowMs + withinMs });
}

function connect(state: SocketState, moment: Moment, isForced = false): SocketStep {
  if (!state.isWanted) return stay(state, idle);
  if (!state.isOnline && !isForced) return stay(state, offline(moment));
  return open(state, moment, false);
}

function open(state: SocketState, { nowMs }: Moment, isFresh: boolean): SocketStep {
  const phase: Phase = { at: "opening", giveUpAtMs: nowMs + openTimeoutMs, isExamined: false };
  return act({ ...state, connection: state.connection + 1, isFresh }, "open", phase);
}

const offline = ({ nowMs }: Moment): Phase => ({ at: "offline", tryAtMs: nowMs + offlineRetryMs });

/** Ends the current connection, without another. */
function end(state: SocketState, next = idle): SocketStep {
  const { phase, connection } = state;
  const hasSocket = phase.at === "open" || phase.at === "opening";
  return {
    // Events of the old connection have an older number.
    state: { ...state, phase: next, connection: connection + 1 },
    effects: hasSocket ? [{ type: "drop", connection }] : [],
  };
}

function fail(state: SocketState, error: ErrorLike, moment: Moment): SocketStep {
  const notFounds = error.code === "not_found" ? state.notFounds + 1 : Math.min(state.notFounds, 0);
  const now: SocketState = { ...state, notFounds };
  if (error.code === "unauthorized") return refuse(now, error, moment);
  // Where Flotilla never answered, the URL is wrong. Where it did, the server is being replaced.
  if (notFounds > maxNotFounds)
    return refused(now, "invalid_option", `wrong url: ${error.message}`);
  return lose(now, moment, error);
}

function giveUp(state: SocketState, moment: Moment): SocketStep {
  return act(fail(state, { message: "the server fell silent" }, moment).state, "drop");
}

function lose(state: SocketState, moment: Moment, error: ErrorLike, code?: number): SocketStep {
  const { nowMs, chance } = moment;
  if (code === expired) {
    return refuse(state, { code: "unauthorized", message: "no longer authorized" }, moment);
  }
  if (!state.isWanted) return stay(withoutFailures(state), idle);
  if (!state.isOnline) return stay(state, offline(moment));
  // A server that accepted the connection, however briefly, is retried sooner than an unreachable one.
  const before = state.phase.at === "open" ? Math.min(state.failures, 3) : state.failures;
  const failures = wasOpenFor(state, stableMs, nowMs) ? 1 : before + 1;
  let retryInMs = jitteredMs(failures, chance);
  if (code === goingAway && failures === 1) retryInMs = Math.round(chance * goingAwayRetryMs);
  if (code === tooMany) retryInMs = Math.round(tooManyRetryMs * (1 + chance));
  const untilMs = nowMs + retryInMs;
  return stay({ ...state, failures }, { at: "waiting", untilMs, retryInMs, error });
}

/** Gets another token once: where that one is refused too, a third would not help. */
function refuse(state: SocketState, { message }: ErrorLike, moment: Moment): SocketStep {
  const wasFresh = state.isFresh && !wasOpenFor(state, freshStableMs, moment.nowMs);
  if (state.isRenewable && !wasFresh) {
    return state.isWanted ? open(state, moment, true) : stay(state, idle);
  }
  return refused(
    state,
    "unauthorized",
    `refused: ${message}. With a valid token, call reconnect()`,
  );
}

function refused(state: SocketState, code: ErrorCode, message: string): SocketStep {
  return stay(state, { at: "refused", error: new FlotillaError(code, message) });
}

function wasOpenFor({ phase }: SocketState, forMs: number, nowMs: number): boolean {
  return phase.at === "open" && nowMs - phase.sinceMs >= forMs;
}

/** The time to renew a token before it expires, by this side's clock, which may be wrong by hours. */
function renewalAtMs(
  { isRenewable }: SocketState,
  expiresInMs: number | undefined,
  nowMs: number,
): number | undefined {
  if (!isRenewable || expiresInMs === undefined) return undefined;
  if (expiresInMs <= 0) return nowMs + renewMarginMs / 2;
  return nowMs + Math.max(expiresInMs - renewMarginMs, expiresInMs * 0.75);
}
