import type { WebSocket } from "ws";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FrameError, Ref, ServerFrame } from "../../protocol/frames.ts";
import type { Entry } from "../../protocol/message.ts";
import type { SessionEvent } from "../../sessions/service.ts";
import { isTooMuch, shownOf, statusOf } from "../errors.ts";

/** What waits to be sent to one client. */
export type Outbox = {
  /** False where the client reads too slowly; `onFull` was called then, and nothing more is taken. */
  push(frame: Prepared): boolean;
  /** Resolves when little is left to be read. */
  drained(): Promise<void>;
  /** Sends what there is at once, before the connection ends. */
  flush(): void;
  close(): void;
};

type OutboxParts = {
  socket: WebSocket;
  /** What may wait, here and in the socket. One frame alone may be larger. */
  limitBytes: number;
  /** Calls back at the end of this turn of the event loop. */
  later: (callback: () => void) => void;
  onFull: () => void;
  /** Has what the socket holds counted. False where the socket was ended for it. */
  count?: (() => boolean) | undefined;
};

const asText = { binary: false };

/** Sends what came up in one turn of the event loop as one message. */
export function createOutbox(parts: OutboxParts): Outbox {
  const { socket, limitBytes, later, onFull, count = () => true } = parts;
  let waiting: Prepared[] = [];
  let waitingChars = 0;
  let closed = false;
  let catchers: (() => void)[] = [];

  const held = () => waitingChars + socket.bufferedAmount;
  const hasRoom = () => closed || held() <= limitBytes / 4;

  const settle = () => {
    if (catchers.length === 0 || !hasRoom()) return;
    const due = catchers;
    catchers = [];
    for (const resolve of due) resolve();
  };

  const close = () => {
    closed = true;
    waiting = [];
    waitingChars = 0;
    settle();
  };

  const flush = () => {
    const batch = waiting;
    if (batch.length === 0 || closed) return;
    waiting = [];
    waitingChars = 0;
    if (batch.length === 1) socket.send(aloneOf(batch[0]!), asText, settle);
    else socket.send(`[${batch.map((frame) => frame.text).join(",")}]`, settle);
    // What is pushed in one turn of the event loop is with the socket at its end.
    if (!count()) close();
  };

  return {
    push(frame) {
      if (closed) return false;
      // A page that is larger than the room is taken behind the little that may wait, such as the answer
      // to the join that asked for it: cut off there, the client would come back for the same for ever.
      if (!hasRoom() && held() + frame.text.length > limitBytes) {
        close();
        onFull();
        return false;
      }
      waitingChars += frame.text.length;
      if (waiting.push(frame) === 1) later(flush);
      return true;
    },
    drained: () =>
      hasRoom() ? Promise.resolve() : new Promise((resolve) => catchers.push(resolve)),
    flush,
    close,
  };
}

/** A frame as text, and alone in a message as bytes, made once for all who get it. */
type Prepared = { readonly text: string; bytes?: Buffer };

export function prepare(frame: ServerFrame): Prepared {
  return { text: JSON.stringify(frame) };
}

/** The message that holds only this frame. */
function aloneOf(prepared: Prepared): Buffer {
  return (prepared.bytes ??= Buffer.from(`[${prepared.text}]`));
}

type SharedEvent = Exclude<SessionEvent, { type: "joined" | "deleted" }>;

const ofEvents = new WeakMap<SharedEvent, { session: string; prepared: Prepared }>();
const ofEntries = new WeakMap<Entry, string>();

/** What happened in a session, for whoever follows it: the same event is written out once. */
export function prepareEvent(session: string, event: SharedEvent): Prepared {
  const found = ofEvents.get(event);
  if (found?.session === session) return found.prepared;
  const prepared = { text: textOf(session, event) };
  ofEvents.set(event, { session, prepared });
  return prepared;
}

function textOf(session: string, event: SharedEvent): string {
  const id = JSON.stringify(session);
  if (event.type === "entries")
    return `{"type":"entries","session":${id},"entries":[${event.entries.map(entryText).join(",")}]}`;
  const { type, ...rest } = event;
  return JSON.stringify({ type, session, ...rest });
}

/** An entry never changes, so neither does its text. */
function entryText(entry: Entry): string {
  let text = ofEntries.get(entry);
  if (text === undefined) ofEntries.set(entry, (text = JSON.stringify(entry)));
  return text;
}

/** An error as clients may see it. What wasn't thrown on purpose is logged, and not shown. */
export function frameErrorOf(thrown: unknown, log: Logger): FrameError {
  const isOurs = thrown instanceof FlotillaError;
  const code = isOurs ? thrown.code : "internal";
  // A server that stops refuses what is still coming in, and its clients go elsewhere.
  if (isTooMuch(code)) log.debug({ code }, "a socket's frame was refused for too much");
  else if (statusOf(code) >= 500 && code !== "closed")
    log.error({ code, error: messageOf(thrown) }, "a socket's frame failed");
  const error = isOurs ? thrown : new FlotillaError("internal", messageOf(thrown));
  const { details, retryAfterMs } = error;
  return {
    code,
    ...shownOf(error, details),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

export function errorFrame(ref: Ref | undefined, thrown: unknown, log: Logger): ServerFrame {
  return { type: "error", ...(ref !== undefined && { ref }), ...frameErrorOf(thrown, log) };
}
