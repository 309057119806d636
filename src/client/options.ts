import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";

export type ClientOptions = {
  /** The server's URL. Default in a browser: the page's origin. */
  url?: string;
  /**
   * A key or token, or a function that gets one. It is called for each connection and request that needs
   * a fresh one, and again before it expires.
   */
  token?: string | (() => string | Promise<string>);
  /** The user on a server without keys and tokens, or the user that a key acts for. */
  user?: string;
  /** The tenant that a key of no tenant acts for. */
  tenant?: string;
  /** How many frames may wait for their acks; more are refused with `overloaded`. Default 256. */
  maxUnacked?: number;
  fetch?: Fetch;
  WebSocket?: SocketClass;
  clock?: Clock;
  random?: Random;
  /** Makes the ids of messages without one. Default: 128 random bits. */
  newId?: () => string;
  network?: Network;
};

export type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

/** The part of a WebSocket that browsers and Node share. */
export type SocketLike = {
  readonly readyState: number;
  send(text: string): void;
  close(code?: number, reason?: string): void;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
};

export type SocketClass = new (url: string, protocols: string[]) => SocketLike;

/** Reports changes of the network and wake-ups. */
export type Network = {
  isOnline(): boolean;
  /** Calls back when the network comes or goes, or when the program was asleep or hidden. */
  onChange(callback: (change: "online" | "offline" | "awake") => void): () => void;
};
