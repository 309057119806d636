import type { ClientFrame } from "../protocol/frames.ts";

/** A frame that changes a session, and that is sent until it is acked or refused. */
export type Writing = WithoutRef<
  Extract<ClientFrame, { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }>
>;

/** A frame as it is made here: what is undefined isn't sent. */
export type WithoutRef<Frame> = Frame extends unknown ? Loose<Omit<Frame, "ref">> : never;
type Loose<Frame> = {
  [Name in keyof Frame]: object extends Pick<Frame, Name> ? Frame[Name] | undefined : Frame[Name];
};

export type Waiting = {
  readonly ref: number;
  readonly frame: Writing;
  /** How often it was refused for now. */
  readonly refusals: number;
  /** Whether it has gone out, on any connection. */
  readonly wasSent: boolean;
};

/**
 * What was asked and isn't acked yet, in order. Of each session one is on its way at a time: were the
 * first refused for now and the second taken, they would be stored in another order than they were said.
 */
export type Pending = {
  /** False where there are too many already. */
  add(frame: Writing): Waiting | undefined;
  /** Those that go out now, on this connection, so many at most. */
  next(nowMs: number, most: number): readonly Waiting[];
  /** It is over: acked, refused for good, or given up. */
  remove(ref: number): void;
  /** Refused for now: again at that time, and nothing of its session before. */
  again(ref: number, atMs: number): void;
  get(ref: number): Waiting | undefined;
  /** The connection is lost: all that isn't acked goes out again on the next. */
  lost(): void;
  /** When something that was refused for now is due; undefined where nothing is. */
  dueMs(): number | undefined;
  all(): readonly Waiting[];
  readonly size: number;
};

type Item = {
  ref: number;
  frame: Writing;
  refusals: number;
  wasSent: boolean;
  isOnItsWay: boolean;
  notBeforeMs: number;
};

/** `windowMost`: how many are on their way at once, on one connection. */
export function createPending({ most, windowMost }: { most: number; windowMost: number }): Pending {
  const items = new Map<number, Item>();
  let refs = 0;
  let onTheirWay = 0;

  const landed = (item: Item) => {
    if (item.isOnItsWay) onTheirWay--;
    item.isOnItsWay = false;
  };

  return {
    add(frame) {
      if (items.size >= most) return undefined;
      const ref = ++refs;
      const item: Item = {
        ref,
        frame,
        refusals: 0,
        wasSent: false,
        isOnItsWay: false,
        notBeforeMs: -Infinity,
      };
      items.set(ref, item);
      return item;
    },
    next(nowMs, limit) {
      const found: Item[] = [];
      const busy = new Set<string>();
      for (const item of items.values()) {
        if (onTheirWay >= windowMost || found.length >= limit) break;
        const { session } = item.frame;
        const isFree = !busy.has(session) && !item.isOnItsWay && item.notBeforeMs <= nowMs;
        busy.add(session);
        if (!isFree) continue;
        item.isOnItsWay = item.wasSent = true;
        onTheirWay++;
        found.push(item);
      }
      return found;
    },
    remove(ref) {
      const item = items.get(ref);
      if (item) landed(item);
      items.delete(ref);
    },
    again(ref, atMs) {
      const item = items.get(ref);
      if (!item) return;
      landed(item);
      item.refusals++;
      item.notBeforeMs = atMs;
    },
    get: (ref) => items.get(ref),
    lost() {
      for (const item of items.values()) landed(item);
    },
    dueMs() {
      let earliest: number | undefined;
      for (const { isOnItsWay, notBeforeMs } of items.values()) {
        if (isOnItsWay || notBeforeMs === -Infinity) continue;
        earliest = Math.min(earliest ?? Infinity, notBeforeMs);
      }
      return earliest;
    },
    all: () => [...items.values()],
    get size() {
      return items.size;
    },
  };
}
