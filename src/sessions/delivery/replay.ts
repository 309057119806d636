import { FlotillaError } from "../../base/errors.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Place, SessionEvent } from "../service.ts";
import type { Ring } from "./ring.ts";
import type { Subscriber } from "./subscriber.ts";
import type { View } from "./view.ts";

export type ReplayParts = {
  ring: () => Ring;
  page: (after: number) => Promise<Entry[]>;
  /** Looks in the journal how far the session is. */
  refresh: () => Promise<void>;
  push: (subscriber: Subscriber, event: SessionEvent) => void;
  current: () => { readonly view: View; readonly head: number };
  goLive: (subscriber: Subscriber) => Promise<void> | undefined;
};

/**
 * Tells one subscriber everything after its place, page by page however much it is, until it stands
 * where the feed stands; then it is live. The feed goes on meanwhile, and is looked at anew every time.
 */
export function createReplay(parts: ReplayParts) {
  const { ring, page, push, current } = parts;
  const isGone = (subscriber: Subscriber) => subscriber.stage === "gone";

  const whyReset = async (place: Place): Promise<Reset> => {
    if (place.lastSeq === 0) return {};
    // A client may have heard of more than this process did: the journal knows who is right.
    if (place.lastSeq > current().view.lastSeq) await parts.refresh();
    const { view } = current();
    if (place.incarnation !== undefined && place.incarnation !== view.incarnation) {
      return { reason: "incarnation" };
    }
    if (place.lastSeq > view.lastSeq) return { reason: "ahead" };
    if (place.lastMessageId === undefined) return {};
    const recent = ring().at(place.lastSeq);
    const [entry, ...following] = recent ? [recent] : await page(place.lastSeq - 1);
    const fits = entry?.seq === place.lastSeq && entry.messageId === place.lastMessageId;
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

  return async (subscriber: Subscriber, place: Place): Promise<void> => {
    const { reason, following } = await whyReset(place);
    if (isGone(subscriber)) return;
    const { view } = current();
    const { lastSeq, incarnation, state } = view;
    subscriber.view = view;
    subscriber.seq = reason ? 0 : place.lastSeq;
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
  readonly reason?: Extract<SessionEvent, { type: "reset" }>["reason"];
  /** What was read of the entries after the place, on the way. */
  readonly following?: readonly Entry[];
};
