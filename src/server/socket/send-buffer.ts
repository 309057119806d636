import type { WebSocket } from "ws";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FrameError, Ref, ServerFrame } from "../../protocol/frames.ts";
import type { Entry } from "../../protocol/message.ts";
import type { FeedEvent } from "../../sessions/service.ts";
import { isOverloadCode, publicErrorOf, statusOf } from "../errors.ts";

/** What waits to be sent to one client. */
export type SendBuffer = {
  /** False where the client reads too slowly; `onFull` was called then, and nothing more is taken. */
  push(frame: EncodedFrame): boolean;
  /** Resolves when little is left to be read. */
  drained(): Promise<void>;
  /** Sends what there is at once, before the connection ends. */
  flush(): void;
  close(): void;
};

type SendBufferParts = {
  socket: WebSocket;
  /** What may wait, here and in the socket. One frame alone may be larger. */
  maxBytes: number;
  /** Calls back at the end of this turn of the event loop. */
  later: (callback: () => void) => void;
  onFull: () => void;
  /** Has what the socket holds counted. False where the socket was ended for it. */
  count?: (() => boolean) | undefined;
};

const asText = { binary: false };

/** Sends what came up in one turn of the event loop as one message. */
export function createSendBuffer(parts: SendBufferParts): SendBuffer {
  const { socket, maxBytes, later, onFull, count = () => true } = parts;
  let waiting: EncodedFrame[] = [];
  let waitingChars = 0;
  let closed = false;
  let drainWaiters: (() => void)[] = [];

  const bufferedChars = () => waitingChars + socket.bufferedAmount;
  const hasDrained = () => closed || bufferedChars() <= maxBytes / 4;

  const resolveDrained = () => {
    if (drainWaiters.length === 0 || !hasDrained()) return;
    const due = drainWaiters;
    drainWaiters = [];
    for (const resolve of due) resolve();
  };

  const close = () => {
    closed = true;
    waiting = [];
    waitingChars = 0;
    resolveDrained();
  };

  const flush = () => {
    const batch = waiting;
    if (batch.length === 0 || closed) return;
    waiting = [];
    waitingChars = 0;
    if (batch.length === 1) socket.send(asMessage(batch[0]!), asText, resolveDrained);
    else socket.send(`[${batch.map((frame) => frame.text).join(",")}]`, resolveDrained);
    // What is pushed in one turn of the event loop is with the socket at its end.
    if (!count()) close();
  };

  return {
    push(frame) {
      if (closed) return false;
      // A page that is larger than the room is taken behind the little that may wait, such as the answer
      // to the join that asked for it: cut off there, the client would come back for the same for ever.
      if (!hasDrained() && bufferedChars() + frame.text.length > maxBytes) {
        close();
        onFull();
        return false;
      }
      waitingChars += frame.text.length;
      if (waiting.push(frame) === 1) later(flush);
      return true;
    },
    drained: () =>
      hasDrained() ? Promise.resolve() : new Promise((resolve) => drainWaiters.push(resolve)),
    flush,
    close,
  };
}

/** A frame as text, and alone in a message as bytes, made once for all who get it. */
type EncodedFrame = { readonly text: string; bytes?: Buffer };

export function encodeFrame(frame: ServerFrame): EncodedFrame {
  return { text: JSON.stringify(frame) };
}

/** The message that holds only this frame. */
function asMessage(prepared: EncodedFrame): Buffer {
  return (prepared.bytes ??= Buffer.from(`[${prepared.text}]`));
}

type SharedEvent = Exclude<FeedEvent, { type: "joined" | "deleted" }>;

const encodedEvents = new WeakMap<SharedEvent, { session: string; prepared: EncodedFrame }>();
const encodedEntries = new WeakMap<Entry, string>();

/** What happened in a session, for whoever follows it: the same event is written out once. */
export function encodeEvent(session: string, event: SharedEvent): EncodedFrame {
  const found = encodedEvents.get(event);
  if (found?.session === session) return found.prepared;
  const prepared = { text: eventText(session, event) };
  encodedEvents.set(event, { session, prepared });
  return prepared;
}

function eventText(session: string, event: SharedEvent): string {
  const id = JSON.stringify(session);
  if (event.type === "entries")
    return `{"type":"entries","session":${id},"entries":[${event.entries.map(entryText).join(",")}]}`;
  const { type, ...rest } = event;
  return JSON.stringify({ type, session, ...rest });
}

/** An entry never changes, so neither does its text. */
function entryText(entry: Entry): string {
  let text = encodedEntries.get(entry);
  if (text === undefined) encodedEntries.set(entry, (text = JSON.stringify(entry)));
  return text;
}

/** An error as clients may see it. What wasn't thrown on purpose is logged, and not shown. */
export function frameErrorOf(thrown: unknown, log: Logger): FrameError {
  const isOurs = thrown instanceof FlotillaError;
  const code = isOurs ? thrown.code : "internal";
  // A server that stops refuses what is still coming in, and its clients go elsewhere.
  if (isOverloadCode(code)) log.debug({ code }, "a socket's frame was refused for too much");
  else if (statusOf(code) >= 500 && code !== "closed")
    log.error({ code, error: messageOf(thrown) }, "a socket's frame failed");
  const error = isOurs ? thrown : new FlotillaError("internal", messageOf(thrown));
  const { details, retryAfterMs } = error;
  return {
    code,
    ...publicErrorOf(error, details),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

export function errorFrame(ref: Ref | undefined, thrown: unknown, log: Logger): ServerFrame {
  return { type: "error", ...(ref !== undefined && { ref }), ...frameErrorOf(thrown, log) };
}
