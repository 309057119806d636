import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";

export type ClientOptions = {
  /** Where the server is. Default in a browser: where the page comes from. */
  url?: string;
  /**
   * A key or token, or what gets one: asked before each connection and request that needs a fresh one,
   * and again before it expires.
   */
  token?: string | (() => string | Promise<string>);
  /** Who speaks, on a server without keys and tokens, or for whom a key acts. */
  user?: string;
  /** For which tenant a key acts that is of none. */
  tenant?: string;
  /** What may wait for its ack, at most; more is refused with `overloaded`. Default 256. */
  maxUnacked?: number;
  fetch?: Fetch;
  WebSocket?: SocketClass;
  clock?: Clock;
  random?: Random;
  /** Ids of messages that are given none. Default: 128 bits of chance. */
  newId?: () => string;
  network?: Network;
};

export type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

/** What we use of a WebSocket, which browsers and Node have alike. */
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

/** What the surroundings know of the network and of sleep. */
export type Network = {
  isOnline(): boolean;
  /** Calls back when the network came or went, or the program was asleep or hidden. */
  onChange(callback: (change: "online" | "offline" | "awake") => void): () => void;
};
