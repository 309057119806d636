import { FlotillaError } from "../../base/errors.ts";
import type { Entry } from "../../protocol/message.ts";
import type { LiveChunks } from "../runner.ts";
import type { Joined, JoinPosition, FeedEvent, Sink } from "../service.ts";
import { sessionNotFound } from "../validate.ts";
import { type AnswerDelivery, createAnswerDelivery } from "./live-answer.ts";
import { createReplay, stateFor, type Subscriber } from "./replay.ts";
import type { Ring } from "./ring.ts";
import { isLater, turnOf, type HeaderView } from "./view.ts";

/**
 * One session as the clients of this process follow it. `accept` takes updates from any source, in any
 * order, late or repeated; clients get each entry once and in order. `head` is the last entry that was
 * delivered. An entry right after `head` is delivered at once, and a gap is filled from the journal. So a
 * lost envelope delays entries and does nothing worse.
 */
export type Feed = {
  readonly sessionId: string;
  /** The newest known view; undefined until the first one arrives. */
  readonly view: HeaderView | undefined;
  readonly subscribers: number;
  /** Since when it has had no subscribers, by the monotonic clock. */
  readonly emptySinceMs: number;
  /** True when entries are missing and no read is in flight. */
  readonly needsRepair: boolean;
  join(position: JoinPosition, sink: Sink<FeedEvent>): Joined;
  accept(view: HeaderView, entries: readonly Entry[]): void;
  chunks(live: LiveChunks): void;
  /** The runner's progress. If a subscriber has fewer chunks, the answer is read again. */
  reportProgress(turn: { epoch: number; attempt: number; nextIndex: number }): void;
  /** Reads missing entries, if the last read failed. */
  repair(): void;
  /** Drops everything that can be read again. */
  forget(): void;
  /** Ends the feed for all subscribers. */
  fail(error: unknown): void;
};

export type FeedParts = {
  monotonic: () => number;
  newRing: () => Ring;
  /** Entries after this one from the journal, for a client that joins. */
  page: (sessionId: string, after: number) => Promise<Entry[]>;
  /** The same for live clients: an envelope was lost, or an entry was too large for it. */
  readMissed: (sessionId: string, after: number) => Promise<Entry[]>;
  /** The view of the session in the journal; undefined if there is no such session. */
  readView: (sessionId: string) => Promise<HeaderView | undefined>;
  /** The answer in progress, from its runner on any pod. */
  answerSoFar: (
    sessionId: string,
    view: HeaderView,
  ) => LiveChunks | undefined | Promise<LiveChunks | undefined>;
  onEnded: (feed: Feed) => void;
  /** The feed needs a check every second: it has no subscribers, entries are missing, or a turn runs. */
  onNeedsPolling: (feed: Feed) => void;
};

export function createFeed(sessionId: string, parts: FeedParts): Feed {
  return new SessionFeed(sessionId, parts);
}

/**
 * How often it is read again whether another log has replaced that of a session, once a second. What this
 * process knows of logs may be older than the view that came from the owner of the new one.
 */
const maxDoubts = 10;

/** A class, because there may be one per client, and closures for each would take most of the memory. */
class SessionFeed implements Feed {
  readonly sessionId: string;
  view: HeaderView | undefined = undefined;
  emptySinceMs: number;
  private readonly parts: FeedParts;
  private readonly all = new Set<Subscriber>();
  // Most followed sessions are quiet, so these are created on first use.
  private kept: Ring | undefined = undefined;
  private answering: AnswerDelivery | undefined = undefined;
  /** Pending until the first view arrives. */
  private opening: PromiseWithResolvers<void> | undefined = Promise.withResolvers<void>();
  private head = 0;
  private isOver = false;
  private fetching = false;
  /** How often it is still read whether another log has replaced this one. */
  private doubts = 0;
  private settling = false;

  constructor(sessionId: string, parts: FeedParts) {
    this.sessionId = sessionId;
    this.parts = parts;
    this.emptySinceMs = parts.monotonic();
    this.opening?.promise.catch(() => {});
  }

  get subscribers(): number {
    return this.all.size;
  }

  get needsRepair(): boolean {
    return (this.isIncomplete() && !this.fetching) || (this.doubts > 0 && !this.settling);
  }

  join(position: JoinPosition, sink: Sink<FeedEvent>): Joined {
    const subscriber: Subscriber = {
      sink,
      stage: "replaying",
      seq: 0,
      view: undefined,
      nextIndex: 0,
    };
    this.all.add(subscriber);
    let left: PromiseWithResolvers<void> | undefined = Promise.withResolvers<void>();
    const ready = Promise.race([this.replay(subscriber, position), left.promise]).finally(
      () => (left = undefined),
    );
    ready.catch((error: unknown) => {
      if (subscriber.stage === "gone") return;
      this.drop(subscriber);
      sink.fail(error);
    });
    return {
      ready,
      leave: () => {
        this.drop(subscriber);
        left?.resolve();
      },
    };
  }

  accept(next: HeaderView, entries: readonly Entry[]): void {
    if (this.isOver) return;
    const { view } = this;
    if (!view) return this.begin(next);
    if (next.incarnation !== view.incarnation) return this.doubt();
    if (isLater(next, view)) this.view = next;
    this.deliver(entries);
    this.publishState();
  }

  chunks(live: LiveChunks): void {
    this.answers().chunks(live);
  }

  reportProgress(turn: { epoch: number; attempt: number; nextIndex: number }): void {
    this.answers().reportProgress(turn);
  }

  repair(): void {
    if (!this.needsRepair) return;
    if (this.doubts > 0) void this.settle();
    else this.refresh().catch(() => {});
  }

  forget(): void {
    this.kept?.clear();
    this.kept = undefined;
  }

  fail(error: unknown): void {
    this.end(error, ({ sink }) => sink.fail(error));
  }

  private begin(first: HeaderView): void {
    this.view = first;
    this.head = first.lastSeq;
    if (first.deleted) return this.deleted();
    if (turnOf(first)) this.parts.onNeedsPolling(this);
    this.opening?.resolve();
    this.opening = undefined;
  }

  private deliver(entries: readonly Entry[]): void {
    let from = 0;
    while (from < entries.length && entries[from]!.seq <= this.head) from++;
    let to = from;
    const { lastSeq } = this.view!;
    while (to < entries.length && entries[to]!.seq === this.head + 1 && this.head < lastSeq) {
      this.head++;
      to++;
    }
    if (to === from) return;
    const { head } = this;
    const fresh = from === 0 && to === entries.length ? entries : entries.slice(from, to);
    this.ring().add(fresh);
    const event: FeedEvent = { type: "entries", entries: fresh };
    const before = fresh[0]!.seq - 1;
    for (const subscriber of this.live()) {
      const known = subscriber.seq;
      if (known >= head) continue;
      subscriber.seq = head;
      // A client may have joined with more entries than this process knew.
      if (known === before) this.push(subscriber, event);
      else this.push(subscriber, { type: "entries", entries: fresh.slice(known - before) });
    }
  }

  /** Publishes the state, which is valid only after all entries before it. */
  private publishState(): void {
    const { view } = this;
    if (this.isOver || !view) return;
    if (view.deleted) return this.deleted();
    if (this.isIncomplete()) return void this.fetchMissing();
    for (const subscriber of this.live()) this.push(subscriber, stateFor(subscriber, view));
    const turn = turnOf(view);
    if (turn) this.parts.onNeedsPolling(this);
    if (turn || this.answering) this.answers().turn(turn);
  }

  private async fetchMissing(): Promise<void> {
    if (this.fetching) return;
    this.fetching = true;
    try {
      while (this.all.size > 0 && this.isIncomplete()) {
        const before = this.head;
        this.deliver(await this.parts.readMissed(this.sessionId, before));
        if (this.head === before) break;
      }
    } catch {
      // The next tick tries again.
    } finally {
      this.fetching = false;
    }
    if (this.isIncomplete()) this.parts.onNeedsPolling(this);
    else this.publishState();
  }

  private isIncomplete(): boolean {
    return !this.isOver && this.view !== undefined && this.head < this.view.lastSeq;
  }

  private end(error: unknown, notify: (subscriber: Subscriber) => void): void {
    if (this.isOver) return;
    this.isOver = true;
    this.opening?.reject(error);
    for (const subscriber of this.all) {
      notify(subscriber);
      subscriber.stage = "gone";
    }
    this.all.clear();
    this.forget();
    this.parts.onEnded(this);
  }

  private deleted(): void {
    const error = sessionNotFound(this.sessionId);
    this.end(error, (subscriber) =>
      // A subscriber that got no view yet has joined a session that does not exist.
      subscriber.view ? this.push(subscriber, { type: "deleted" }) : subscriber.sink.fail(error),
    );
  }

  /** A view of another log came: of the one that replaced this one, or late, of one that this one replaced. */
  private doubt(): void {
    this.doubts = maxDoubts;
    this.parts.onNeedsPolling(this);
    void this.settle();
  }

  /** Ends the feed if another log has replaced this one: clients join again, and then get a reset. */
  private async settle(): Promise<void> {
    if (this.settling) return;
    this.settling = true;
    try {
      const stored = await this.parts.readView(this.sessionId);
      if (stored?.incarnation === this.view?.incarnation) this.doubts--;
      else {
        const message = "the log of this session was replaced: join it again";
        this.fail(new FlotillaError("conflict", message));
      }
    } catch {
      // The next tick tries again.
    } finally {
      this.settling = false;
    }
    if (this.doubts > 0 && !this.isOver) this.parts.onNeedsPolling(this);
  }

  private async refresh(): Promise<void> {
    const stored = await this.parts.readView(this.sessionId);
    if (stored) this.accept(stored, []);
    else this.fail(sessionNotFound(this.sessionId));
  }

  private async replay(subscriber: Subscriber, position: JoinPosition): Promise<void> {
    await this.opening?.promise;
    const replay = createReplay({
      ring: () => this.ring(),
      page: (after) => this.parts.page(this.sessionId, after),
      refresh: () => this.refresh(),
      push: (to, event) => this.push(to, event),
      current: () => ({ view: this.view!, head: this.head }),
      // From here on everything arrives live, in the same turn of the event loop as this view.
      goLive: () => {
        const view = this.view!;
        subscriber.stage = "live";
        if (this.head < view.lastSeq) void this.fetchMissing();
        else this.push(subscriber, stateFor(subscriber, view));
        return turnOf(view) ? this.answers().joined() : undefined;
      },
    });
    await replay(subscriber, position);
  }

  private answers(): AnswerDelivery {
    return (this.answering ??= createAnswerDelivery({
      live: () => this.live(),
      push: (subscriber, event) => this.push(subscriber, event),
      readAnswer: () => {
        const { view } = this;
        return view && turnOf(view) ? this.parts.answerSoFar(this.sessionId, view) : undefined;
      },
      // Clients must not see an answer before its question.
      isCurrent: ({ epoch, attempt }) => {
        const { view } = this;
        const turn = view && this.head === view.lastSeq ? turnOf(view) : undefined;
        return turn?.epoch === epoch && turn.attempt === attempt;
      },
    }));
  }

  private ring(): Ring {
    return (this.kept ??= this.parts.newRing());
  }

  private *live(): Generator<Subscriber> {
    for (const subscriber of this.all) if (subscriber.stage === "live") yield subscriber;
  }

  private push(subscriber: Subscriber, event: FeedEvent | undefined): void {
    if (event && subscriber.stage !== "gone" && !subscriber.sink.push(event)) this.drop(subscriber);
  }

  private drop(subscriber: Subscriber): void {
    subscriber.stage = "gone";
    if (!this.all.delete(subscriber) || this.all.size > 0) return;
    this.emptySinceMs = this.parts.monotonic();
    this.parts.onNeedsPolling(this);
  }
}
