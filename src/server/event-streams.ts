import type { Context } from "hono";
import type { Clock } from "../base/clock.ts";
import { callerOf } from "./auth/authenticate.ts";
import { untilExpiry } from "./socket/connection.ts";
import { cutOff, streaming } from "./admission/admission.ts";

/** Answers that go on until somebody ends them: server-sent events. */
export type Streams = {
  /** `begin` is given where events go, and gives back how to stop them. */
  open(c: Context, begin: (to: EventWriter) => () => void): ReadableStream<Uint8Array>;
  /** Ends all, since the server stops. */
  end(): void;
};

export type EventWriter = {
  /** False where the client reads too slowly, and was cut off. */
  write(event: StreamedEvent): boolean;
  drained(): Promise<void>;
  end(): void;
};

export type StreamedEvent = { type: string; id?: number; data: string };

// What may wait for a client that reads too slowly.
export const usualBufferBytes = 1024 * 1024;
// Less than what proxies take for silence.
const heartbeatMs = 15_000;

export function createStreams(clock: Clock, bufferBytes: number): Streams {
  const all = new Set<() => void>();
  const encoder = new TextEncoder();

  const open: Streams["open"] = (c, begin) => {
    let control: ReadableStreamDefaultController<Uint8Array>;
    let isOver = false;
    let catchers: (() => void)[] = [];
    const cleanUps: (() => void)[] = [];

    const held = () => bufferBytes - (control.desiredSize ?? bufferBytes);
    const hasRoom = () => isOver || held() <= bufferBytes / 4;
    const settle = () => {
      if (catchers.length === 0 || !hasRoom()) return;
      const due = catchers;
      catchers = [];
      for (const resolve of due) resolve();
    };
    const over = () => {
      isOver = true;
      all.delete(end);
      for (const each of cleanUps.splice(0)) each();
      settle();
    };
    const end = () => {
      if (isOver) return;
      over();
      control.close();
    };
    const put = (text: string): boolean => {
      if (isOver) return false;
      const bytes = encoder.encode(text);
      if (!hasRoom() && held() + bytes.length > bufferBytes) return tooSlow();
      control.enqueue(bytes);
      return streaming(c, held()) || tooSlow();
    };
    const tooSlow = () => {
      over();
      // What waits is dropped with the connection: the client comes back with its last id.
      cut(c, control);
      return false;
    };
    const beat = () => {
      if (put(":\n\n")) cancelBeat = clock.after(heartbeatMs, beat);
    };
    let cancelBeat = () => {};

    return new ReadableStream<Uint8Array>(
      {
        start(controller) {
          control = controller;
          all.add(end);
          cleanUps.push(() => cancelBeat(), untilExpiry(clock, callerOf(c), end));
          // The first bytes send the headers on their way, however long nothing happens.
          beat();
          if (isOver) return;
          const stop = begun(begin, over, {
            write: ({ type, id, data }) =>
              put(`${id === undefined ? "" : `id: ${id}\n`}event: ${type}\ndata: ${data}\n\n`),
            drained: () =>
              hasRoom() ? Promise.resolve() : new Promise((resolve) => catchers.push(resolve)),
            end,
          });
          if (isOver) stop();
          else cleanUps.push(stop);
        },
        pull() {
          streaming(c, held());
          settle();
        },
        cancel: () => {
          if (!isOver) over();
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: bufferBytes }),
    );
  };

  return {
    open,
    end() {
      for (const each of all) each();
    },
  };
}

function begun(
  begin: (to: EventWriter) => () => void,
  over: () => void,
  to: EventWriter,
): () => void {
  try {
    return begin(to);
  } catch (error) {
    over();
    throw error;
  }
}

/** An error of the stream would be printed by what answers, though it is only a slow reader. */
function cut(c: Context, control: ReadableStreamDefaultController<Uint8Array>): void {
  const { outgoing } = (c.env ?? {}) as { outgoing?: object };
  if (outgoing) cutOff(c);
  else control.error(new Error("the reader is too slow"));
}
