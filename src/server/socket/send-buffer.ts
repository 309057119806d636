import type { WebSocket } from "ws";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FrameError, Ref, ServerFrame } from "../../protocol/frames.ts";
import type { Entry } from "../../protocol/message.ts";
import type { FeedEvent, PresenceEvent } from "../../sessions/service.ts";
import { createDrain } from "../drain.ts";
import { isLogged, isOverloadCode, publicErrorOf, statusOf } from "../errors.ts";

/** Frames that wait to be sent to one client. */
export type SendBuffer = {
  /** Returns false where the client reads too slowly; `onFull` was called then, and the buffer is closed. */
  push(frame: EncodedFrame): boolean;
  /** Resolves when little is left to be sent. */
  drained(): Promise<void>;
  /** Sends all frames at once, before the connection ends. */
  flush(): void;
  close(): void;
};

type SendBufferParts = {
  socket: WebSocket;
  /** The most that may wait, here and in the socket. A single frame may be larger. */
  maxBytes: number;
  /** Calls back at the end of this turn of the event loop. */
  later: (callback: () => void) => void;
  onFull: () => void;
  /** Updates the unread bytes of the socket. Returns false where it was cut for them. */
  count?: (() => boolean) | undefined;
};

/** A frame as text, and as the bytes of a message of its own, encoded once for all its receivers. */
type EncodedFrame = { readonly text: string; bytes?: Buffer };

/** An event that all subscribers of a session get. */
export type SharedEvent = Exclude<FeedEvent, { type: "joined" | "deleted" }>;
type EncodedEvent = SharedEvent | PresenceEvent;

const asText = { binary: false };
const encodedEvents = new WeakMap<EncodedEvent, { session: string; prepared: EncodedFrame }>();
const encodedEntries = new WeakMap<Entry, string>();

/** Sends the frames of one turn of the event loop as one message. */
export function createSendBuffer(parts: SendBufferParts): SendBuffer {
  const { socket, maxBytes, later, onFull, count = () => true } = parts;
  let waiting: EncodedFrame[] = [];
  let waitingChars = 0;
  let closed = false;

  const bufferedChars = () => waitingChars + socket.bufferedAmount;
  const hasDrained = () => closed || bufferedChars() <= maxBytes / 4;

  const drain = createDrain(hasDrained);

  const close = () => {
    closed = true;
    waiting = [];
    waitingChars = 0;
    drain.check();
  };

  const flush = () => {
    const batch = waiting;
    if (batch.length === 0 || closed) return;
    waiting = [];
    waitingChars = 0;
    if (batch.length === 1) socket.send(asMessage(batch[0]!), asText, drain.check);
    else socket.send(`[${batch.map((frame) => frame.text).join(",")}]`, drain.check);
    // Count now that the socket has all frames of this turn of the event loop.
    if (!count()) close();
  };

  return {
    push(frame) {
      if (closed) return false;
      // A page larger than the buffer is accepted behind the little that may wait, such as the answer to
      // its join. Cut off there, the client would reconnect and request the same page for ever.
      if (!hasDrained() && bufferedChars() + frame.text.length > maxBytes) {
        close();
        onFull();
        return false;
      }
      waitingChars += frame.text.length;
      if (waiting.push(frame) === 1) later(flush);
      return true;
    },
    drained: drain.drained,
    flush,
    close,
  };
}

export function encodeFrame(frame: ServerFrame): EncodedFrame {
  return { text: JSON.stringify(frame) };
}

/** Encodes an event of a session once for all its subscribers. */
export function encodeEvent(session: string, event: EncodedEvent): EncodedFrame {
  const found = encodedEvents.get(event);
  if (found?.session === session) return found.prepared;
  const prepared = { text: eventText(session, event) };
  encodedEvents.set(event, { session, prepared });
  return prepared;
}

/** An error as clients may see it. An unexpected error is logged, and its message isn't shown. */
export function frameErrorOf(thrown: unknown, log: Logger): FrameError {
  const isOurs = thrown instanceof FlotillaError;
  const code = isOurs ? thrown.code : "internal";
  // A stopping server refuses frames, and its clients reconnect elsewhere.
  if (isOverloadCode(code)) log.debug({ code }, "socket frame refused by a limit");
  else if (statusOf(code) >= 500 && code !== "closed" && !isLogged(thrown))
    log.error({ code, error: messageOf(thrown) }, "socket frame failed");
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

/** The message that holds only this frame. */
function asMessage(prepared: EncodedFrame): Buffer {
  return (prepared.bytes ??= Buffer.from(`[${prepared.text}]`));
}

function eventText(session: string, event: EncodedEvent): string {
  const id = JSON.stringify(session);
  if (event.type === "entries")
    return `{"type":"entries","session":${id},"entries":[${event.entries.map(entryText).join(",")}]}`;
  const { type, ...rest } = event;
  return JSON.stringify({ type, session, ...rest });
}

/** An entry never changes, so its text is cached. */
function entryText(entry: Entry): string {
  let text = encodedEntries.get(entry);
  if (text === undefined) encodedEntries.set(entry, (text = JSON.stringify(entry)));
  return text;
}
