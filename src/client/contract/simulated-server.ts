import type { Clock } from "../../base/clock.ts";
import { between, type Random } from "../../base/random.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import type { Entry, InboxItem } from "../../protocol/message.ts";
import type { Fetch } from "../options.ts";
import { createLogs } from "./simulated-log.ts";
import { type Faults, type SimulatedConnection, simulateNetwork } from "./simulated-network.ts";

/** A client that has come, and what the server counts of it. */
type SimulatedClient = {
  readonly line: SimulatedConnection;
  readonly follows: Set<string>;
  unacked: number;
  budget: number;
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

const noSession = { code: "not_found", message: "there is no such session", details: {} } as const;

/** A server that keeps docs/protocol.md, on a network that doesn't keep anything but order. */
export function simulateServer({ clock, random }: { clock: Clock; random: Random }) {
  let expiresInMs: number | undefined;
  let user = "ada";
  const logs = createLogs();
  const guests = new Set<SimulatedClient>();
  const missing = new Set<string>();
  /** What a client did that it must not. */
  const complaints: string[] = [];

  const expiry = () =>
    expiresInMs === undefined ? {} : { expiresAtMs: clock.now() + expiresInMs };

  const network = simulateNetwork({
    clock,
    random,
    onOpen(line) {
      const roomAtMs = clock.monotonic();
      const guest = { line, follows: new Set<string>(), unacked: 0, budget: 200, roomAtMs };
      guests.add(guest);
      push(guest, {
        type: "hello",
        protocol: 1,
        tenant: "default",
        user,
        maxFrameBytes: 10_000,
        ...expiry(),
      });
      return (frame) => take(guest, frame);
    },
  });
  const { happens } = network;
  const push = ({ line }: SimulatedClient, ...frames: ServerFrame[]) =>
    network.push(line, ...frames);

  const broadcast = (session: string, ...frames: ServerFrame[]) => {
    for (const guest of guests) {
      if (guest.line.isOver) guests.delete(guest);
      else if (guest.follows.has(session)) push(guest, ...frames);
    }
  };

  /** Ends all subscriptions to a session. */
  const leave = (session: string, reason: "failed" | "deleted") => {
    broadcast(session, { type: "left", session, reason });
    for (const { follows } of guests) follows.delete(session);
  };

  const entriesFrom = (session: string, after: number): ServerFrame[] => {
    const { faults } = network;
    const { entries } = logs.of(session);
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

  const store = (session: string, entry: Parameters<typeof logs.store>[1]) => {
    const stored = logs.store(session, entry);
    if (stored.duplicate) return stored;
    const frames = entriesFrom(session, stored.seq - 1);
    if (frames.length > 0) broadcast(session, ...frames);
    return stored;
  };

  const join = (guest: SimulatedClient, frame: Extract<ClientFrame, { type: "join" }>) => {
    const { ref, session, lastSeq } = frame;
    const refused = { code: "unavailable", message: "not now", details: {} } as const;
    if (happens(network.faults.refused)) return push(guest, { type: "error", ref, ...refused });
    if (missing.has(session)) return push(guest, { type: "error", ref, ...noSession });
    const { entries, incarnation, state, chunks } = logs.of(session);
    const reason = logs.whyReset(frame);
    guest.follows.add(session);
    push(guest, { type: "joined", ref, session, lastSeq: entries.length, incarnation, state });
    if (reason) push(guest, { type: "reset", session, reason });
    for (const each of entriesFrom(session, reason ? 0 : lastSeq)) push(guest, each);
    if (state.state === "catching_up" && chunks.length > 0) {
      const { epoch, attempt } = state;
      const nextIndex = chunks.length;
      push(guest, { type: "chunks", session, epoch, attempt, index: 0, nextIndex, chunks });
    }
  };

  const send = (guest: SimulatedClient, frame: Extract<ClientFrame, { type: "send" }>) => {
    const { ref, session, message } = frame;
    if (++guest.unacked > 64) complaints.push("too many that aren't acked");
    const isRefused = happens(network.faults.refused);
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
        guest.unacked--;
        push(guest, made);
      });
    if (isRefused && happens(0.5)) return answer(error);
    if (missing.has(session)) return answer({ type: "error", ref, ...noSession });
    const messageId = message.id!;
    const { parts } = message;
    const stored = store(session, { role: "user", author: "ada", messageId, parts });
    // Stored, but the sender can't know: it sends it again.
    return answer(isRefused ? error : { type: "ack", ref, messageId, ...stored });
  };

  const take = (guest: SimulatedClient, frame: ClientFrame) => {
    const { ref } = frame;
    const nowMs = clock.monotonic();
    guest.budget = Math.min(200, guest.budget + (nowMs - guest.roomAtMs) / 10) - 1;
    guest.roomAtMs = nowMs;
    if (guest.budget < 0) complaints.push("too many frames");
    switch (frame.type) {
      case "join":
        return join(guest, frame);
      case "leave":
        guest.follows.delete(frame.session);
        return push(guest, { type: "left", session: frame.session, reason: "asked", ref });
      case "ping":
        return push(guest, { type: "pong", ref });
      case "token":
        return push(guest, { type: "ack", ref, ...expiry() });
      case "send":
        return send(guest, frame);
      case "presence": {
        const { session, typing } = frame;
        if (!guest.follows.has(session)) complaints.push("present in what it has not joined");
        return push(
          guest,
          { type: "ack", ref },
          { type: "presence", session, people: [{ user, typing }] },
        );
      }
      case "stop":
      case "read":
      case "regenerate":
      case "tool_result":
      case "signal":
      case "inbox":
        return push(guest, { type: "inbox", ref, sessions: [inboxItem] });
      case "presence_leave":
      case "inbox_leave":
      case "watch":
        return push(guest, { type: "ack", ref });
    }
  };

  const pushChunks = (session: string, chunks: Chunk[]) => {
    const log = logs.of(session);
    if (log.state.state !== "catching_up") return;
    const { epoch, attempt } = log.state;
    const known = log.chunks.length;
    log.chunks.push(...chunks);
    const { doubled } = network.faults;
    const index = happens(doubled) ? between(random, Math.min(1, known), known) : known;
    const sent = log.chunks.slice(index);
    broadcast(session, { type: "chunks", session, epoch, attempt, index, chunks: sent });
  };

  const pushState = (session: string) =>
    broadcast(session, { type: "state", session, state: logs.of(session).state });

  return {
    WebSocket: network.WebSocket,
    /** Answers as if nothing were wrong with who asks. */
    fetch: (() => Promise.resolve(Response.json({ sessions: [], next: null }))) as Fetch,
    complaints,
    log: (session: string): readonly Entry[] => logs.of(session).entries,
    set faults(next: Faults) {
      network.faults = next;
    },
    set isUp(up: boolean) {
      network.isUp = up;
    },
    set expiresInMs(inMs: number | undefined) {
      expiresInMs = inMs;
    },
    set user(name: string) {
      user = name;
    },
    get connections() {
      return network.lines.size;
    },
    /** Ends all connections, but for younger ones. */
    end(code: number, atLeastMs = 0) {
      for (const line of network.lines) {
        if (clock.monotonic() - line.sinceMs >= atLeastMs) network.end(line, code);
      }
    },
    /** Ends all subscriptions to a session. */
    fail: (session: string) => leave(session, "failed"),
    /** Deletes a session, or begins without it. */
    remove(session: string) {
      missing.add(session);
      leave(session, "deleted");
      logs.remove(session);
    },
    /** Makes it anew, and may notify clients that follow their inbox. */
    make(session: string, { isReported = false } = {}) {
      missing.delete(session);
      if (!isReported) return;
      const sessions = [{ ...inboxItem, sessionId: session }];
      for (const guest of guests) push(guest, { type: "inbox_changed", sessions });
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
      const messageId = logs.beginTurn(session);
      pushState(session);
      pushChunks(session, [
        { type: "start", messageId },
        { type: "text-start", id: "t" },
      ]);
    },
    writeChunk(session: string) {
      const delta = `${logs.of(session).chunks.length} `;
      pushChunks(session, [{ type: "text-delta", id: "t", delta }]);
    },
    endTurn(session: string) {
      const answer = logs.endTurn(session);
      if (!answer) return;
      store(session, answer);
      pushState(session);
    },
    /** A back-up is put in place of the log, with another name for it or with the same one. */
    restore(session: string, count: number, isNamed: boolean) {
      logs.restore(session, count, isNamed);
      for (const line of network.lines) network.end(line, 1001);
    },
  };
}
