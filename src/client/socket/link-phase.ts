import type { FlotillaError } from "../../base/errors.ts";
import type { ConnectionState, ErrorLike } from "./status.ts";

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

export type Phase =
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

export type LinkStep = { readonly link: Link; readonly effects: readonly LinkEffect[] };

/** When it is, and a fraction by chance. */
export type Moment = { readonly nowMs: number; readonly chance: number };

/** Who was silent for so long is pinged. */
export const silenceMs = 15_000;

/** So many take about a quarter of a minute, in which a server that is being replaced is there again. */
export const strayMost = 7;

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
