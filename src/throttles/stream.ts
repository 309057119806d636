/** How an answer that comes in pieces came to its end. */
export type StreamEnd =
  | { readonly how: "read" }
  | { readonly how: "failed"; readonly error: unknown }
  /** Whoever read it wants no more, or has dropped it unread. */
  | { readonly how: "cancelled" };

export type StreamWatch<Chunk> = {
  /** A piece has come in. */
  onChunk(chunk: Chunk): void;
  /** Told once. */
  onEnd(end: StreamEnd): void;
  /** Whether it is the reader that we wait for, and not the source. */
  onIdle(idle: boolean): void;
};

/** So much of a body is taken in before anybody reads it, so that short ones end by themselves. */
const readAheadBytes = 65_536;

/** So many pieces of a model's answer. */
const readAheadParts = 256;

/** The same bytes, watched on their way. */
export function watchBytes(
  source: ReadableStream<Uint8Array>,
  watch: StreamWatch<Uint8Array>,
): ReadableStream<Uint8Array> {
  const { pull, cancel, track } = watchStream(source, watch);
  const stream = new ReadableStream(
    {
      type: "bytes",
      async pull(controller) {
        const next = await pull();
        if (next) return controller.enqueue(next);
        controller.close();
        // A reader that brought its own buffer is told that nothing was put in.
        controller.byobRequest?.respond(0);
      },
      cancel,
    },
    { highWaterMark: readAheadBytes },
  );
  track(stream);
  return stream;
}

/** The same parts, watched on their way. */
export function watchParts<Part>(
  source: ReadableStream<Part>,
  watch: StreamWatch<Part>,
): ReadableStream<Part> {
  const { pull, cancel, track } = watchStream(source, watch);
  const stream = new ReadableStream<Part>(
    {
      async pull(controller) {
        const next = await pull();
        if (next === undefined) controller.close();
        else controller.enqueue(next);
      },
      cancel,
    },
    { highWaterMark: readAheadParts },
  );
  track(stream);
  return stream;
}

// Whoever drops an answer half-way without a word can't be seen otherwise.
const dropped = new FinalizationRegistry<() => void>((onDropped) => onDropped());

function watchStream<Chunk>(source: ReadableStream<Chunk>, watch: StreamWatch<Chunk>) {
  const reader = source.getReader();
  const token = {};
  let ended = false;
  const end = (how: StreamEnd) => {
    if (ended) return;
    ended = true;
    dropped.unregister(token);
    watch.onEnd(how);
  };
  const cancel = async (reason?: unknown): Promise<void> => {
    end({ how: "cancelled" });
    await reader.cancel(reason);
  };
  return {
    async pull(): Promise<Chunk | undefined> {
      watch.onIdle(false);
      try {
        const { done, value } = await reader.read();
        if (done) {
          end({ how: "read" });
          return undefined;
        }
        watch.onChunk(value);
        watch.onIdle(true);
        return value;
      } catch (error) {
        end({ how: "failed", error });
        throw error;
      }
    },
    cancel,
    // Nothing here holds on to the stream itself, or it would never be dropped.
    track(stream: object): void {
      dropped.register(stream, () => void cancel().catch(() => {}), token);
    },
  };
}
