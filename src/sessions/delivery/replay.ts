import { FlotillaError } from "../../base/errors.ts";
import type { Entry } from "../../protocol/message.ts";
import type { LiveChunks } from "../runner.ts";
import type { JoinPosition, FeedEvent, Sink } from "../service.ts";
import type { Ring } from "./ring.ts";
import { sameState, turnOf, type HeaderView } from "./view.ts";

type ReplayParts = {
  ring: () => Ring;
  page: (after: number) => Promise<Entry[]>;
  /** Reads from the journal how far the session is. */
  refresh: () => Promise<void>;
  push: (subscriber: Subscriber, event: FeedEvent) => void;
  current: () => { readonly view: HeaderView; readonly head: number };
  goLive: (subscriber: Subscriber) => Promise<void> | undefined;
};

type Reset = {
  readonly reason?: Extract<FeedEvent, { type: "reset" }>["reason"];
  /** Entries after the position that were read along the way. */
  readonly following?: readonly Entry[];
};

/** One client of a session, and what it has received. */
export type Subscriber = {
  readonly sink: Sink<FeedEvent>;
  /** It gets live events only once it has received everything before them. */
  stage: "replaying" | "live" | "gone";
  /** The last entry that it received. */
  seq: number;
  /** The last view that it received. */
  view: HeaderView | undefined;
  /** The index of the next chunk of the turn in `view`. */
  nextIndex: number;
};

/**
 * Sends one subscriber everything after its position, page by page, until it has reached the feed's head.
 * Then the subscriber is live. The feed goes on meanwhile, so its head is read again for each page.
 */
export function createReplay(parts: ReplayParts) {
  const { ring, page, push, current } = parts;
  const isGone = (subscriber: Subscriber) => subscriber.stage === "gone";

  const whyReset = async (position: JoinPosition): Promise<Reset> => {
    if (position.lastSeq === 0) return {};
    // A client may know more entries than this process, so the journal decides.
    if (position.lastSeq > current().view.lastSeq) await parts.refresh();
    const { view } = current();
    if (position.incarnation !== undefined && position.incarnation !== view.incarnation) {
      return { reason: "incarnation" };
    }
    if (position.lastSeq > view.lastSeq) return { reason: "ahead" };
    if (position.lastMessageId === undefined) return {};
    const recent = ring().at(position.lastSeq);
    const [entry, ...following] = recent ? [recent] : await page(position.lastSeq - 1);
    const fits = entry?.seq === position.lastSeq && entry.messageId === position.lastMessageId;
    if (fits) return { following };
    // With no entry at all, the session may have been deleted after its view was read. A refresh shows
    // that, and ends the feed and its subscribers.
    if (!entry) await parts.refresh();
    return { reason: "mismatch" };
  };

  /** Entries beyond the head go to all subscribers together, with their state. */
  const upToHead = (entries: readonly Entry[]) => {
    const { head } = current();
    const last = entries.at(-1);
    return last && last.seq > head ? entries.filter(({ seq }) => seq <= head) : entries;
  };

  const nextPage = async (subscriber: Subscriber): Promise<readonly Entry[]> => {
    const recent = ring().after(subscriber.seq);
    if (recent) return recent;
    const found = await page(subscriber.seq);
    const known = upToHead(found);
    ring().addBefore(known, current().head);
    if (known[0]?.seq === subscriber.seq + 1) return known;
    // Either the session was deleted meanwhile or the journal lost entries. A refresh tells which.
    await parts.refresh();
    if (isGone(subscriber)) return [];
    throw new FlotillaError(
      "store_unavailable",
      "the store lacks entries of this session: join it again",
    );
  };

  return async (subscriber: Subscriber, position: JoinPosition): Promise<void> => {
    const { reason, following } = await whyReset(position);
    if (isGone(subscriber)) return;
    const { view } = current();
    const { lastSeq, incarnation, state } = view;
    subscriber.view = view;
    subscriber.seq = reason ? 0 : position.lastSeq;
    push(subscriber, { type: "joined", lastSeq, incarnation, state });
    if (reason) push(subscriber, { type: "reset", reason });
    let ahead = upToHead(following ?? []);
    while (!isGone(subscriber) && subscriber.seq < current().head) {
      const entries = ahead.length > 0 ? ahead : await nextPage(subscriber);
      ahead = [];
      if (isGone(subscriber)) return;
      subscriber.seq = entries.at(-1)!.seq;
      push(subscriber, { type: "entries", entries });
      if (subscriber.seq < current().head) await subscriber.sink.drained?.();
    }
    if (!isGone(subscriber)) await parts.goLive(subscriber);
  };
}

/** The state event that a live subscriber still needs, if any. */
export function stateFor(subscriber: Subscriber, view: HeaderView): FeedEvent | undefined {
  const before = subscriber.view;
  if (before === view) return undefined;
  subscriber.view = view;
  const [was, is] = [before && turnOf(before), turnOf(view)];
  if (was?.epoch !== is?.epoch || was?.attempt !== is?.attempt) subscriber.nextIndex = 0;
  return before && sameState(before, view) ? undefined : { type: "state", state: view.state };
}

/** The chunks that a subscriber still needs; "gap" if it misses earlier ones. */
export function chunksFor(subscriber: Subscriber, live: LiveChunks): FeedEvent | "gap" | undefined {
  const { epoch, attempt, chunks } = live;
  const { nextIndex } = subscriber;
  if (live.fromStart) {
    const next = live.nextIndex ?? live.index + chunks.length;
    if (next <= nextIndex) return undefined;
    subscriber.nextIndex = next;
    return { type: "chunks", epoch, attempt, index: 0, nextIndex: next, chunks };
  }
  if (live.index > nextIndex) return "gap";
  const known = nextIndex - live.index;
  if (known >= chunks.length) return undefined;
  subscriber.nextIndex = live.index + chunks.length;
  const fresh = known === 0 ? chunks : chunks.slice(known);
  return { type: "chunks", epoch, attempt, index: nextIndex, chunks: fresh };
}
