import { applyPatch, type WatchData, type WatchEvent } from "../../../protocol/watch.ts";

/** What becomes of the stream of topics that a page watches: decided here, done by `watch.ts`. */
export type Link = {
  /** `waiting`: for the next try, after the stream was lost or refused. */
  readonly phase: "off" | "opening" | "open" | "waiting";
  readonly topics: readonly string[];
  /** Tries in a row that brought nothing. */
  readonly failures: number;
};

export type LinkEvent =
  /** These topics are in sight from now on; none while the tab is hidden. */
  | { readonly type: "wanted"; readonly topics: readonly string[] }
  | { readonly type: "opened" | "heard" | "due" }
  | { readonly type: "lost"; readonly cause: LostCause };

/** `refused`: the server has answered that it won't, so that trying again soon wouldn't help. */
export type LostCause = "away" | "refused";

export type LinkAct =
  | { readonly type: "open"; readonly topics: readonly string[] }
  | { readonly type: "close" }
  | { readonly type: "wait"; readonly ms: number };

export const noLink: Link = { phase: "off", topics: [], failures: 0 };

// As many as a server lets one stream watch.
const maxTopics = 16;
const firstWaitMs = 500;
const maxWaitMs = 10_000;
const refusedWaitMs = 30_000;

/** Decides what follows from an event. `chance` is from 0 to 1. */
export function nextLink(
  link: Link,
  event: LinkEvent,
  chance: number,
): { readonly link: Link; readonly act?: LinkAct } {
  switch (event.type) {
    case "wanted": {
      const { topics } = event;
      if (topics.length === 0)
        return link.phase === "off" ? { link } : { link: noLink, act: { type: "close" } };
      if (link.phase !== "off" && isSameList(link.topics, topics)) return { link };
      return { link: { ...link, phase: "opening", topics }, act: { type: "open", topics } };
    }
    case "opened":
      return { link: { ...link, phase: "open" } };
    case "heard":
      return { link: link.failures === 0 ? link : { ...link, failures: 0 } };
    case "lost": {
      if (link.phase === "off") return { link };
      const failures = link.failures + 1;
      const ms = waitMs(failures, event.cause, chance);
      return { link: { ...link, phase: "waiting", failures }, act: { type: "wait", ms } };
    }
    case "due": {
      if (link.phase !== "waiting") return { link };
      return { link: { ...link, phase: "opening" }, act: { type: "open", topics: link.topics } };
    }
  }
}

/** Twice as long after each failure, and not the same for tabs that lost their streams together. */
function waitMs(failures: number, cause: LostCause, chance: number): number {
  const longest =
    cause === "refused" ? refusedWaitMs : Math.min(maxWaitMs, firstWaitMs * 2 ** (failures - 1));
  return Math.round(longest * (0.5 + chance / 2));
}

/** The topics of everything in sight, each once, as far as one stream may have them. */
export function topicsToWatch(all: Iterable<string>): readonly string[] {
  return [...new Set(all)].slice(0, maxTopics).toSorted();
}

function isSameList(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((each, at) => each === other[at]);
}

/** What is known of a topic. With trouble, the data is the last that could be read. */
export type TopicView = {
  readonly data?: WatchData;
  readonly trouble?: { readonly code: string; readonly message: string };
};

export type TopicViews = ReadonlyMap<string, TopicView>;

/** What is known after an event. */
export function viewsAfter(views: TopicViews, event: WatchEvent): TopicViews {
  const before = views.get(event.topic);
  const next = viewAfter(before, event);
  return next === before ? views : new Map([...views, [event.topic, next]]);
}

function viewAfter(before: TopicView | undefined, event: WatchEvent): TopicView {
  switch (event.type) {
    case "snapshot":
      return { data: event.data };
    case "patch":
      return { data: applyPatch(before?.data ?? {}, event.patch) };
    case "trouble": {
      const { code, message } = event;
      return { ...before, trouble: { code, message } };
    }
  }
}

/** An event of a stream, as it was sent. */
