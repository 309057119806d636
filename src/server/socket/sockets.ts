import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type WebSocket, WebSocketServer } from "ws";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { closeCodes, subprotocol } from "../../protocol/frames.ts";
import type { AnonymousConnections } from "../admission/anonymous-connections.ts";
import {
  accountOf,
  accountOfAddress,
  type CallerLimits,
  createCallerLimits,
  type RequestSlot,
} from "../admission/caller-limits.ts";
import type { IncomingBodies } from "../admission/incoming-bytes.ts";
import type { AuthRequest } from "../auth/authenticate.ts";
import type { Caller } from "../auth/caller.ts";
import { isOriginAllowed } from "../auth/origins.ts";
import { createRefusalCounter, isOverloadCode } from "../errors.ts";
import {
  type SocketConnection,
  type SocketConnectionParts,
  createSocketConnection,
  type CutReason,
} from "./connection.ts";
import { authRequestOf, pathOf, refuseUpgrade, socketPath } from "./handshake.ts";

export type Sockets = {
  /** Upgrades a request to a socket, or refuses it. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** How many are open. */
  readonly count: number;
  /** Closes all with `goingAway`, and waits a moment for them to close. */
  close(): Promise<void>;
};

type SocketParts = Omit<SocketConnectionParts, "later" | "onCut" | "count"> & {
  origins: readonly string[];
  limits?: CallerLimits;
  /** Counts messages that are still arriving. */
  bodies?: IncomingBodies | undefined;
  /** Called when the caller of a connection is authenticated. */
  anonymous?: Pick<AnonymousConnections, "identify"> | undefined;
  onEvent?: (event: SocketEvent) => void;
};

export type SocketEvent =
  /** A socket was opened or closed; `open` is how many there are now. */
  | { readonly type: "sockets"; readonly open: number }
  | { readonly type: "socket_cut"; readonly why: CutReason };

/** Pings every connection once per interval, in groups, with one timer for all. */
type Pings = {
  /** The returned function ends it. */
  add(connection: { ping(): void }): () => void;
};

const pingEveryMs = 20_000;
const pingTurns = 20;
const closeTimeoutMs = 2_000;
// Time for a client that is cut off to read the reason.
const closeHandshakeMs = 5_000;
// A message may come in fragments, but not in endlessly many empty ones.
const maxFragments = 1_024;
// The head of a client's ping or pong: two bytes, and four for the mask.
const controlHeadBytes = 6;

/** The WebSocket side of the server. */
export function createSockets(parts: SocketParts): Sockets {
  const { authenticator, origins, maxFrameBytes, clock, log, onEvent } = parts;
  const { limits = createCallerLimits(clock) } = parts;
  const options = {
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    autoPong: false,
    maxPayload: maxFrameBytes,
    maxFragments: maxFragments,
    closeTimeout: closeHandshakeMs,
    handleProtocols: () => subprotocol,
  };
  const server = new WebSocketServer(options);
  const open = new Map<WebSocket, SocketConnection>();
  const pings = createPings(clock, pingEveryMs);
  const onCut = (why: CutReason) => onEvent?.({ type: "socket_cut", why });
  const shared: SocketConnectionParts = { ...parts, later: createDeferral(), onCut };
  const countRefusal = createRefusalCounter(parts);
  let closing: Promise<void> | undefined;
  let allLeft = () => {};

  const accept = (socket: WebSocket, connection: SocketConnection) => {
    open.set(socket, connection);
    onEvent?.({ type: "sockets", open: open.size });
    const stopPings = pings.add(connection);
    socket.once("close", () => {
      open.delete(socket);
      onEvent?.({ type: "sockets", open: open.size });
      stopPings();
      if (open.size === 0) allLeft();
    });
  };

  const authenticate = async (
    request: IncomingMessage,
    authRequest: AuthRequest,
  ): Promise<Caller> => {
    try {
      const caller = await authenticator.caller(authRequest);
      // Without the user, because `limits` bounds a user's sockets already.
      parts.anonymous?.identify(request.socket);
      return caller;
    } catch (error) {
      limits.count(accountOfAddress(request.socket.remoteAddress));
      throw error;
    }
  };

  /** A user's sockets count as requests at once; a program's may serve all its users, and don't. */
  const enterLimits = (caller: Caller, { socket }: IncomingMessage): RequestSlot => {
    const sending = {
      get isClosed() {
        return socket.destroyed;
      },
      get unflushedBytes() {
        return socket.writableLength;
      },
      get flushedBytes() {
        return socket.bytesWritten - socket.writableLength;
      },
      cut() {
        onCut("slow");
        socket.destroy();
      },
    };
    return limits.enter(accountOf(caller), sending, { isCounted: caller.kind === "user" });
  };

  const upgrade = async (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // No other listener for errors is attached until the socket is upgraded.
    const ignore = () => socket.destroy();
    socket.on("error", ignore);
    try {
      if (pathOf(request.url) !== socketPath)
        throw new FlotillaError("not_found", `sockets are opened at ${socketPath}`);
      if (closing) throw new FlotillaError("closed", "the server is stopping");
      const authRequest = authRequestOf(request);
      const { origin, host } = request.headers;
      if (!isOriginAllowed(origin, host, origins)) {
        throw new FlotillaError(
          "forbidden",
          `pages of ${JSON.stringify(origin?.slice(0, 80))} may not open sockets here: add it to server.origins`,
        );
      }
      const caller = await authenticate(request, authRequest);
      if (closing) throw new FlotillaError("closed", "the server is stopping");
      if (socket.destroyed) return;
      parts.quotas?.request(caller);
      const slot = enterLimits(caller, request);
      socket.once("close", slot.leave);
      server.handleUpgrade(request, socket, head, (opened) => {
        socket.off("error", ignore);
        if (parts.bodies) countMessages(socket, opened, parts.bodies);
        accept(
          opened,
          createSocketConnection(opened, caller, {
            ...shared,
            address: request.socket.remoteAddress,
            count: () => slot.stream(0),
          }),
        );
      });
    } catch (error) {
      if (error instanceof FlotillaError && isOverloadCode(error.code)) countRefusal(error.code);
      // That credentials can't be checked is logged once where they are read.
      refuseUpgrade(socket, error, hasCode(error, "unavailable") ? silentLogger : log);
    }
  };

  /** Counts the bytes of a message until its end, because the library holds them until then. */
  const countMessages = (socket: Duplex, opened: WebSocket, bodies: IncomingBodies) => {
    const body = bodies.open(() => {
      onCut("slow");
      socket.destroy();
    });
    // First, because the library's own listener ends the message that these bytes end.
    socket.prependListener("data", (data: Buffer) => body.add(data.length));
    opened.on("message", body.end);
    // Control frames may come within a message, and aren't part of it.
    const leaveOut = (data: Buffer) => body.add(-(controlHeadBytes + data.length));
    opened.on("ping", leaveOut);
    opened.on("pong", leaveOut);
    opened.once("close", body.end);
  };

  const close = async () => {
    if (open.size === 0) return;
    const left = new Promise<void>((resolve) => (allLeft = resolve));
    for (const connection of open.values()) {
      connection.close(closeCodes.goingAway, "the server is stopping");
    }
    const cancel = clock.after(closeTimeoutMs, () => {
      for (const socket of open.keys()) socket.terminate();
    });
    await left;
    cancel();
  };

  return {
    upgrade: (request, socket, head) => void upgrade(request, socket, head),
    get count() {
      return open.size;
    },
    close: () => (closing ??= close()),
  };
}

function createPings(clock: Clock, everyMs: number): Pings {
  const groups = Array.from({ length: pingTurns }, () => new Set<{ ping(): void }>());
  let added = 0;
  let count = 0;
  let turn = 0;
  let cancel: (() => void) | undefined;

  const tick = () => {
    cancel = clock.after(everyMs / pingTurns, tick);
    turn = (turn + 1) % pingTurns;
    for (const connection of groups[turn]!) connection.ping();
  };

  return {
    add(connection) {
      const group = groups[added++ % pingTurns]!;
      group.add(connection);
      count++;
      cancel ??= clock.after(everyMs / pingTurns, tick);
      return () => {
        if (!group.delete(connection) || --count > 0) return;
        cancel?.();
        cancel = undefined;
      };
    },
  };
}

/**
 * Runs all callbacks at the end of this turn of the event loop, with one `setImmediate` for thousands of
 * connections.
 */
function createDeferral(): (callback: () => void) => void {
  let waiting: (() => void)[] = [];
  const run = () => {
    const due = waiting;
    waiting = [];
    for (const each of due) each();
  };
  return (callback) => {
    if (waiting.push(callback) === 1) setImmediate(run);
  };
}
