import type { WatchData, WatchEvent } from "../protocol/watch.ts";
import { callLater, openStream } from "./browser.ts";
import { createEventReader } from "./facts/live/event-stream.ts";
import {
  type LinkEvent,
  type LostCause,
  nextLink,
  noLink,
  type TopicView,
  type TopicViews,
  viewsAfter,
} from "./facts/live/stream.ts";

/** The topics that are watched by this tab, all in one stream. */
export type Watching = {
  /** Watches these topics in place of those before; none ends it. */
  want(topics: readonly string[]): void;
  /** The data of a topic while it is live; undefined where it isn't. */
  dataOf(topic: string): WatchData | undefined;
  /** The troubles that the server has with topics. */
  troubles(): readonly NonNullable<TopicView["trouble"]>[];
  subscribe(listener: () => void): () => void;
};

export type WatchingParts = {
  /** Opens a stream of these topics; returns what ends it. */
  open(topics: readonly string[], to: StreamSink): () => void;
  after(ms: number, callback: () => void): () => void;
  chance(): number;
  /** A topic has brought data. */
  onData(topic: string, data: WatchData): void;
  /** Nothing is live any more, though something should be. */
  onLost(): void;
  /** It is again. What has changed meanwhile isn't known. */
  onBack(): void;
};

export type StreamSink = {
  opened(): void;
  take(event: WatchEvent): void;
  /** It has ended, and not by this tab. */
  lost(cause: LostCause): void;
};

type Stream = { end(): void };

/** Keeps one stream, and replaces it without a gap where other topics are wanted. */
export function createWatching(parts: WatchingParts): Watching {
  const listeners = new Set<() => void>();
  let link = noLink;
  let views: TopicViews = new Map();
  let current: Stream | undefined;
  /** Takes the place of the current one once it is open. */
  let coming: Stream | undefined;
  let isAway = false;
  /** Nothing was live for a moment, so that changes may have been missed. */
  let hadGap = false;
  let cancelWait = () => {};

  const show = (next: TopicViews): void => {
    if (next === views) return;
    views = next;
    for (const listener of listeners) listener();
  };

  const decide = (event: LinkEvent): void => {
    const { link: next, act } = nextLink(link, event, parts.chance());
    link = next;
    if (!act) return;
    cancelWait();
    if (act.type === "open") open(act.topics);
    else if (act.type === "wait") cancelWait = parts.after(act.ms, () => decide({ type: "due" }));
    else close();
  };

  const close = (): void => {
    coming?.end();
    current?.end();
    coming = current = undefined;
    isAway = hadGap = false;
    show(new Map());
  };

  const open = (topics: readonly string[]): void => {
    coming?.end();
    const stream: Stream = { end: () => {} };
    coming = stream;
    stream.end = parts.open(topics, {
      opened() {
        if (stream !== coming) return;
        current?.end();
        current = stream;
        coming = undefined;
        decide({ type: "opened" });
        // What was live stays so until its snapshot comes.
        show(new Map([...views].filter(([topic]) => topics.includes(topic))));
        if (hadGap) parts.onBack();
        isAway = hadGap = false;
      },
      take(event) {
        if (stream !== current) return;
        decide({ type: "heard" });
        show(viewsAfter(views, event));
        const { data, trouble } = views.get(event.topic) ?? {};
        if (data && !trouble) parts.onData(event.topic, data);
      },
      lost(cause) {
        if (stream === coming) coming = undefined;
        else if (stream !== current) return;
        else {
          current = undefined;
          hadGap = true;
          show(new Map());
        }
        if (coming) return;
        decide({ type: "lost", cause });
        if (current || isAway) return;
        isAway = hadGap = true;
        parts.onLost();
      },
    });
  };

  return {
    want: (topics) => decide({ type: "wanted", topics }),
    dataOf(topic) {
      const { data, trouble } = views.get(topic) ?? {};
      return trouble ? undefined : data;
    },
    troubles: () => [...views.values()].flatMap(({ trouble }) => trouble ?? []),
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

// The server sends something every 15 seconds. A connection that is gone without a word is found so.
const silenceMs = 40_000;
const refusals: readonly number[] = [400, 403, 404];

/** Follows `GET /v1/watch` until it ends. */
export function followTopics(topics: readonly string[], to: StreamSink): () => void {
  const stop = new AbortController();
  let isEnded = false;
  const lose = (cause: LostCause): void => {
    if (isEnded) return;
    stop.abort();
    to.lost(cause);
  };
  void readTopics(topics, to, stop).then(lose, () => lose("away"));
  return () => {
    isEnded = true;
    stop.abort();
  };
}

async function readTopics(
  topics: readonly string[],
  to: StreamSink,
  stop: AbortController,
): Promise<LostCause> {
  const search = new URLSearchParams({ topics: topics.join(",") });
  const { ok, status, body } = await openStream(`v1/watch?${search}`, stop);
  if (!ok || !body) {
    await body?.cancel();
    return refusals.includes(status) ? "refused" : "away";
  }
  to.opened();
  const reader = body.getReader();
  const events = createEventReader();
  for (;;) {
    const cancel = callLater(silenceMs, () => stop.abort());
    const { done, value } = await reader.read().finally(cancel);
    if (done) return "away";
    for (const event of events.push(value)) {
      // The key was revoked, or the sign-in has ended.
      if (event.type === "error") return "away";
      to.take(event.value as WatchEvent);
    }
  }
}
