import type { Clock } from "../../base/clock.ts";
import { type ErrorCode, FlotillaError, messageOf, tooManyReads } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { createSemaphore } from "../../base/semaphore.ts";
import { patchOf, type WatchData, type WatchEvent } from "../../protocol/watch.ts";
import { type Caller, onlyTenant, requireAccess } from "../auth/caller.ts";
import { publicErrorOf } from "../errors.ts";
import { seesContent, type Serializer } from "../serializer.ts";
import { parseTopic, type Topic, type TopicSources } from "./topics.ts";

/**
 * Live topics for any number of watchers, at the price of one. A topic is read from the store once for all
 * callers that see the same tenants, shown once for all that see the same content, and made text once for
 * all that get it. It is read only while it is watched.
 */
export type WatchHub = {
  /**
   * Sends these topics until the returned function is called: each as a snapshot, then what has changed.
   * Throws where the caller may not watch one, or where there are too many.
   */
  watch(caller: Caller, topics: readonly string[], sink: WatchSink): () => void;
  /** How many topics are watched, or were a moment ago. */
  readonly topics: number;
  /** Reads nothing more, because the server stops. */
  close(): void;
};

export type WatchSink = {
  /** Returns false where the reader is too slow and was cut off. */
  push(event: EncodedWatchEvent): boolean;
  /** Resolves when little is left to be read. */
  drained(): Promise<void>;
};

/** An event as text. One object for all that get it, so that a socket can keep its bytes with it. */
export type EncodedWatchEvent = {
  readonly type: WatchEvent["type"];
  readonly text: string;
  bytes?: Buffer;
};

export type WatchHubParts = TopicSources & {
  serializer: Serializer;
  clock: Clock;
  log: Logger;
  limits?: Partial<WatchLimits>;
};

export type WatchLimits = {
  readonly topicsPerWatcher: number;
  readonly topics: number;
  /** The data of one topic, as one kind of caller sees it. */
  readonly snapshotBytes: number;
  /** The same of all topics together. */
  readonly bytes: number;
};

/** A topic for callers that see the same tenants. */
type Watched = {
  readonly key: string;
  readonly topic: Topic;
  /** One of its callers: all of them see the same tenants. */
  readonly caller: Caller;
  /** By whether their callers see content, or shapes in its place. */
  readonly views: Map<boolean, View>;
  watchers: number;
  /** What was read last. */
  last: { readonly value: unknown; readonly atMs: number } | undefined;
  /** Why it couldn't be read since. */
  trouble: Trouble | undefined;
  isReading: boolean;
  readAgainAtMs: number;
  cancel: () => void;
};

/** A topic as some callers see it. */
type View = {
  readonly watched: Watched;
  readonly caller: Caller;
  readonly watchers: Set<Watcher>;
  /** The data that its watchers have, as text and parsed. */
  text: string | undefined;
  data: WatchData;
  bytes: number;
  snapshot: EncodedWatchEvent | undefined;
  trouble: Trouble | undefined;
};

type Watcher = {
  readonly sink: WatchSink;
  readonly views: Set<View>;
  /** Views whose snapshots are still to be sent: a snapshot has their changes. */
  readonly owed: Set<View>;
  isSending: boolean;
  hasLeft: boolean;
};

type Trouble = { readonly code: ErrorCode; readonly event: EncodedWatchEvent };

// Low enough that one user, with 64 requests at once, can't take all topics of a server.
const maxTopicsPerWatcher = 16;
const maxTopics = 2_000;
const maxSnapshotBytes = 2 * 1024 * 1024;
const maxBytes = 64 * 1024 * 1024;
// However many watch, the reads of a topic take at most a twentieth of the time.
const restFactor = 20;
// Less than a second, so that what a person sees is no older than one.
const minRestMs = 800;
// As many as there are connections for the reads of pages.
const maxConcurrentReads = 2;
const readWaitMs = 30_000;
// From here on watchers are told that they see the past.
const lateMs = 5_000;

export function createWatchHub(parts: WatchHubParts): WatchHub {
  const { serializer, clock, log } = parts;
  const limits: WatchLimits = {
    topicsPerWatcher: maxTopicsPerWatcher,
    topics: maxTopics,
    snapshotBytes: maxSnapshotBytes,
    bytes: maxBytes,
    ...parts.limits,
  };
  const all = new Map<string, Watched>();
  const reads = createSemaphore(maxConcurrentReads, {
    clock,
    waitMs: readWaitMs,
    late: tooManyReads,
  });
  let bytes = 0;
  let isClosed = false;

  const read = async (watched: Watched): Promise<void> => {
    const { topic, caller } = watched;
    watched.isReading = true;
    let tookMs = 0;
    const late = new FlotillaError("unavailable", `the store hasn't answered for ${lateMs} ms`);
    const cancelLate = clock.after(lateMs, () => fail(watched, late));
    try {
      const value = await reads.run(async () => {
        const beganMs = clock.monotonic();
        try {
          return await topic.spec.read(parts, { args: topic.args, caller });
        } finally {
          tookMs = clock.monotonic() - beganMs;
        }
      }, watched.key);
      watched.trouble = undefined;
      watched.last = { value, atMs: clock.now() };
      for (const [sees, view] of watched.views) {
        if (view.watchers.size > 0) show(view);
        else dropView(watched, sees, view);
      }
    } catch (error) {
      fail(watched, error);
    }
    cancelLate();
    watched.isReading = false;
    watched.readAgainAtMs = clock.monotonic() + Math.max(minRestMs, tookMs * restFactor);
    plan(watched);
  };

  /** Reads a topic when it is due, and forgets one that isn't watched any more. */
  const plan = (watched: Watched): void => {
    watched.cancel();
    if (watched.isReading || isClosed) return;
    const waitMs = watched.readAgainAtMs - clock.monotonic();
    // A topic that is left and watched again mustn't be read sooner for it, so it is kept until then.
    if (waitMs > 0) watched.cancel = clock.after(waitMs, () => plan(watched));
    else if (watched.watchers > 0) void read(watched);
    else forget(watched);
  };

  const forget = (watched: Watched): void => {
    watched.cancel();
    all.delete(watched.key);
    for (const [sees, view] of watched.views) dropView(watched, sees, view);
  };

  const dropView = (watched: Watched, sees: boolean, view: View): void => {
    keep(view, undefined, 0);
    watched.views.delete(sees);
  };

  /** Forgets topics that are kept only until they may be read again. */
  const forgetUnwatched = (): void => {
    for (const watched of all.values())
      if (watched.watchers === 0 && !watched.isReading) forget(watched);
  };

  /** Sends the watchers of a view what was read last, or what has changed in it. */
  const show = (view: View): void => {
    const { topic, spec } = view.watched.topic;
    const { value, atMs } = view.watched.last!;
    view.snapshot = undefined;
    const text = JSON.stringify(serializer.shown(spec.schema, value, { caller: view.caller }));
    const size = Buffer.byteLength(text);
    const refusal = refusalOf(view, size);
    if (refusal) {
      keep(view, undefined, 0);
      return showTrouble(view, troubleOf(topic, refusal));
    }
    const before = view.text === undefined || view.trouble ? undefined : view.data;
    if (before && view.text === text) return;
    view.trouble = undefined;
    keep(view, text, size);
    const patch = before && patchOf(before, view.data);
    const event = patch && encode({ type: "patch", topic, atMs, patch });
    const isSmall = event && event.text.length < text.length;
    for (const watcher of view.watchers) {
      if (!isSmall) owe(watcher, view);
      else if (!watcher.owed.has(view)) push(watcher, event);
    }
  };

  const refusalOf = (view: View, size: number): FlotillaError | undefined => {
    const isTooMuch = () => bytes - view.bytes + size > limits.bytes;
    if (isTooMuch()) forgetUnwatched();
    if (size > limits.snapshotBytes) {
      const message = `this topic takes more than ${limits.snapshotBytes} bytes: read its route`;
      return new FlotillaError("payload_too_large", message);
    }
    if (!isTooMuch()) return undefined;
    const message = `the topics of this server take more than ${limits.bytes} bytes: read its route`;
    return new FlotillaError("overloaded", message);
  };

  const keep = (view: View, text: string | undefined, size: number): void => {
    bytes += size - view.bytes;
    view.bytes = size;
    view.text = text;
    view.data = text === undefined ? {} : (JSON.parse(text) as WatchData);
  };

  const troubleOf = (topic: string, thrown: unknown): Trouble => {
    const isOurs = thrown instanceof FlotillaError;
    const error = isOurs ? thrown : new FlotillaError("internal", messageOf(thrown));
    const { code } = error;
    const { message } = publicErrorOf(error);
    return { code, event: encode({ type: "trouble", topic, atMs: clock.now(), code, message }) };
  };

  const fail = (watched: Watched, error: unknown): void => {
    const { topic } = watched.topic;
    if (!watched.trouble) log.warn({ topic, error: messageOf(error) }, "watched topic unreadable");
    watched.trouble = troubleOf(topic, error);
    for (const view of watched.views.values()) showTrouble(view, watched.trouble);
  };

  /** Sends it once, until the topic can be read again or the trouble is another one. */
  const showTrouble = (view: View, trouble: Trouble): void => {
    const isKnown = view.trouble?.code === trouble.code;
    view.trouble = trouble;
    if (isKnown) return;
    for (const watcher of view.watchers) if (!watcher.owed.has(view)) push(watcher, trouble.event);
  };

  const owe = (watcher: Watcher, view: View): void => {
    watcher.owed.add(view);
    void sendOwed(watcher);
  };

  /** Sends snapshots one after another, so that a reader of many isn't cut off for what it has requested. */
  const sendOwed = async (watcher: Watcher): Promise<void> => {
    if (watcher.isSending) return;
    watcher.isSending = true;
    while (watcher.owed.size > 0) {
      await watcher.sink.drained();
      const [view] = watcher.owed;
      if (!view) break;
      watcher.owed.delete(view);
      if (view.text !== undefined) push(watcher, snapshotOf(view));
      if (view.trouble) push(watcher, view.trouble.event);
    }
    watcher.isSending = false;
  };

  const snapshotOf = (view: View): EncodedWatchEvent => {
    const { topic } = view.watched.topic;
    const { atMs } = view.watched.last!;
    return (view.snapshot ??= encode({ type: "snapshot", topic, atMs, data: view.data }));
  };

  const push = (watcher: Watcher, event: EncodedWatchEvent): void => {
    if (!watcher.hasLeft && !watcher.sink.push(event)) leave(watcher);
  };

  const leave = (watcher: Watcher): void => {
    if (watcher.hasLeft) return;
    watcher.hasLeft = true;
    watcher.owed.clear();
    for (const view of watcher.views) {
      view.watchers.delete(watcher);
      if (--view.watched.watchers === 0) plan(view.watched);
    }
  };

  const join = (watcher: Watcher, watched: Watched, caller: Caller): void => {
    const sees = seesContent(caller);
    const view = watched.views.get(sees) ?? newView(watched, caller);
    watched.views.set(sees, view);
    view.watchers.add(watcher);
    watcher.views.add(view);
    watcher.owed.add(view);
    watched.watchers++;
    // Other callers have had it read: show it to these as well.
    if (view.text === undefined && !view.trouble && watched.last) show(view);
    view.trouble ??= watched.trouble;
    plan(watched);
  };

  const checkCount = (added: number): void => {
    if (all.size + added > limits.topics) forgetUnwatched();
    if (all.size + added <= limits.topics) return;
    throw new FlotillaError(
      "overloaded",
      `this server has ${limits.topics} topics watched already: close some pages, or try again`,
      { details: { topics: limits.topics }, retryAfterMs: minRestMs },
    );
  };

  return {
    watch(caller, names, sink) {
      if (isClosed) throw new FlotillaError("closed", "the server is stopping");
      if (names.length === 0 || names.length > limits.topicsPerWatcher) {
        throw new FlotillaError(
          "invalid_input",
          `watch 1 to ${limits.topicsPerWatcher} topics at once, not ${names.length}`,
        );
      }
      const parsed = names.map(parseTopic);
      for (const { spec } of parsed) for (const route of spec.routes) requireAccess(caller, route);
      const topics = new Map(parsed.map((each) => [watchedKey(caller, each), each]));
      checkCount([...topics.keys()].filter((key) => !all.has(key)).length);
      const watcher: Watcher = {
        sink,
        views: new Set(),
        owed: new Set(),
        isSending: false,
        hasLeft: false,
      };
      for (const [key, topic] of topics) {
        const watched = all.get(key) ?? newWatched(key, topic, caller);
        all.set(key, watched);
        join(watcher, watched, caller);
      }
      void sendOwed(watcher);
      return () => leave(watcher);
    },
    get topics() {
      return all.size;
    },
    close() {
      isClosed = true;
      for (const watched of all.values()) forget(watched);
    },
  };
}

/** The same for callers that see the same of the topic. */
function watchedKey(caller: Caller, { topic, spec }: Topic): string {
  const held = onlyTenant(caller) ?? null;
  if (!spec.ofNamedTenant) return JSON.stringify([topic, held]);
  if (caller.sessions) {
    const message = `the topic ${topic} is about all sessions, and this token names some`;
    throw new FlotillaError("forbidden", message);
  }
  return JSON.stringify([topic, held, caller.tenant]);
}

function newWatched(key: string, topic: Topic, caller: Caller): Watched {
  return {
    key,
    topic,
    caller,
    views: new Map(),
    watchers: 0,
    last: undefined,
    trouble: undefined,
    isReading: false,
    readAgainAtMs: -Infinity,
    cancel: () => {},
  };
}

function newView(watched: Watched, caller: Caller): View {
  return {
    watched,
    caller,
    watchers: new Set(),
    text: undefined,
    data: {},
    bytes: 0,
    snapshot: undefined,
    trouble: undefined,
  };
}

function encode(event: WatchEvent): EncodedWatchEvent {
  return { type: event.type, text: JSON.stringify(event) };
}
