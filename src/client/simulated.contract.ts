import type { Clock } from "../base/clock.ts";
import { between, fraction, type Random } from "../base/random.ts";
import type { Chunk } from "../protocol/chunk.ts";
import type { ClientFrame, ServerFrame } from "../protocol/frames.ts";
import { parseClientFrame } from "../protocol/parse-frame.ts";
import type { Entry, InboxItem, SessionState } from "../protocol/message.ts";
import type { Fetch, SocketClass, SocketLike } from "./options.ts";

/** How often each thing goes wrong, as a share. */
export type Faults = {
  /** A socket can't be opened. */
  closedDoor: number;
  /** A message of either side is the last one that comes through, and both sides hear of it. */
  cut: number;
  /** The same, but nobody hears of it. */
  halfOpen: number;
  /** Entries are sent twice, or from before the place. */
  doubled: number;
  /** Entries are left out, as a server must never do. */
  skipped: number;
  /** What is asked is refused for now, before or after it was stored. */
  refused: number;
};

export const calm: Faults = {
  closedDoor: 0,
  cut: 0,
  halfOpen: 0,
  doubled: 0,
  skipped: 0,
  refused: 0,
};

type Log = {
  incarnation: string;
  entries: Entry[];
  state: SessionState;
  epoch: number;
  chunks: Chunk[];
};

type Connection = {
  readonly sinceMs: number;
  readonly socket: FakeSocket;
  readonly follows: Set<string>;
  isOver: boolean;
  /** When the last message arrives that is on its way to the client, and to the server. */
  toClientMs: number;
  toServerMs: number;
  unacked: number;
  room: number;
  roomAtMs: number;
};

const inboxItem: InboxItem = {
  sessionId: "a",
  agents: ["bot"],
  status: "active",
  state: "idle",
  lastSeq: 1,
  readSeq: 0,
  unread: 1,
  preview: "hello",
  previewAuthor: "bot",
  activeAtMs: 0,
};

type FakeSocket = SocketLike & { readyState: number };

/** A server that keeps docs/protocol.md, on a network that doesn't keep anything but order. */
export function simulate({ clock, random }: { clock: Clock; random: Random }) {
  let faults = calm;
  let isUp = true;
  let expiresInMs: number | undefined;
  let user = "ada";
  const logs = new Map<string, Log>();
  const connections = new Set<Connection>();
  /** What a client did that it must not. */
  const complaints: string[] = [];
  const happens = (share: number) => fraction(random) < share;

  const logOf = (session: string): Log => {
    let log = logs.get(session);
    if (!log) {
      log = { incarnation: "i1", entries: [], state: { state: "idle" }, epoch: 0, chunks: [] };
      logs.set(session, log);
    }
    return log;
  };

  const end = (connection: Connection, code: number, isHeard = true) => {
    if (connection.isOver) return;
    connection.isOver = true;
    connections.delete(connection);
    if (!isHeard) return;
    clock.after(between(random, 0, 50), () => {
      connection.socket.readyState = 3;
      connection.socket.onclose?.({ code, reason: "" } as never);
    });
  };

  const push = (connection: Connection, ...frames: ServerFrame[]) => {
    if (connection.isOver) return;
    const isLast = happens(faults.cut);
    const isSilent = happens(faults.halfOpen);
    const nowMs = clock.monotonic();
    connection.toClientMs = Math.max(connection.toClientMs, nowMs + between(random, 0, 200));
    const { socket } = connection;
    const data = JSON.stringify(frames);
    clock.after(connection.toClientMs - nowMs, () => {
      if (socket.readyState === 1) socket.onmessage?.({ data } as never);
    });
    if (isLast || isSilent) end(connection, 1006, !isSilent);
  };

  const tell = (session: string, ...frames: ServerFrame[]) => {
    for (const connection of connections) {
      if (connection.follows.has(session)) push(connection, ...frames);
    }
  };

  const entriesFrom = (session: string, after: number): ServerFrame[] => {
    const { entries } = logOf(session);
    const from = happens(faults.doubled) ? Math.max(0, after - between(random, 0, 3)) : after;
    const frames: ServerFrame[] = [];
    for (let at = from; at < entries.length;) {
      const count = between(random, 1, 5);
      if (!happens(faults.skipped)) {
        frames.push({ type: "entries", session, entries: entries.slice(at, at + count) });
      }
      at += count;
    }
    return frames;
  };

  const store = (session: string, entry: Omit<Entry, "seq" | "tokens" | "atMs" | "kind">) => {
    const log = logOf(session);
    const before = log.entries.find(({ messageId }) => messageId === entry.messageId);
    if (before && entry.replaces === undefined) return { seq: before.seq, duplicate: true };
    const seq = log.entries.length + 1;
    // The same message may be stored again in a log that was cut back, and nobody could tell.
    log.entries.push({ kind: "message", tokens: 1, atMs: 0, ...entry, seq });
    const frames = entriesFrom(session, seq - 1);
    if (frames.length > 0) tell(session, ...frames);
    return { seq, duplicate: false };
  };

  const join = (connection: Connection, frame: Extract<ClientFrame, { type: "join" }>) => {
    const { ref, session, lastSeq, incarnation, lastMessageId } = frame;
    const refused = { code: "unavailable", message: "not now", details: {} } as const;
    if (happens(faults.refused)) return push(connection, { type: "error", ref, ...refused });
    const log = logOf(session);
    const known = log.entries[lastSeq - 1];
    const reason =
      incarnation !== undefined && incarnation !== log.incarnation
        ? "incarnation"
        : lastSeq > log.entries.length
          ? "ahead"
          : lastMessageId !== undefined && known?.messageId !== lastMessageId
            ? "mismatch"
            : undefined;
    connection.follows.add(session);
    const frames: ServerFrame[] = [
      {
        type: "joined",
        ref,
        session,
        lastSeq: log.entries.length,
        incarnation: log.incarnation,
        state: log.state,
      },
    ];
    if (reason) frames.push({ type: "reset", session, reason });
    frames.push(...entriesFrom(session, reason ? 0 : lastSeq));
    const { state, chunks } = log;
    if (state.state === "catching_up" && chunks.length > 0) {
      const { epoch, attempt } = state;
      const nextIndex = chunks.length;
      frames.push({ type: "chunks", session, epoch, attempt, index: 0, nextIndex, chunks });
    }
    for (const each of frames) push(connection, each);
  };

  const take = (connection: Connection, frame: ClientFrame) => {
    const { ref } = frame;
    const nowMs = clock.monotonic();
    connection.room = Math.min(200, connection.room + (nowMs - connection.roomAtMs) / 10) - 1;
    connection.roomAtMs = nowMs;
    if (connection.room < 0) complaints.push("too many frames");
    switch (frame.type) {
      case "join":
        return join(connection, frame);
      case "leave":
        connection.follows.delete(frame.session);
        return push(connection, { type: "left", session: frame.session, reason: "asked", ref });
      case "ping":
        return push(connection, { type: "pong", ref });
      case "token":
        return push(connection, {
          type: "ack",
          ref,
          ...(expiresInMs !== undefined && { expiresAtMs: clock.now() + expiresInMs }),
        });
      case "send": {
        const { session, message } = frame;
        if (++connection.unacked > 64) complaints.push("too many that aren't acked");
        const isRefused = happens(faults.refused);
        const retryAfterMs = happens(0.5) ? between(random, 0, 500) : undefined;
        const error: ServerFrame = {
          type: "error",
          ref,
          code: isRefused && happens(0.5) ? "overloaded" : "unavailable",
          message: "not now",
          details: {},
          ...(retryAfterMs !== undefined && { retryAfterMs }),
        };
        const answer = (made: ServerFrame) =>
          clock.after(between(random, 0, 100), () => {
            connection.unacked--;
            push(connection, made);
          });
        if (isRefused && happens(0.5)) return answer(error);
        const messageId = message.id!;
        const { parts } = message;
        const stored = store(session, { role: "user", author: "ada", messageId, parts });
        // Stored, but nobody can say so: it is to be asked again.
        return answer(isRefused ? error : { type: "ack", ref, messageId, ...stored });
      }
      case "stop":
      case "read":
      case "regenerate":
      case "tool_result":
      case "inbox":
        return push(connection, { type: "inbox", ref, sessions: [inboxItem] });
      case "inbox_leave":
        return push(connection, { type: "ack", ref });
    }
  };

  class Socket implements FakeSocket {
    readyState = 0;
    onopen = null;
    onmessage: FakeSocket["onmessage"] = null;
    onerror = null;
    onclose: FakeSocket["onclose"] = null;
    #connection: Connection | undefined;

    constructor() {
      clock.after(between(random, 1, 300), () => {
        if (this.readyState !== 0) return;
        if (!isUp || happens(faults.closedDoor)) {
          this.readyState = 3;
          return this.onclose?.({ code: 1006, reason: "" } as never);
        }
        this.readyState = 1;
        const sinceMs = clock.monotonic();
        this.#connection = {
          socket: this,
          follows: new Set<string>(),
          isOver: false,
          toClientMs: 0,
          toServerMs: 0,
          unacked: 0,
          room: 200,
          roomAtMs: sinceMs,
          sinceMs,
        };
        connections.add(this.#connection);
        push(this.#connection, {
          type: "hello",
          protocol: 1,
          tenant: "default",
          user,
          maxFrameBytes: 10_000,
          ...(expiresInMs !== undefined && { expiresAtMs: clock.now() + expiresInMs }),
        });
      });
    }
    send(text: string) {
      const connection = this.#connection!;
      if (happens(faults.cut)) end(connection, 1006);
      if (happens(faults.halfOpen)) end(connection, 1006, false);
      const nowMs = clock.monotonic();
      connection.toServerMs = Math.max(connection.toServerMs, nowMs + between(random, 0, 200));
      clock.after(connection.toServerMs - nowMs, () => {
        // What was on its way when a connection was lost may come through, or not.
        if (!connection.isOver || happens(0.3))
          take(connection, parseClientFrame(JSON.parse(text)));
      });
    }
    close() {
      this.readyState = 3;
      if (this.#connection) end(this.#connection, 1000, false);
    }
  }

  const say = (session: string, chunks: Chunk[]) => {
    const log = logOf(session);
    if (log.state.state !== "catching_up") return;
    const { epoch, attempt } = log.state;
    const known = log.chunks.length;
    log.chunks.push(...chunks);
    const index = happens(faults.doubled) ? between(random, Math.min(1, known), known) : known;
    const told = log.chunks.slice(index);
    tell(session, { type: "chunks", session, epoch, attempt, index, chunks: told });
  };

  return {
    WebSocket: Socket as unknown as SocketClass,
    /** Answers as if nothing were wrong with who asks. */
    fetch: (() => Promise.resolve(Response.json({ sessions: [], next: null }))) as Fetch,
    complaints,
    log: (session: string): readonly Entry[] => logOf(session).entries,
    set faults(next: Faults) {
      faults = next;
    },
    set isUp(up: boolean) {
      isUp = up;
    },
    set expiresInMs(inMs: number | undefined) {
      expiresInMs = inMs;
    },
    set user(name: string) {
      user = name;
    },
    get connections() {
      return connections.size;
    },
    /** Ends all connections, but for younger ones. */
    end(code: number, atLeastMs = 0) {
      for (const connection of connections) {
        if (clock.monotonic() - connection.sinceMs >= atLeastMs) end(connection, code);
      }
    },
    /** Ends all subscriptions to a session. */
    fail(session: string) {
      tell(session, { type: "left", session, reason: "failed" });
      for (const { follows } of connections) follows.delete(session);
    },
    /** Deletes a session, for those who follow it. */
    remove(session: string) {
      tell(session, { type: "left", session, reason: "deleted" });
      for (const { follows } of connections) follows.delete(session);
    },
    write: (session: string, id: string) =>
      store(session, {
        role: "user",
        author: "bob",
        messageId: id,
        parts: [{ type: "text", text: id }],
      }),
    /** A turn begins, or is tried once more. */
    turn(session: string) {
      const log = logOf(session);
      const { state } = log;
      const isAgain = state.state === "catching_up";
      if (!isAgain) log.epoch++;
      const messageId = `@${log.epoch}`;
      log.state = {
        state: "catching_up",
        epoch: log.epoch,
        attempt: isAgain ? state.attempt + 1 : 1,
        agent: "bot",
        messageId,
        upToSeq: log.entries.length,
        stopping: false,
      };
      log.chunks = [];
      tell(session, { type: "state", session, state: log.state });
      say(session, [
        { type: "start", messageId },
        { type: "text-start", id: "t" },
      ]);
    },
    say(session: string) {
      const delta = `${logOf(session).chunks.length} `;
      say(session, [{ type: "text-delta", id: "t", delta }]);
    },
    endTurn(session: string) {
      const log = logOf(session);
      if (log.state.state !== "catching_up") return;
      const { epoch, messageId } = log.state;
      const text = log.chunks.map(({ delta = "" }) => delta as string).join("");
      log.state = { state: "idle" };
      log.chunks = [];
      store(session, {
        role: "assistant",
        author: "bot",
        messageId,
        epoch,
        outcome: "completed",
        parts: [{ type: "text", text, state: "done" }],
      });
      tell(session, { type: "state", session, state: log.state });
    },
    /** A back-up is put in place of the log, with another name for it or with the same one. */
    restore(session: string, count: number, isNamed: boolean) {
      const log = logOf(session);
      log.entries = log.entries.slice(0, count);
      log.state = { state: "idle" };
      log.chunks = [];
      log.epoch += 10;
      if (isNamed) {
        log.incarnation = `${log.incarnation}+`;
        // Another log that happens to have the same ids: only its name tells it apart.
        log.entries = log.entries.map((entry) => ({ ...entry, tokens: entry.tokens + 1 }));
      }
      for (const connection of connections) end(connection, 1001);
    },
  };
}
