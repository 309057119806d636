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

/** The one connection of a client, reopened whenever it ends, for as long as it is wanted. */
export type Socket = {
  readonly state: Store<ConnectionState>;
  /** Sends only where it is open. */
  send(text: string): void;
  want(isWanted: boolean): void;
  reconnect(): void;
  close(): void;
};

export type SocketParts = {
  url: () => string;
  WebSocket: () => SocketClass;
  credentials: ClientCredentials;
  /** The user that a program without a token acts for. */
  user?: string | undefined;
  tenant?: string | undefined;
  http: Http;
  network: Network;
  clock: Clock;
  random: Random;
  onOpen: (hello: Hello) => void;
  /** The connection was lost, or couldn't be opened. */
  onLost: () => void;
  onFrames: (frames: readonly ServerFrame[]) => void;
  ping: () => void;
  /** Sends a new token; resolves to its expiry. */
  renew: (token: string) => Promise<number | undefined>;
};

/** The characters of a subprotocol. Other tokens are exchanged for a ticket. */
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

  /** Sets the one timer for the next due time. */
  const scheduleTick = () => {
    cancelTick?.();
    cancelTick = undefined;
    const atMs = dueMs(socketState);
    if (atMs === undefined) return;
    const nowMs = clock.monotonic();
    // What became due during sleep is done at once, and doesn't count as late again.
    const waitMs = Math.max(0, atMs - nowMs);
    const wallMs = clock.now() + waitMs;
    cancelTick = clock.after(waitMs, () => {
      // Some clocks stop while a machine sleeps, and others don't.
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
      // It was never opened.
    }
  };

  const open = async (connection: number): Promise<void> => {
    // An abandoned connection keeps its number until there is another, so check the phase too.
    const isCurrent = () =>
      socketState.connection === connection && socketState.phase.at === "opening";
    const token = await (socketState.isFresh ? credentials.fresh() : credentials.current());
    if (!isCurrent()) return;
    const address = new URL(`${parts.url()}/v1/socket`);
    address.protocol = address.protocol.replace("http", "ws");
    const protocols: string[] = [subprotocol];
    // A ticket carries the tenant that a key acts for, which a subprotocol can't.
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

  /** Sockets don't report why they can't be opened; a request with the same credentials does. */
  const diagnose = (connection: number): Promise<void> =>
    parts.http("GET", "/v1/sessions", { query: { limit: 1 } }).then(
      () => fail(connection, "the socket couldn't be opened"),
      (error: unknown) => fail(connection, error),
    );

  const fail = (connection: number, thrown: unknown): void => {
    const { code: thrownCode, message, details } = asError(thrown);
    // Flotilla has this route and sends its own codes, so a bare 400 to 404 is from another program.
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
      // Another try follows; at worst the connection expires and is opened again.
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
      // A protocol violation: the next connection brings what is missing.
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
