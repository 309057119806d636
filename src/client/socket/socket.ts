import type { Clock } from "../../base/clock.ts";
import { fraction, type Random } from "../../base/random.ts";
import { type ServerFrame, subprotocol } from "../../protocol/frames.ts";
import type { ConnectionState } from "./status.ts";
import { asError, type ClientCredentials, type Http } from "../http.ts";
import {
  advanceSocket,
  dueMs,
  type SocketEffect,
  type SocketInput,
  initialSocketState,
  connectionStateOf,
} from "./connection-state.ts";
import type { Network, SocketClass, SocketLike } from "../options.ts";
import { createListenerSet, type Store } from "../observable.ts";

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
  credentials: ClientCredentials;
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
const subprotocolSafe = /^[\w!#$%&'*+.^`|~-]+$/;

export function createSocket(parts: SocketParts): Socket {
  const { credentials, network, clock, random } = parts;
  const listeners = createListenerSet();
  let socketState = initialSocketState({ isOnline: true, isRenewable: credentials.isRenewable });
  let connectionState = connectionStateOf(socketState);
  let socket: SocketLike | undefined;
  let isOpen = false;
  let cancelTick: (() => void) | undefined;
  let stopNetwork: (() => void) | undefined;

  const dispatch = (event: SocketInput): void => {
    const before = socketState;
    const moment = { nowMs: clock.monotonic(), chance: fraction(random) };
    const step = advanceSocket(socketState, event, moment);
    socketState = step.state;
    if (before.phase !== socketState.phase) scheduleTick();
    for (const effect of step.effects) perform[effect.type](effect.connection);
    const wasOpen = isOpen;
    isOpen = socketState.phase.at === "open";
    const hasFailed =
      before.phase.at === "opening" && !isOpen && socketState.phase.at !== "opening";
    const next = connectionStateOf(socketState);
    const hasChanged = JSON.stringify(next) !== JSON.stringify(connectionState);
    if (hasChanged) connectionState = next;
    if (wasOpen ? !isOpen : hasFailed) parts.onLost();
    if (hasChanged) listeners.emit();
  };

  /** Sets the one timer for whatever is next. */
  const scheduleTick = () => {
    cancelTick?.();
    cancelTick = undefined;
    const atMs = dueMs(socketState);
    if (atMs === undefined) return;
    const nowMs = clock.monotonic();
    // What was due while the machine slept is done at once, and isn't late again.
    const waitMs = Math.max(0, atMs - nowMs);
    const wallMs = clock.now() + waitMs;
    cancelTick = clock.after(waitMs, () => {
      // Some clocks stand still while a machine sleeps, and others don't.
      const lateMs = Math.max(clock.monotonic() - nowMs - waitMs, clock.now() - wallMs);
      dispatch({ type: "tick", lateMs });
      if (cancelTick === undefined || dueMs(socketState) === atMs) scheduleTick();
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
    const isCurrent = () =>
      socketState.connection === connection && socketState.phase.at === "opening";
    const token = await (socketState.isFresh ? credentials.fresh() : credentials.current());
    if (!isCurrent()) return;
    const address = new URL(`${parts.url()}/v1/socket`);
    address.protocol = address.protocol.replace("http", "ws");
    const protocols: string[] = [subprotocol];
    // A ticket says for whom a key acts, which a subprotocol can't.
    if (token !== undefined && (!subprotocolSafe.test(token) || parts.tenant !== undefined)) {
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
      dispatch({ type: "ended", connection, code });
    };
  };

  /** Sockets don't tell why they can't be opened; the same credentials over HTTP do. */
  const diagnose = (connection: number): Promise<void> =>
    parts.http("GET", "/v1/sessions", { query: { limit: 1 } }).then(
      () => fail(connection, "the socket couldn't be opened"),
      (error: unknown) => fail(connection, error),
    );

  const fail = (connection: number, thrown: unknown): void => {
    const { code: thrownCode, message, details } = asError(thrown);
    // A server of ours has what was asked for, and says in its own words what it refuses.
    const code = (details?.["status"] as number) < 405 ? "not_found" : thrownCode;
    dispatch({ type: "failed", connection, error: { code, message } });
  };

  const renew = async (connection: number): Promise<void> => {
    let expiresAtMs: number | undefined;
    try {
      const token = await credentials.fresh();
      if (socketState.connection !== connection || token === undefined) return;
      expiresAtMs = await parts.renew(token);
    } catch {
      // Another try follows, and at the worst the connection expires and is made again.
    }
    dispatch({ type: "renewed", connection, expiresInMs: remainingMs(expiresAtMs) });
  };

  const receive = (connection: number, data: unknown): void => {
    if (connection !== socketState.connection) return;
    try {
      const frames = JSON.parse(String(data)) as ServerFrame[];
      const [hello] = frames;
      if (hello?.type === "hello") {
        const { tenant, user, expiresAtMs } = hello;
        dispatch({
          type: "hello",
          connection,
          tenant,
          user,
          expiresInMs: remainingMs(expiresAtMs),
        });
        if (isOpen) parts.onOpen(hello);
      } else dispatch({ type: "heard", connection });
      if (isOpen && connection === socketState.connection) parts.onFrames(frames);
    } catch {
      // It wasn't what the protocol says: what is missing now comes again on the next connection.
      drop();
      dispatch({ type: "ended", connection, code: 1002 });
    }
  };
  const remainingMs = (expiresAtMs: number | undefined) =>
    expiresAtMs === undefined ? undefined : expiresAtMs - clock.now();

  const perform: Record<SocketEffect["type"], (connection: number) => unknown> = {
    open: (connection) => open(connection).catch((error) => fail(connection, error)),
    examine: diagnose,
    drop,
    ping: parts.ping,
    renew,
  };

  return {
    state: { get: () => connectionState, subscribe: listeners.add },
    send(text) {
      if (isOpen && socket?.readyState === 1) socket.send(text);
    },
    want(isWanted) {
      if (socketState.isWanted === isWanted || socketState.phase.at === "closed") return;
      if (isWanted && !stopNetwork) {
        if (!network.isOnline()) dispatch({ type: "network", change: "offline" });
        stopNetwork = network.onChange((change) => dispatch({ type: "network", change }));
      }
      dispatch({ type: "wanted", isWanted });
    },
    reconnect: () => dispatch({ type: "reconnect" }),
    close() {
      stopNetwork?.();
      dispatch({ type: "close" });
    },
  };
}
