import { FlotillaError } from "../../base/errors.ts";
import type { Entry } from "../../protocol/message.ts";
import type { LiveChunks } from "../running.ts";
import type { Joined, Place, SessionEvent, Sink } from "../service.ts";
import { type Answers, createAnswers } from "./answers.ts";
import { createReplay } from "./replay.ts";
import type { Ring } from "./ring.ts";
import { stateFor, type Subscriber } from "./subscriber.ts";
import { isLater, turnOf, type View } from "./view.ts";

/**
 * One session as the clients of this process follow it. What happens comes in by `accept`, from
 * wherever, in any order, late or twice; it goes out once and in order. `head` is the last entry that
 * went out: what comes right behind it goes out at once, and where something is missing between, the
 * journal is read. So a letter that is lost makes things late, and nothing else.
 */
export type Feed = {
  readonly sessionId: string;
  /** The newest that is known; undefined until something is. */
  readonly view: View | undefined;
  readonly subscribers: number;
  /** Since when it has had none, by the monotonic clock. */
  readonly emptySinceMs: number;
  /** Some of what it has to tell is missing, and isn't being read. */
  readonly isBehind: boolean;
  join(place: Place, sink: Sink<SessionEvent>): Joined;
  accept(view: View, entries: readonly Entry[]): void;
  chunks(live: LiveChunks): void;
  /** How far its runner has come: where somebody wasn't told so much, the answer is asked for again. */
  heardOf(turn: { epoch: number; attempt: number; nextIndex: number }): void;
  /** Reads what is missing, where that failed before. */
  repair(): void;
  /** Keeps nothing that can be read again. */
  forget(): void;
  /** Ends it for everybody. */
  fail(error: unknown): void;
};

export type FeedParts = {
  monotonic: () => number;
  newRing: () => Ring;
  /** Entries after this one, from the journal. */
  page: (sessionId: string, after: number) => Promise<Entry[]>;
  /** What the journal knows of the session; undefined where there is none. */
  readView: (sessionId: string) => Promise<View | undefined>;
  /** The answer that is being made, from wherever its runner is. */
  answerSoFar: (
    sessionId: string,
    view: View,
  ) => LiveChunks | undefined | Promise<LiveChunks | undefined>;
  onOver: (feed: Feed) => void;
  /** It is to be looked at every second: nobody follows it, something is missing, or there is a turn. */
  onRestless: (feed: Feed) => void;
};

export function createFeed(sessionId: string, parts: FeedParts): Feed {
  const subscribers = new Set<Subscriber>();
  // Most sessions that are followed are quiet, so what serves talk is made when there is some.
  let kept: Ring | undefined;
  let answering: Answers | undefined;
  /** Until something is known of the session. */
  let opening: PromiseWithResolvers<void> | undefined = Promise.withResolvers<void>();
  opening.promise.catch(() => {});
  let view: View | undefined;
  let head = 0;
  let emptySinceMs = parts.monotonic();
  let over: { error: unknown } | undefined;
  let fetching = false;

  const drop = (subscriber: Subscriber) => {
    subscriber.stage = "gone";
    if (!subscribers.delete(subscriber) || subscribers.size > 0) return;
    emptySinceMs = parts.monotonic();
    parts.onRestless(feed);
  };
  const push = (subscriber: Subscriber, event: SessionEvent | undefined): void => {
    if (event && subscriber.stage !== "gone" && !subscriber.sink.push(event)) drop(subscriber);
  };
  const live = function* () {
    for (const subscriber of subscribers) if (subscriber.stage === "live") yield subscriber;
  };

  const ring = (): Ring => (kept ??= parts.newRing());
  const forget = (): void => {
    kept?.clear();
    kept = undefined;
  };

  const answers = (): Answers =>
    (answering ??= createAnswers({
      live,
      push,
      ask: () => (view && turnOf(view) ? parts.answerSoFar(sessionId, view) : undefined),
      // Nobody sees an answer before the question.
      isShown: ({ epoch, attempt }) => {
        const turn = view && head === view.lastSeq ? turnOf(view) : undefined;
        return turn?.epoch === epoch && turn.attempt === attempt;
      },
    }));

  const accept = (next: View, entries: readonly Entry[]): void => {
    if (over) return;
    if (view && next.incarnation !== view.incarnation) return void replaced(next);
    if (!view || isLater(next, view)) {
      const isFirst = !view;
      view = next;
      if (isFirst) {
        head = next.lastSeq;
        if (next.deleted) return deleted();
        if (turnOf(next)) parts.onRestless(feed);
        opening?.resolve();
        opening = undefined;
        return;
      }
    }
    take(entries);
    settle();
  };

  const isBehind = () => !over && view !== undefined && head < view.lastSeq && !fetching;

  const take = (entries: readonly Entry[]): void => {
    let from = 0;
    while (from < entries.length && entries[from]!.seq <= head) from++;
    let to = from;
    while (to < entries.length && entries[to]!.seq === head + 1 && head < view!.lastSeq) {
      head++;
      to++;
    }
    if (to === from) return;
    const fresh = from === 0 && to === entries.length ? entries : entries.slice(from, to);
    ring().add(fresh);
    const event: SessionEvent = { type: "entries", entries: fresh };
    const before = fresh[0]!.seq - 1;
    for (const subscriber of live()) {
      const known = subscriber.seq;
      if (known >= head) continue;
      subscriber.seq = head;
      // A client may have come with more than this process had heard of.
      if (known === before) push(subscriber, event);
      else push(subscriber, { type: "entries", entries: fresh.slice(known - before) });
    }
  };

  /** Tells the state, which says something only together with all entries before it. */
  const settle = (): void => {
    if (over || !view) return;
    if (view.deleted) return deleted();
    if (head < view.lastSeq) return void fill();
    for (const subscriber of live()) push(subscriber, stateFor(subscriber, view));
    const turn = turnOf(view);
    if (turn) parts.onRestless(feed);
    if (turn || answering) answers().turn(turn);
  };

  const fill = async (): Promise<void> => {
    if (fetching) return;
    fetching = true;
    try {
      while (!over && subscribers.size > 0 && head < view!.lastSeq) {
        const before = head;
        take(await parts.page(sessionId, head));
        if (head === before) break;
      }
    } catch {
      // The next second asks again.
    } finally {
      fetching = false;
    }
    if (isBehind()) parts.onRestless(feed);
    else settle();
  };

  const end = (error: unknown, tell: (subscriber: Subscriber) => void): void => {
    if (over) return;
    over = { error };
    opening?.reject(error);
    for (const subscriber of subscribers) {
      tell(subscriber);
      subscriber.stage = "gone";
    }
    subscribers.clear();
    forget();
    parts.onOver(feed);
  };
  const fail = (error: unknown) => end(error, ({ sink }) => sink.fail(error));
  const deleted = () =>
    end(missing(sessionId), (subscriber) =>
      // Whoever was told nothing yet has joined a session that there isn't.
      subscriber.view
        ? push(subscriber, { type: "deleted" })
        : subscriber.sink.fail(missing(sessionId)),
    );

  /** Another log in the place of this one: clients come back, and are then told to forget what they have. */
  const replaced = async (next: View): Promise<void> => {
    try {
      const stored = await parts.readView(sessionId);
      if (stored && stored.incarnation === view?.incarnation) return;
    } catch {
      return;
    }
    if (next.incarnation === view?.incarnation) return;
    fail(new FlotillaError("conflict", "the log of this session was replaced: join it again"));
  };

  const refresh = async (): Promise<void> => {
    const stored = await parts.readView(sessionId);
    if (stored) accept(stored, []);
    else fail(missing(sessionId));
  };

  const replay = (subscriber: Subscriber, place: Place): Promise<void> => {
    const tell = createReplay({
      ring,
      page: (after) => parts.page(sessionId, after),
      refresh,
      push,
      current: () => ({ view: view!, head }),
      // From here on everything comes live, in the same turn of the event loop as this was seen.
      goLive() {
        subscriber.stage = "live";
        if (head < view!.lastSeq) void fill();
        else push(subscriber, stateFor(subscriber, view!));
        return turnOf(view!) ? answers().joined() : undefined;
      },
    });
    return tell(subscriber, place);
  };

  const feed: Feed = {
    sessionId,
    get view() {
      return view;
    },
    get subscribers() {
      return subscribers.size;
    },
    get emptySinceMs() {
      return emptySinceMs;
    },
    get isBehind() {
      return isBehind();
    },
    join(place, sink) {
      const subscriber: Subscriber = {
        sink,
        stage: "replaying",
        seq: 0,
        view: undefined,
        nextIndex: 0,
      };
      subscribers.add(subscriber);
      let left: PromiseWithResolvers<void> | undefined = Promise.withResolvers<void>();
      const told = async () => {
        await opening?.promise;
        await replay(subscriber, place);
      };
      const ready = Promise.race([told(), left.promise]).finally(() => (left = undefined));
      ready.catch((error: unknown) => {
        if (subscriber.stage === "gone") return;
        drop(subscriber);
        sink.fail(error);
      });
      return {
        ready,
        leave() {
          drop(subscriber);
          left?.resolve();
        },
      };
    },
    accept,
    chunks: (live) => answers().chunks(live),
    heardOf: (turn) => answers().heardOf(turn),
    forget,
    repair() {
      if (isBehind()) refresh().catch(() => {});
    },
    fail,
  };
  return feed;
}

export function missing(sessionId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId.slice(0, 200)}`, {
    details: { sessionId: sessionId.slice(0, 200) },
  });
}
