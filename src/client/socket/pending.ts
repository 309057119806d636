import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";

export type Ack = Extract<ServerFrame, { type: "ack" }>;

/** A frame that changes a session, and that is sent until it is acked or refused. */
export type Writing = WithoutRef<
  Extract<ClientFrame, { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }>
>;

/** A frame as it is made here: what is undefined isn't sent. */
export type WithoutRef<Frame> = Frame extends unknown ? Loose<Omit<Frame, "ref">> : never;
type Loose<Frame> = {
  [Name in keyof Frame]: object extends Pick<Frame, Name> ? Frame[Name] | undefined : Frame[Name];
};

/** Settles what was asked. */
export type Asked = { resolve: (ack: Ack) => void; reject: (error: unknown) => void };

export type Waiting = Asked & {
  ref: number;
  frame: Writing;
  /** How often it was refused for now. */
  refusals: number;
  /** Whether an earlier try may have been stored: its answer was lost, or didn't say. */
  mayBeStored: boolean;
  isOnItsWay: boolean;
  notBeforeMs: number;
};

/**
 * What was asked and isn't acked yet, in order. Of each session one is on its way at a time: were the
 * first refused for now and the second taken, they would be stored in another order than they were said.
 */
export type Pending = {
  /** Undefined where there are too many already. */
  add(frame: Writing, asked: Asked): Waiting | undefined;
  /** Those that go out now, on this connection, so many at most. */
  next(nowMs: number, most: number): readonly Waiting[];
  /** It is over: acked, refused for good, or given up. False where it was so before. */
  remove(item: Waiting): boolean;
  /** Refused for now: again at that time, and nothing of its session before. */
  again(item: Waiting, atMs: number, mayBeStored: boolean): void;
  get(ref: unknown): Waiting | undefined;
  /** The connection is lost: all that isn't acked goes out again on the next. */
  lost(): void;
  /** When something that was refused for now is due; undefined where nothing is. */
  dueMs(): number | undefined;
  all(): readonly Waiting[];
  readonly size: number;
};

/** `windowMost`: how many are on their way at once, on one connection. */
export function createPending({ most, windowMost }: { most: number; windowMost: number }): Pending {
  const items = new Map<unknown, Waiting>();
  let refs = 0;
  let onTheirWay = 0;

  const landed = (item: Waiting) => {
    if (item.isOnItsWay) onTheirWay--;
    item.isOnItsWay = false;
  };

  return {
    add(frame, asked) {
      if (items.size >= most) return undefined;
      const ref = ++refs;
      const item: Waiting = {
        ...asked,
        ref,
        frame,
        refusals: 0,
        mayBeStored: false,
        isOnItsWay: false,
        notBeforeMs: -Infinity,
      };
      items.set(ref, item);
      return item;
    },
    next(nowMs, limit) {
      const found: Waiting[] = [];
      const busy = new Set<string>();
      for (const item of items.values()) {
        if (onTheirWay >= windowMost || found.length >= limit) break;
        const { session } = item.frame;
        const isFree = !busy.has(session) && !item.isOnItsWay && item.notBeforeMs <= nowMs;
        busy.add(session);
        if (!isFree) continue;
        item.isOnItsWay = true;
        onTheirWay++;
        found.push(item);
      }
      return found;
    },
    remove(item) {
      landed(item);
      return items.delete(item.ref);
    },
    again(item, atMs, mayBeStored) {
      landed(item);
      item.mayBeStored ||= mayBeStored;
      item.refusals++;
      item.notBeforeMs = atMs;
    },
    get: (ref) => items.get(ref),
    lost() {
      for (const item of items.values()) {
        item.mayBeStored ||= item.isOnItsWay;
        landed(item);
      }
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
