import type { Clock } from "../../base/clock.ts";
import { fraction, type Random } from "../../base/random.ts";
import { type ServerFrame, subprotocol } from "../../protocol/frames.ts";
import type { ConnectionState } from "./status.ts";
import { asError, type Credentials, type Http } from "../http.ts";
import {
  advance,
  dueMs,
  type LinkEffect,
  type LinkEvent,
  newLink,
  stateOf,
} from "./connection-state.ts";
import type { Network, SocketClass, SocketLike } from "../options.ts";
import { createListeners, type Store } from "../observable.ts";

export type Hello = Extract<ServerFrame, { type: "hello" }>;

/** The one connection of a client, made again whenever it ends, for as long as anything is wanted. */
export type Socket = {
  readonly state: Store<ConnectionState>;
  /** Only where it is open. */
  send(text: string): void;
  want(isWanted: boolean): void;
  reconnect(): void;
  close(): void;
};

export type SocketParts = {
  url: () => string;
  WebSocket: () => SocketClass;
  credentials: Credentials;
  /** For whom a program without a token acts. */
  user?: string | undefined;
  tenant?: string | undefined;
  http: Http;
  network: Network;
  clock: Clock;
  random: Random;
  onOpen: (hello: Hello) => void;
  /** There is no connection any more, or it couldn't be made. */
  onLost: () => void;
  onFrames: (frames: readonly ServerFrame[]) => void;
  ping: () => void;
  /** Sends a new token; gives until when it is good. */
  renew: (token: string) => Promise<number | undefined>;
};

/** What a subprotocol can carry. Other keys are exchanged for a ticket. */
const carried = /^[\w!#$%&'*+.^`|~-]+$/;

export function createSocket(parts: SocketParts): Socket {
  const { credentials, network, clock, random } = parts;
  const listeners = createListeners();
  let link = newLink({ isOnline: true, isRenewable: credentials.isRenewable });
  let state = stateOf(link);
  let socket: SocketLike | undefined;
  let isOpen = false;
  let cancelTick: (() => void) | undefined;
  let stopNetwork: (() => void) | undefined;

  const happen = (event: LinkEvent): void => {
    const before = link;
    const moment = { nowMs: clock.monotonic(), chance: fraction(random) };
    const step = advance(link, event, moment);
    link = step.link;
    if (before.phase !== link.phase) plan();
    for (const effect of step.effects) perform[effect.type](effect.connection);
    const wasOpen = isOpen;
    isOpen = link.phase.at === "open";
    const hasFailed = before.phase.at === "opening" && !isOpen && link.phase.at !== "opening";
    const next = stateOf(link);
    const hasChanged = JSON.stringify(next) !== JSON.stringify(state);
    if (hasChanged) state = next;
    if (wasOpen ? !isOpen : hasFailed) parts.onLost();
    if (hasChanged) listeners.tell();
  };

  /** Sets the one timer for whatever is next. */
  const plan = () => {
    cancelTick?.();
    cancelTick = undefined;
    const atMs = dueMs(link);
    if (atMs === undefined) return;
    const nowMs = clock.monotonic();
    // What was due while the machine slept is done at once, and isn't late again.
    const waitMs = Math.max(0, atMs - nowMs);
    const wallMs = clock.now() + waitMs;
    cancelTick = clock.after(waitMs, () => {
      // Some clocks stand still while a machine sleeps, and others don't.
      const lateMs = Math.max(clock.monotonic() - nowMs - waitMs, clock.now() - wallMs);
      happen({ type: "tick", lateMs });
      if (cancelTick === undefined || dueMs(link) === atMs) plan();
    });
  };

  const drop = () => {
    const old = socket;
    socket = undefined;
    if (!old) return;
    old.onmessage = old.onclose = null;
    try {
      old.close(1000);
    } catch {
      // It never got as far as to be closed.
    }
  };

  const open = async (connection: number): Promise<void> => {
    // It may have been given up meanwhile, and keeps its number until there is another.
    const isCurrent = () => link.connection === connection && link.phase.at === "opening";
    const token = await (link.isFresh ? credentials.fresh() : credentials.current());
    if (!isCurrent()) return;
    const address = new URL(`${parts.url()}/v1/socket`);
    address.protocol = address.protocol.replace("http", "ws");
    const protocols: string[] = [subprotocol];
    // A ticket says for whom a key acts, which a subprotocol can't.
    if (token !== undefined && (!carried.test(token) || parts.tenant !== undefined)) {
      type Ticket = { readonly ticket: string };
      const { ticket } = await parts.http<Ticket>("POST", "/v1/tickets");
      if (!isCurrent()) return;
      address.searchParams.set("ticket", ticket);
    } else {
      if (token !== undefined) protocols.push(`bearer.${token}`);
      if (parts.user !== undefined) address.searchParams.set("user", parts.user);
    }
    const own = new (parts.WebSocket())(address.href, protocols);
    socket = own;
    own.onmessage = (event: { data: unknown }) => receive(connection, event.data);
    own.onerror = () => {};
    own.onclose = ({ code }: { code: number }) => {
      if (socket === own) socket = undefined;
      happen({ type: "ended", connection, code });
    };
  };

  /** Sockets don't tell why they can't be opened; the same credentials over HTTP do. */
  const examine = (connection: number): Promise<void> =>
    parts.http("GET", "/v1/sessions", { query: { limit: 1 } }).then(
      () => fail(connection, "the socket couldn't be opened"),
      (error: unknown) => fail(connection, error),
    );

  const fail = (connection: number, thrown: unknown): void => {
    const { code: told, message, details } = asError(thrown);
    // A server of ours has what was asked for, and says in its own words what it refuses.
    const code = (details?.["status"] as number) < 405 ? "not_found" : told;
    happen({ type: "failed", connection, error: { code, message } });
  };

  const renew = async (connection: number): Promise<void> => {
    let expiresAtMs: number | undefined;
    try {
      const token = await credentials.fresh();
      if (link.connection !== connection || token === undefined) return;
      expiresAtMs = await parts.renew(token);
    } catch {
      // Another try follows, and at the worst the connection expires and is made again.
    }
    happen({ type: "renewed", connection, expiresInMs: leftMs(expiresAtMs) });
  };

  const receive = (connection: number, data: unknown): void => {
    if (connection !== link.connection) return;
    try {
      const frames = JSON.parse(String(data)) as ServerFrame[];
      const [hello] = frames;
      if (hello?.type === "hello") {
        const { tenant, user, expiresAtMs } = hello;
        happen({ type: "hello", connection, tenant, user, expiresInMs: leftMs(expiresAtMs) });
        if (isOpen) parts.onOpen(hello);
      } else happen({ type: "heard", connection });
      if (isOpen && connection === link.connection) parts.onFrames(frames);
    } catch {
      // It wasn't what the protocol says: what is missing now comes again on the next connection.
      drop();
      happen({ type: "ended", connection, code: 1002 });
    }
  };
  const leftMs = (expiresAtMs: number | undefined) =>
    expiresAtMs === undefined ? undefined : expiresAtMs - clock.now();

  const perform: Record<LinkEffect["type"], (connection: number) => unknown> = {
    open: (connection) => open(connection).catch((error) => fail(connection, error)),
    examine,
    drop,
    ping: parts.ping,
    renew,
  };

  return {
    state: { get: () => state, subscribe: listeners.add },
    send(text) {
      if (isOpen && socket?.readyState === 1) socket.send(text);
    },
    want(isWanted) {
      if (link.isWanted === isWanted || link.phase.at === "closed") return;
      if (isWanted && !stopNetwork) {
        if (!network.isOnline()) happen({ type: "network", change: "offline" });
        stopNetwork = network.onChange((change) => happen({ type: "network", change }));
      }
      happen({ type: "wanted", isWanted });
    },
    reconnect: () => happen({ type: "reconnect" }),
    close() {
      stopNetwork?.();
      happen({ type: "close" });
    },
  };
}
