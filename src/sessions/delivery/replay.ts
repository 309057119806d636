import { FlotillaError } from "../../base/errors.ts";
import type { Entry } from "../../protocol/message.ts";
import type { LiveChunks } from "../runner.ts";
import type { JoinPosition, FeedEvent, Sink } from "../service.ts";
import type { Ring } from "./ring.ts";
import { sameState, turnOf, type HeaderView } from "./view.ts";

type ReplayParts = {
  ring: () => Ring;
  page: (after: number) => Promise<Entry[]>;
  /** Looks in the journal how far the session is. */
  refresh: () => Promise<void>;
  push: (subscriber: Subscriber, event: FeedEvent) => void;
  current: () => { readonly view: HeaderView; readonly head: number };
  goLive: (subscriber: Subscriber) => Promise<void> | undefined;
};

/**
 * Tells one subscriber everything after its place, page by page however much it is, until it stands
 * where the feed stands; then it is live. The feed goes on meanwhile, and is looked at anew every time.
 */
export function createReplay(parts: ReplayParts) {
  const { ring, page, push, current } = parts;
  const isGone = (subscriber: Subscriber) => subscriber.stage === "gone";

  const whyReset = async (position: JoinPosition): Promise<Reset> => {
    if (position.lastSeq === 0) return {};
    // A client may have heard of more than this process did: the journal knows who is right.
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
    // Where there is nothing at all, the session may have been deleted since its view was read. Looking
    // again shows that, and ends the feed, which tells the subscriber so.
    if (!entry) await parts.refresh();
    return { reason: "mismatch" };
  };

  /** What the journal has beyond the head comes to everybody together, with its state. */
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
    // Deleted meanwhile, or a journal that doesn't have what it had: both are seen by looking again.
    await parts.refresh();
    if (isGone(subscriber)) return [];
    throw new FlotillaError(
      "store_unavailable",
      "the store doesn't have what was said: join again",
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

type Reset = {
  readonly reason?: Extract<FeedEvent, { type: "reset" }>["reason"];
  /** What was read of the entries after the place, on the way. */
  readonly following?: readonly Entry[];
};

/** One client of a session, and what it has been told. */
export type Subscriber = {
  readonly sink: Sink<FeedEvent>;
  /** It gets what is live only once it has been told everything before. */
  stage: "replaying" | "live" | "gone";
  /** The last entry that it was told of. */
  seq: number;
  /** What it knows of the session's state. */
  view: HeaderView | undefined;
  /** How far it was told of the answer of the turn in `view`: the number of the next chunk. */
  nextIndex: number;
};

/** What a subscriber that is live has yet to hear of its session's state. */
export function stateFor(subscriber: Subscriber, view: HeaderView): FeedEvent | undefined {
  const before = subscriber.view;
  if (before === view) return undefined;
  subscriber.view = view;
  const [was, is] = [before && turnOf(before), turnOf(view)];
  if (was?.epoch !== is?.epoch || was?.attempt !== is?.attempt) subscriber.nextIndex = 0;
  return before && sameState(before, view) ? undefined : { type: "state", state: view.state };
}

/** What chunks hold for a subscriber that knows of their turn; "gap" where some before them are missing. */
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
