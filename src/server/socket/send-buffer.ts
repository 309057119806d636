import type { WebSocket } from "ws";
import { aloneOf, type Prepared } from "./prepared.ts";

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

export type OutboxParts = {
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
