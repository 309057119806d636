/** How a stream ended. */
export type StreamEnd =
  | { readonly how: "read" }
  | { readonly how: "failed"; readonly error: unknown }
  /** The reader cancelled it, or dropped it unread. */
  | { readonly how: "cancelled" };

export type StreamWatch<Chunk> = {
  onChunk(chunk: Chunk): void;
  /** Called once. */
  onEnd(end: StreamEnd): void;
  /** Called with true while the stream waits for the reader, with false while it waits for the source. */
  onIdle(idle: boolean): void;
};

/** How much of a body is buffered before it is read, so that short ones end without a reader. */
const readAheadBytes = 65_536;

/** The same for parts of a model's answer. */
const readAheadParts = 256;

/** Passes a byte stream through, and reports its chunks and its end. */
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
        // No part of a body is in shared memory, which types for browsers want to know.
        if (next) return controller.enqueue(next as Uint8Array<ArrayBuffer>);
        controller.close();
        // A pending BYOB request must be answered, here with zero bytes.
        controller.byobRequest?.respond(0);
      },
      cancel,
    },
    { highWaterMark: readAheadBytes },
  );
  track(stream);
  return stream;
}

/** Passes a stream of parts through, and reports its parts and its end. */
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

// The only way to notice a reader that drops a stream without cancelling it.
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
    // Nothing here may reference the stream, or it would never be collected.
    track(stream: object): void {
      dropped.register(stream, () => void cancel().catch(() => {}), token);
    },
  };
}
