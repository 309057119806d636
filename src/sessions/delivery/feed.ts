import { FlotillaError } from "../../base/errors.ts";
import type { Entry } from "../../protocol/message.ts";
import type { LiveChunks } from "../runner.ts";
import type { Joined, JoinPosition, FeedEvent, Sink } from "../service.ts";
import { type AnswerDelivery, createAnswerDelivery } from "./live-answer.ts";
import { createReplay, stateFor, type Subscriber } from "./replay.ts";
import type { Ring } from "./ring.ts";
import { isLater, turnOf, type HeaderView } from "./view.ts";

/**
 * One session as the clients of this process follow it. What happens comes in by `accept`, from
 * wherever, in any order, late or twice; it goes out once and in order. `head` is the last entry that
 * went out: what comes right behind it goes out at once, and where something is missing between, the
 * journal is read. So a letter that is lost makes things late, and nothing else.
 */
export type Feed = {
  readonly sessionId: string;
  /** The newest that is known; undefined until something is. */
  readonly view: HeaderView | undefined;
  readonly subscribers: number;
  /** Since when it has had none, by the monotonic clock. */
  readonly emptySinceMs: number;
  /** Some of what it has to tell is missing, and isn't being read. */
  readonly needsRepair: boolean;
  join(position: JoinPosition, sink: Sink<FeedEvent>): Joined;
  accept(view: HeaderView, entries: readonly Entry[]): void;
  chunks(live: LiveChunks): void;
  /** How far its runner has come: where somebody wasn't told so much, the answer is asked for again. */
  reportProgress(turn: { epoch: number; attempt: number; nextIndex: number }): void;
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
  /** Entries after this one, from the journal, for a client that joins. */
  page: (sessionId: string, after: number) => Promise<Entry[]>;
  /** The same, for clients that are live: a letter was lost, or didn't hold what is large. */
  readMissed: (sessionId: string, after: number) => Promise<Entry[]>;
  /** What the journal knows of the session; undefined where there is none. */
  readView: (sessionId: string) => Promise<HeaderView | undefined>;
  /** The answer that is being made, from wherever its runner is. */
  answerSoFar: (
    sessionId: string,
    view: HeaderView,
  ) => LiveChunks | undefined | Promise<LiveChunks | undefined>;
  onEnded: (feed: Feed) => void;
  /** It is to be looked at every second: nobody follows it, something is missing, or there is a turn. */
  onNeedsPolling: (feed: Feed) => void;
};

export function createFeed(sessionId: string, parts: FeedParts): Feed {
  return new SessionFeed(sessionId, parts);
}

/** A class, since there may be as many as clients: functions of their own would take most of the memory. */
class SessionFeed implements Feed {
  readonly sessionId: string;
  view: HeaderView | undefined = undefined;
  emptySinceMs: number;
  private readonly parts: FeedParts;
  private readonly all = new Set<Subscriber>();
  // Most sessions that are followed are quiet, so what serves talk is made when there is some.
  private kept: Ring | undefined = undefined;
  private answering: AnswerDelivery | undefined = undefined;
  /** Until something is known of the session. */
  private opening: PromiseWithResolvers<void> | undefined = Promise.withResolvers<void>();
  private head = 0;
  private isOver = false;
  private fetching = false;

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
    return this.isIncomplete() && !this.fetching;
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
    if (next.incarnation !== view.incarnation) return void this.replaced(next);
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
    if (this.needsRepair) this.refresh().catch(() => {});
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
      // A client may have come with more than this process had heard of.
      if (known === before) this.push(subscriber, event);
      else this.push(subscriber, { type: "entries", entries: fresh.slice(known - before) });
    }
  }

  /** Tells the state, which says something only together with all entries before it. */
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
      // The next second asks again.
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
      // Whoever was told nothing yet has joined a session that there isn't.
      subscriber.view ? this.push(subscriber, { type: "deleted" }) : subscriber.sink.fail(error),
    );
  }

  /** Another log in the place of this one: clients come back, and are then told to forget what they have. */
  private async replaced(next: HeaderView): Promise<void> {
    try {
      const stored = await this.parts.readView(this.sessionId);
      if (stored && stored.incarnation === this.view?.incarnation) return;
    } catch {
      return;
    }
    if (next.incarnation === this.view?.incarnation) return;
    this.fail(new FlotillaError("conflict", "the log of this session was replaced: join it again"));
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
      // From here on everything comes live, in the same turn of the event loop as this was seen.
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
      // Nobody sees an answer before the question.
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

export function sessionNotFound(sessionId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId.slice(0, 200)}`, {
    details: { sessionId: sessionId.slice(0, 200) },
  });
}
