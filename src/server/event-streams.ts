import type { Context } from "hono";
import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import { type Authenticator, callerOf } from "./auth/authenticate.ts";
import { createDrain } from "./drain.ts";
import { onExpiry } from "./socket/connection.ts";
import { cutConnection, countWaiting } from "./admission/admission.ts";

/** Endless answers: server-sent events. */
export type EventStreams = {
  /** `begin` gets the writer for its events, and returns a function that stops them. */
  open(c: Context, begin: (to: EventWriter) => () => void): ReadableStream<Uint8Array>;
  /**
   * Holds an answer back for `ms` at most, until `begin` calls `done`; and no longer than a stream goes on:
   * its client may hang up, its credentials end, or the server stop. `begin` returns what stops it.
   */
  wait(c: Context, ms: number, begin: (done: () => void) => () => void): Promise<void>;
  /** Ends all, because the server stops. */
  end(): void;
};

export type EventWriter = {
  /** Returns false where the client reads too slowly and was cut off. */
  write(event: StreamedEvent): boolean;
  drained(): Promise<void>;
  end(): void;
};

/** Without a type it is a message, as readers of events call it. */
export type StreamedEvent = { type?: string; id?: number | string; data: string };

// Bytes that may wait for a slow client.
// A proxy that buffers an answer before it passes it on would hold an endless one for ever.
export const unbuffered = { "X-Accel-Buffering": "no" };

export const eventStream = "text/event-stream";

export const defaultBufferBytes = 1024 * 1024;
// Shorter than the idle timeout of common proxies.
const heartbeatMs = 15_000;

export function createEventStreams(
  clock: Clock,
  bufferBytes: number,
  authenticator?: Pick<Authenticator, "watch">,
): EventStreams {
  const all = new Set<() => void>();
  const encoder = new TextEncoder();

  const open: EventStreams["open"] = (c, begin) => {
    // Its answer has no body, so nothing would be read, and nothing would end what was begun.
    if (c.req.method === "HEAD") return new Blob([]).stream();
    let control: ReadableStreamDefaultController<Uint8Array>;
    let isOver = false;
    const cleanUps: (() => void)[] = [];

    const bufferedBytes = () => bufferBytes - (control.desiredSize ?? bufferBytes);
    const hasDrained = () => isOver || bufferedBytes() <= bufferBytes / 4;
    const drain = createDrain(hasDrained);
    const finish = () => {
      isOver = true;
      all.delete(end);
      for (const each of cleanUps.splice(0)) each();
      drain.check();
    };
    const end = () => {
      if (isOver) return;
      finish();
      control.close();
    };
    const writeText = (text: string): boolean => {
      if (isOver) return false;
      const bytes = encoder.encode(text);
      if (!hasDrained() && bufferedBytes() + bytes.length > bufferBytes) return cutSlowReader();
      control.enqueue(bytes);
      return countWaiting(c, bufferedBytes()) || cutSlowReader();
    };
    const cutSlowReader = () => {
      finish();
      // Dropping the connection drops what waits: the client reconnects with its last id.
      cutReader(c, control);
      return false;
    };
    /** The status can't tell any more, so an event does. */
    const refuse = ({ code, message }: FlotillaError) => {
      writeText(`event: error\ndata: ${JSON.stringify({ code, message, details: {} })}\n\n`);
      end();
    };
    const beat = () => {
      if (writeText(":\n\n")) cancelBeat = clock.after(heartbeatMs, beat);
    };
    let cancelBeat = () => {};

    return new ReadableStream<Uint8Array>(
      {
        start(controller) {
          control = controller;
          all.add(end);
          cleanUps.push(() => cancelBeat(), onExpiry(clock, callerOf(c), end));
          cleanUps.push(authenticator?.watch(callerOf(c), refuse) ?? (() => {}));
          // Write at once, so that the headers are sent even where no event comes for long.
          beat();
          if (isOver) return;
          const stop = beginOrFinish(begin, finish, {
            write: ({ type, id, data }) =>
              writeText(
                `${id === undefined ? "" : `id: ${id}\n`}${type === undefined ? "" : `event: ${type}\n`}data: ${data}\n\n`,
              ),
            drained: drain.drained,
            end,
          });
          if (isOver) stop();
          else cleanUps.push(stop);
        },
        pull() {
          countWaiting(c, bufferedBytes());
          drain.check();
        },
        cancel: () => {
          if (!isOver) finish();
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: bufferBytes }),
    );
  };

  return {
    open,
    wait: (c, ms, begin) =>
      new Promise((resolve, reject) => {
        const cleanUps: (() => void)[] = [];
        let isOver = false;
        const end = () => {
          if (isOver) return;
          isOver = true;
          all.delete(end);
          for (const each of cleanUps.splice(0)) each();
          resolve();
        };
        const keep = (cleanUp: () => void) => (isOver ? cleanUp() : void cleanUps.push(cleanUp));
        all.add(end);
        keep(clock.after(ms, end));
        keep(onExpiry(clock, callerOf(c), end));
        keep(authenticator?.watch(callerOf(c), end) ?? (() => {}));
        const { signal } = c.req.raw;
        signal.addEventListener("abort", end);
        keep(() => signal.removeEventListener("abort", end));
        if (signal.aborted) end();
        if (isOver) return;
        try {
          keep(begin(end));
        } catch (error) {
          end();
          reject(error as Error);
        }
      }),
    end() {
      for (const each of all) each();
    },
  };
}

function beginOrFinish(
  begin: (to: EventWriter) => () => void,
  finish: () => void,
  to: EventWriter,
): () => void {
  try {
    return begin(to);
  } catch (error) {
    finish();
    throw error;
  }
}

/** Cuts the connection, because the HTTP adapter would print an error of the stream. */
function cutReader(c: Context, control: ReadableStreamDefaultController<Uint8Array>): void {
  const { outgoing } = (c.env ?? {}) as { outgoing?: object };
  if (outgoing) cutConnection(c);
  else control.error(new Error("the reader is too slow"));
}
