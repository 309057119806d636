import type { Clock } from "../../base/clock.ts";
import type { Person } from "../../protocol/frames.ts";
import { createListenerSet, type Store } from "../observable.ts";
import type { SendQueue } from "../socket/send-queue.ts";

/** Who has a session open, the user of this client too: known, and shown to others, while there are listeners. */
export type SessionPresence = Store<readonly Person[]> & {
  /** Shows the user as typing for some seconds: call it with every key. Sending a message ends it. */
  typing(isTyping?: boolean): void;
};

export type PresenceFeed = SessionPresence & {
  readonly size: number;
  /** The session is being joined. */
  onJoin(): void;
  take(people: readonly Person[]): void;
};

type PresenceParts = {
  session: string;
  queue: Pick<SendQueue, "sendOnce">;
  clock: Clock;
  /** Whether a join was sent on this connection. */
  isJoined: () => boolean;
  /** Called when listeners come and go. */
  onSize: () => void;
};

// A server lets a mark of typing end after six seconds.
const repeatMs = 3_000;

export function createPresence(parts: PresenceParts): PresenceFeed {
  const { session, queue, clock, isJoined } = parts;
  let people: readonly Person[] = [];
  let typedMs = -Infinity;
  let sizeBefore = 0;
  const say = (typing: boolean) => {
    if (listeners.size === 0 || !isJoined()) return;
    typedMs = typing ? clock.monotonic() : -Infinity;
    queue.sendOnce({ type: "presence", session, typing });
  };
  const listeners = createListenerSet((): void => {
    const { size } = listeners;
    if (size === 0) {
      people = [];
      queue.sendOnce({ type: "presence_leave", session });
    } else if (sizeBefore === 0) say(false);
    sizeBefore = size;
    parts.onSize();
  });

  return {
    get size() {
      return listeners.size;
    },
    get: () => people,
    subscribe: listeners.add,
    typing(isTyping = true) {
      const isKnown = clock.monotonic() - typedMs < repeatMs;
      if (isTyping ? !isKnown : typedMs > -Infinity) say(isTyping);
    },
    onJoin: () => say(false),
    take(next) {
      if (next.length + people.length === 0) return;
      people = next;
      listeners.emit();
    },
  };
}
