import { FlotillaError } from "../base/errors.ts";
import type { Chunk } from "../protocol/chunk.ts";
import type { Person } from "../protocol/frames.ts";
import type { Entry, SessionState } from "../protocol/message.ts";
import type {
  FeedEvent,
  InboxEvent,
  Joined,
  JoinPosition,
  PresenceEvent,
  Sink,
} from "./service.ts";

/** Events of a conversation, one by one. */
export type ChatEvent =
  | { readonly type: "entry"; readonly entry: Entry }
  | {
      readonly type: "chunk";
      readonly chunk: Chunk;
      readonly epoch: number;
      readonly attempt: number;
    }
  | { readonly type: "state"; readonly state: SessionState }
  /** The position is not in this log: discard everything so far, because all of it follows again. */
  | { readonly type: "reset" };

export type EventsOptions = {
  /** The last seq that the caller has. Default 0: everything. */
  after?: number;
  signal?: AbortSignal;
};

/** A loop that falls behind by more than this ends, and may start again at its last seq. */
const maxBufferedEvents = 10_000;

/** A session's events as an async iterator. */
export function eventsOf(
  join: (position: JoinPosition, sink: Sink<FeedEvent>) => Joined,
  { after = 0, signal }: EventsOptions,
): AsyncIterableIterator<ChatEvent> {
  return loopOver((sink) => join({ lastSeq: after }, sink), { flattened, signal });
}

/** An inbox's events as an async iterator. */
export function inboxEventsOf(
  open: (sink: Sink<InboxEvent>) => Joined,
  { signal }: { signal?: AbortSignal },
): AsyncIterableIterator<InboxEvent> {
  return loopOver(open, { flattened: (event) => [event], signal });
}

/** Who has a session open as an async iterator: each time everyone. */
export function presenceOf(
  open: (sink: Sink<PresenceEvent | { readonly type: "deleted" }>) => Joined,
  { signal }: { signal?: AbortSignal },
): AsyncIterableIterator<readonly Person[]> {
  const flattened = (event: PresenceEvent | { readonly type: "deleted" }) =>
    event.type === "presence" ? [event.people] : [];
  return loopOver(open, { flattened, signal });
}

type LoopOptions<Event, Each> = {
  readonly flattened: (event: Event) => readonly Each[];
  readonly signal: AbortSignal | undefined;
};

function loopOver<Event extends { readonly type: string }, Each>(
  join: (sink: Sink<Event>) => Joined,
  { flattened: split, signal }: LoopOptions<Event, Each>,
): AsyncIterableIterator<Each> {
  let buffered: Each[] = [];
  let ended: { readonly error?: unknown } | undefined;
  let wake: (() => void) | undefined;
  let caughtUp = Promise.withResolvers<void>();
  let joined: Joined | undefined;

  const end = (error?: unknown): void => {
    ended ??= error === undefined ? {} : { error };
    joined?.leave();
    signal?.removeEventListener("abort", onAbort);
    caughtUp.resolve();
    wake?.();
  };
  const onAbort = () => end();
  const sink: Sink<Event> = {
    push(event) {
      if (ended) return false;
      // Checked before the push, because one page of a long history may exceed the limit by itself.
      if (buffered.length > maxBufferedEvents) {
        const message = `the loop is ${maxBufferedEvents} events behind: start again at its last seq`;
        end(new FlotillaError("overloaded", message));
        return false;
      }
      for (const each of split(event)) buffered.push(each);
      if (event.type === "deleted") end();
      wake?.();
      return !ended;
    },
    fail: (error) => end(error),
    drained() {
      if (ended || buffered.length === 0) return Promise.resolve();
      caughtUp = Promise.withResolvers();
      return caughtUp.promise;
    },
  };
  const start = (): void => {
    if (signal?.aborted) return end();
    signal?.addEventListener("abort", onAbort, { once: true });
    joined = join(sink);
    // The sink receives the error.
    joined.ready.catch(() => {});
  };

  const next = async (): Promise<IteratorResult<Each>> => {
    if (!joined && !ended) start();
    for (;;) {
      const first = buffered.shift();
      if (buffered.length === 0) caughtUp.resolve();
      if (first) return { done: false, value: first };
      if (ended) {
        if (ended.error !== undefined) throw ended.error;
        return { done: true, value: undefined };
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
      wake = undefined;
    }
  };
  return {
    next,
    async return() {
      buffered = [];
      end();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

function flattened(event: FeedEvent): ChatEvent[] {
  switch (event.type) {
    case "entries":
      return event.entries.map((entry) => ({ type: "entry", entry }));
    case "chunks": {
      const { epoch, attempt } = event;
      return event.chunks.map((chunk) => ({ type: "chunk", chunk, epoch, attempt }));
    }
    case "joined":
    case "state":
      return [{ type: "state", state: event.state }];
    case "reset":
      return [{ type: "reset" }];
    case "deleted":
      return [];
  }
}
