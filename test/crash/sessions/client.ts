import type { ClientFrame, ServerFrame } from "../../../src/protocol/frames.ts";
import { keepConnected } from "./connection.ts";
import { type SessionHistory, type Shown, shown } from "./history.ts";

/** A user who sends messages over a real socket, and never takes a lost connection for an answer. */
export type Client = {
  readonly name: string;
  /** Follows a session from now on, over whichever connection there is. */
  follow(session: string): void;
  /** Says something with an id of its own, again and again until it is acked, refused or given up. */
  say(session: string, text?: string): Promise<Said>;
  /** Stops the answer; whether there was one to stop. Undefined if no reply came. */
  stop(session: string): Promise<boolean | undefined>;
  entries(session: string): readonly Shown[];
  /** The sessions that it follows. */
  readonly follows: readonly string[];
  /** The answers that it saw being made, in order; one that began anew is there twice. */
  answers(session: string): readonly LiveAnswer[];
  /** Resolves once the server has answered a ping of now, and so has sent all that it had to send. */
  heard(): Promise<void>;
  /** Which server it talks to. */
  readonly at: string | undefined;
  readonly isClosed: boolean;
  close(): void;
};

export type Said =
  | { readonly type: "ok"; readonly seq: number; readonly duplicate: boolean }
  | { readonly type: "refused"; readonly code: string }
  | { readonly type: "unknown" };

export type LiveAnswer = { readonly epoch: number; readonly attempt: number; text: string };

export type ClientOptions = {
  /** Of the user. */
  name: string;
  /** What its ids begin with, where one user has several. Default the name. */
  label?: string;
  history: SessionHistory;
  /** The key of servers that want one. */
  key?: string | undefined;
  /** Where to connect next. Undefined: nowhere, for now. */
  pick: () => string | undefined;
  giveUpMs?: number;
  /** The first ack of every so many messages gets lost on its way. Default: none does. */
  losesAckOf?: number;
  /** How long a server that is pinged may say nothing before it is left. Default 3,000. */
  silentMs?: number;
};

type Followed = {
  lastSeq: number;
  incarnation: string | undefined;
  lastMessageId: string | undefined;
  entries: Shown[];
  answers: LiveAnswer[];
};

type Op = {
  readonly frame: ClientFrame;
  readonly session: string;
  readonly id: string;
  tries: number;
  acked(frame: Extract<ServerFrame, { type: "ack" }>): void;
  refused(code: string, final: boolean): void;
};

/** What no later try can change. */
const definite = new Set(["invalid_input", "not_found", "conflict", "forbidden", "unauthorized"]);
const againMs = 100;
/** A disk that others use too may stand still for a minute. */
const usualGiveUpMs = 90_000;

export function createClient(options: ClientOptions): Client {
  const {
    name: user,
    label: name = user,
    history,
    key,
    pick,
    giveUpMs = usualGiveUpMs,
    losesAckOf = Infinity,
    silentMs = 3_000,
  } = options;
  const followed = new Map<string, Followed>();
  const ops = new Map<string, Op>();
  const pongs = new Map<string, () => void>();
  let counter = 0;
  const sendOp = (op: Op) => {
    if (connection.on === undefined) return;
    op.tries++;
    connection.send(op.frame);
  };
  const join = (session: string) => {
    const { on } = connection;
    if (on === undefined) return;
    const { lastSeq, incarnation, lastMessageId } = followed.get(session)!;
    history.note({ client: name, type: "join", session, on, lastSeq });
    connection.send({
      type: "join",
      ref: `join ${session}`,
      session,
      lastSeq,
      ...(incarnation !== undefined && { incarnation }),
      ...(lastMessageId !== undefined && { lastMessageId }),
    });
  };

  const take = (frame: ServerFrame, from: string): void => {
    switch (frame.type) {
      case "hello":
        for (const session of followed.keys()) join(session);
        for (const op of ops.values()) sendOp(op);
        return;
      case "joined": {
        const { session, lastSeq, incarnation } = frame;
        history.note({ client: name, type: "joined", session, on: from, lastSeq });
        followed.get(session)!.incarnation = incarnation;
        return;
      }
      case "reset": {
        const { session, reason } = frame;
        history.note({ client: name, type: "reset", session, reason });
        const each = followed.get(session)!;
        Object.assign(each, { lastSeq: 0, lastMessageId: undefined, entries: [] });
        return;
      }
      case "entries": {
        const each = followed.get(frame.session)!;
        for (const stored of frame.entries) {
          const entry = shown(stored);
          history.note({ client: name, type: "deliver", session: frame.session, on: from, entry });
          if (entry.seq <= each.lastSeq) continue;
          each.entries.push(entry);
          each.lastSeq = entry.seq;
          each.lastMessageId = entry.messageId;
        }
        return;
      }
      case "chunks":
        return watch(followed.get(frame.session)!.answers, frame);
      case "ack":
        return ops.get(String(frame.ref))?.acked(frame);
      case "pong":
        return pongs.get(String(frame.ref))?.();
      case "error": {
        const session = String(frame.ref).replace(/^join /, "");
        const op = ops.get(String(frame.ref));
        if (op) refuse(op, frame.code);
        else if (followed.has(session)) setTimeout(() => join(session), againMs);
        return;
      }
      case "left":
        if (frame.reason === "failed") setTimeout(() => join(frame.session), againMs);
        return;
      case "presence":
      case "inbox":
      case "inbox_changed":
      case "inbox_removed":
      case "state":
        return;
    }
  };

  const refuse = (op: Op, code: string): void => {
    const final = definite.has(code);
    op.refused(code, final);
    if (!final) setTimeout(() => ops.has(op.id) && sendOp(op), againMs);
  };

  const connection = keepConnected({
    user,
    label: name,
    key,
    pick,
    silentMs,
    onFrame: take,
    onClosed: (on, code) => history.note({ client: name, type: "closed", on, code }),
  });

  /** Asks until it is answered, for so long. */
  const ask = <Answer>(
    op: Pick<Op, "frame" | "session" | "id">,
    settle: (end: (answer: Answer) => void) => Pick<Op, "acked" | "refused"> & { late(): void },
  ): Promise<Answer> =>
    new Promise((resolve) => {
      const end = (answer: Answer) => {
        clearTimeout(timer);
        ops.delete(op.id);
        resolve(answer);
      };
      const { acked, refused, late } = settle(end);
      const timer = setTimeout(late, giveUpMs);
      const made: Op = { ...op, tries: 0, acked, refused };
      ops.set(op.id, made);
      sendOp(made);
    });

  return {
    name,
    follow(session) {
      followed.set(session, {
        lastSeq: 0,
        incarnation: undefined,
        lastMessageId: undefined,
        entries: [],
        answers: [],
      });
      join(session);
    },
    say(session, text) {
      const id = `${name}-${++counter}`;
      let isAckLost = counter % losesAckOf === 0;
      const words = text ?? id;
      const message = { id, parts: [{ type: "text", text: words }] };
      const on = connection.on ?? "none";
      history.note({ client: name, type: "invoke", session, id, on, text: words });
      const frame: ClientFrame = { type: "send", ref: id, session, message };
      return ask<Said>({ frame, session, id }, (end) => ({
        acked({ seq = 0, duplicate = false }) {
          const op = ops.get(id)!;
          if (isAckLost) {
            isAckLost = false;
            setTimeout(() => ops.has(id) && sendOp(op), againMs);
            return;
          }
          const { tries } = op;
          history.note({ client: name, type: "ok", session, id, seq, duplicate, tries });
          end({ type: "ok", seq, duplicate });
        },
        refused(code, final) {
          history.note({ client: name, type: "refused", session, id, code, final });
          if (final) end({ type: "refused", code });
        },
        late() {
          history.note({ client: name, type: "info", session, id });
          end({ type: "unknown" });
        },
      }));
    },
    stop(session) {
      const id = `${name}-stop-${++counter}`;
      const frame: ClientFrame = { type: "stop", ref: id, session };
      return ask<boolean | undefined>({ frame, session, id }, (end) => ({
        acked: ({ done }) => end(done),
        refused: (_, final) => final && end(undefined),
        late: () => end(undefined),
      }));
    },
    entries: (session) => followed.get(session)?.entries ?? [],
    get follows() {
      return [...followed.keys()];
    },
    answers: (session) => followed.get(session)?.answers ?? [],
    heard: () =>
      new Promise((resolve) => {
        const ref = `ping ${++counter}`;
        pongs.set(ref, resolve);
        connection.send({ type: "ping", ref });
      }),
    get at() {
      return connection.at;
    },
    get isClosed() {
      return connection.isClosed;
    },
    close: connection.close,
  };
}

/** Chunks of a higher attempt, or from the first on, begin the answer anew. */
function watch(answers: LiveAnswer[], frame: Extract<ServerFrame, { type: "chunks" }>): void {
  const { epoch, attempt, index, chunks } = frame;
  const last = answers.at(-1);
  if (!last || index === 0 || last.epoch !== epoch || last.attempt !== attempt) {
    answers.push({ epoch, attempt, text: "" });
  }
  const live = answers.at(-1)!;
  for (const chunk of chunks) {
    if (chunk.type === "text-delta") live.text += String(chunk["delta"]);
  }
}
