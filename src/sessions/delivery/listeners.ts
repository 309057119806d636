import type { Clock } from "../../base/clock.ts";
import type { Bus } from "../../bus/bus.ts";
import type { LiveChunks, Runner } from "../runner.ts";
import { asJson, fieldsOf, listOf, readText, topics } from "./remote-protocol.ts";

/**
 * The runner's side of live answers: which other processes listen to which, each told of all chunks of
 * a turn of the event loop in one letter. They say every second that they still do.
 */
export type Listeners = {
  readonly size: number;
  chunks(live: LiveChunks): void;
  expire(): void;
  close(): void;
};

type Listened = {
  /** When each was heard of last. */
  readonly by: Map<string, number>;
  /** How far those who listen were told. */
  reach: { epoch: number; attempt: number; nextIndex: number } | undefined;
};

export type ListenersParts = {
  bus: Bus;
  clock: Clock;
  snapshot: Runner["snapshot"];
  /** There is somebody from now on. */
  onFirst: () => void;
};

const forgottenMs = 5_000;

export function createListeners({ bus, clock, snapshot, onFirst }: ListenersParts): Listeners {
  const listened = new Map<string, Listened>();
  let unsent = new Map<string, LiveChunks[]>();

  const flush = () => {
    const letters = unsent;
    unsent = new Map();
    for (const [to, live] of letters) bus.send(to, topics.chunks, asJson({ live }));
  };

  const listen = (from: string, asked: unknown): object | undefined => {
    const { sessionId: id, snapshot: isAsked } = fieldsOf(asked);
    const sessionId = readText(id);
    if (sessionId === undefined) return undefined;
    const known = listened.get(sessionId);
    const there: Listened = known ?? { by: new Map(), reach: undefined };
    there.by.set(from, clock.monotonic());
    listened.set(sessionId, there);
    if (known && isAsked !== true) return { sessionId, ...there.reach };
    const live = snapshot(sessionId);
    if (!known && live) there.reach = reachOf(live);
    return { sessionId, ...there.reach, ...(isAsked === true && live && { live }) };
  };

  const unserve = bus.serve(topics.listen, (body, from) => {
    const sessions = listOf(fieldsOf(body)["sessions"], (each) => listen(from, each));
    if (listened.size > 0) onFirst();
    return asJson({ sessions });
  });

  return {
    get size() {
      return listened.size;
    },
    chunks(live) {
      const there = listened.get(live.sessionId);
      if (!there) return;
      there.reach = reachOf(live);
      for (const address of there.by.keys()) {
        if (unsent.size === 0) queueMicrotask(flush);
        const letter = unsent.get(address);
        if (letter) letter.push(live);
        else unsent.set(address, [live]);
      }
    },
    expire() {
      const nowMs = clock.monotonic();
      for (const [sessionId, { by }] of listened) {
        for (const [from, heardMs] of by) if (nowMs - heardMs > forgottenMs) by.delete(from);
        if (by.size === 0) listened.delete(sessionId);
      }
    },
    close() {
      unserve();
      listened.clear();
    },
  };
}

function reachOf({ epoch, attempt, index, nextIndex, chunks }: LiveChunks) {
  return { epoch, attempt, nextIndex: nextIndex ?? index + chunks.length };
}
