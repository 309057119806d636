import {
  hashKey,
  QueryCache,
  QueryClient,
  useInfiniteQuery,
  useQuery,
  type UseQueryResult,
} from "@tanstack/react-query";
import { createContext, useContext, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { FlotillaError, type ErrorCode } from "../base/errors.ts";
import type { Verb } from "../protocol/verbs.ts";
import type { WatchData } from "../protocol/watch.ts";
import { api, type HomeFacts, type TaskQuery } from "./api.ts";
import { chance, callLater, isInSight, watchSight, repeat, wallClockMs } from "./browser.ts";
import { isByTheMinute, type LiveSource, sourcesOf } from "./facts/live/sources.ts";
import { topicsToWatch } from "./facts/live/stream.ts";
import { type ServerState, serverStateOf } from "./facts/server-state.ts";
import { createWatching, followTopics } from "./watch.ts";

// How often something is read that no topic tells of, or while the stream of topics is away.
const polledMs = 2_000;
// What was read so lately isn't read for another part of a page.
const freshMs = 1_000;
// What has ended changes when a person retries it, and may be a megabyte. Also how long a change is unseen
// that the topics behind a page don't tell of.
const settledMs = 10_000;
// A topic may change each time that it is read, and what it tells of needn't be read more often.
const minReadMs = 800;
// Pages come and go with their topics in one turn, for one new stream.
const gatherMs = 30;
const tickMs = 1_000;

function createStore<Value>(first: Value) {
  let value = first;
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set(next: Value): void {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of listeners) listener();
    },
    subscribe(listener: () => void): () => void {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

/** The time, which passes for all that show it at once, and only while something does. */
const clock = (() => {
  const store = createStore(wallClockMs());
  let stop: (() => void) | undefined;
  let shown = 0;
  return {
    get: store.get,
    subscribe(listener: () => void): () => void {
      if (shown++ === 0) {
        store.set(wallClockMs());
        stop = repeat(tickMs, () => store.set(wallClockMs()));
      }
      const leave = store.subscribe(listener);
      return () => {
        leave();
        if (--shown === 0) stop?.();
      };
    },
  };
})();

const server = createStore<ServerState>({ type: "online" });
/** The number tells two notices of the same words apart. */
const notice = createStore<Notice>({ text: "", number: 0 });

export type Notice = { readonly text: string; readonly number: number };

/** Something in sight that topics tell of. */
type Watched = {
  readonly key: readonly unknown[];
  readonly sources: readonly LiveSource[];
  /** The marks of its topics when it was read last. */
  readonly marks: Map<string, string>;
  uses: number;
  readAtMs: number;
  /** It has changed, and is read again when it may be. */
  isOwed: boolean;
  cancel(): void;
};

const inSight = new Map<string, Watched>();

const watching = createWatching({
  open: followTopics,
  after: callLater,
  chance,
  onData(topic, data) {
    for (const watched of inSight.values()) take(watched, topic, data);
  },
  // Whether the server is away or the sign-in has ended, reads find out.
  onLost: () => void queryClient.invalidateQueries({ queryKey: ["home"] }),
  onBack: readAgain,
});

export const queryClient = new QueryClient({
  queryCache: new QueryCache({
    onSettled(_, __, { queryHash }) {
      assess();
      const watched = inSight.get(queryHash);
      if (watched?.isOwed) readSoon(watched);
    },
  }),
  defaultOptions: {
    queries: {
      // The next look comes soon enough, and an error is shown meanwhile.
      retry: false,
      // What a browser takes for offline may be a server on the same machine.
      networkMode: "always",
      staleTime: freshMs,
    },
  },
});

type LiveOptions<Data> = {
  /** It isn't read at all. */
  isOff?: boolean;
  /** Whether it hardly changes any more, so that it needn't be read as often. */
  isSettled?: (data: Data) => boolean;
};

/**
 * Reads something and keeps it as it is at the server: the one way in which pages are live. Where a topic
 * has all of it, the topic's data is shown; where topics only tell that it has changed, it is read again;
 * where there is no topic, it is read every now and then. Hidden tabs watch and read nothing.
 */
export function useLive<Data>(
  topic: readonly unknown[],
  read: (signal: AbortSignal) => Promise<Data>,
  { isOff = false, isSettled }: LiveOptions<Data> = {},
): UseQueryResult<Data> {
  const { isReported, shown } = useWatched(topic, isOff);
  const result = useQuery({
    queryKey: topic,
    queryFn: ({ signal }) => read(signal),
    enabled: !isOff,
    refetchInterval({ state: { data, error } }) {
      if (isSignedOut()) return false;
      if (error) return polledMs;
      if (shown !== undefined) return false;
      if (data === undefined) return polledMs;
      return isReported || isByTheMinute(topic) || isSettled?.(data) ? settledMs : polledMs;
    },
  });
  return shown === undefined ? result : ({ ...result, data: shown } as UseQueryResult<Data>);
}

/** A list of tasks, page by page. Its first page is live; with more pages it stays until it is read again. */
export function useLiveTasks(filter: TaskQuery, { isOff = false }: { isOff?: boolean } = {}) {
  const key = ["tasks", filter];
  const pages = queryClient.getQueryData<{ pages: unknown[] }>(key)?.pages.length ?? 1;
  const { isReported } = useWatched(key, isOff || pages > 1);
  return useInfiniteQuery({
    queryKey: key,
    enabled: !isOff,
    queryFn: ({ signal, pageParam }) => api.tasks(filter, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }) => next ?? undefined,
    refetchInterval({ state }) {
      if (isSignedOut() || (state.data?.pages.length ?? 1) > 1) return false;
      return isReported && !state.error ? settledMs : polledMs;
    },
    refetchOnWindowFocus: ({ state }) => (state.data?.pages.length ?? 1) <= 1,
  });
}

/** Watches the topics behind a key while it is in sight. */
function useWatched(key: readonly unknown[], isOff: boolean) {
  const caller = useContext(HomeContext)?.caller;
  const hash = hashKey(key);
  const sources = useMemo(() => {
    if (isOff || !caller) return [];
    const may = (verb: Verb) => caller.verbs.includes(verb);
    return sourcesOf(JSON.parse(hash) as unknown[], { seesAll: caller.tenant === undefined, may });
  }, [hash, isOff, caller]);
  useEffect(() => {
    if (sources.length === 0) return;
    return putInSight(hash, JSON.parse(hash) as unknown[], sources);
  }, [hash, sources]);
  const isReported = useSyncExternalStore(
    watching.subscribe,
    () =>
      sources.length > 0 &&
      sources.every(({ topic, inPart }) => !inPart && watching.dataOf(topic) !== undefined),
  );
  const show = sources[0]?.show;
  const data = useSyncExternalStore(watching.subscribe, () =>
    show ? watching.dataOf(sources[0]!.topic) : undefined,
  );
  const shown = useMemo(() => (show && data ? show(data) : undefined), [show, data]);
  return { isReported, shown };
}

function putInSight(
  hash: string,
  key: readonly unknown[],
  sources: readonly LiveSource[],
): () => void {
  const watched = inSight.get(hash) ?? newWatched(key, sources);
  inSight.set(hash, watched);
  if (watched.uses++ === 0) takeKnown(watched);
  wantSoon();
  return () => {
    if (--watched.uses > 0) return;
    watched.cancel();
    inSight.delete(hash);
    wantSoon();
  };
}

/** Takes what is live already, for something else. */
function takeKnown(watched: Watched): void {
  const { data: read, dataUpdatedAt = 0 } = queryClient.getQueryState(watched.key) ?? {};
  // It isn't read now, so that it may be from before the last change.
  const isKept = read !== undefined && wallClockMs() - dataUpdatedAt < freshMs;
  for (const { topic } of watched.sources) {
    const data = watching.dataOf(topic);
    if (!data) continue;
    const known = markOf(watched, topic, data);
    if (!isKept && known !== undefined) watched.marks.set(topic, known);
    else take(watched, topic, data);
  }
}

function newWatched(key: readonly unknown[], sources: readonly LiveSource[]): Watched {
  return {
    key,
    sources,
    marks: new Map(),
    uses: 0,
    readAtMs: -Infinity,
    isOwed: false,
    cancel: () => {},
  };
}

let cancelWant = () => {};

function wantSoon(): void {
  cancelWant();
  cancelWant = callLater(gatherMs, () => {
    const all = [...inSight.values()].flatMap(({ sources }) => sources.map(({ topic }) => topic));
    watching.want(isInSight() ? topicsToWatch(all) : []);
  });
}

watchSight(wantSoon);
watching.subscribe(() => assess());

/** Keeps a topic's data where it is what is shown, and reads again where it says that something has changed. */
function take(watched: Watched, topic: string, data: WatchData): void {
  const show = watched.sources.find((each) => each.topic === topic)?.show;
  // Also for the time after the stream is lost, and for the next page that shows it.
  if (show) queryClient.setQueryData(watched.key, show(data));
  const next = markOf(watched, topic, data);
  if (next === undefined || watched.marks.get(topic) === next) return;
  watched.marks.set(topic, next);
  readSoon(watched);
}

/** Undefined where the topic doesn't tell that it has to be read. */
function markOf({ sources }: Watched, topic: string, data: WatchData): string | undefined {
  const source = sources.find((each) => each.topic === topic);
  if (!source || source.show) return undefined;
  return JSON.stringify(source.mark ? source.mark(data) : data);
}

function readSoon(watched: Watched): void {
  const { key: queryKey } = watched;
  watched.cancel();
  watched.isOwed = true;
  // What is being read may have been read before the change, so it is read again after that.
  if (queryClient.isFetching({ queryKey, exact: true }) > 0) return;
  const waitMs = watched.readAtMs + minReadMs - wallClockMs();
  // A clock that was set back doesn't stop it.
  watched.cancel = callLater(Math.min(minReadMs, Math.max(0, waitMs)), () => {
    watched.isOwed = false;
    watched.readAtMs = wallClockMs();
    void queryClient.invalidateQueries({ queryKey, exact: true }, { cancelRefetch: false });
  });
}

/** How often everything in sight was read again. */
const rounds = createStore(0);

/** Reads everything in sight again, as after an act. */
export function readAgain(): void {
  rounds.set(rounds.get() + 1);
  void queryClient.invalidateQueries();
}

/** Calls back when everything in sight is read again, for what keeps its data elsewhere. */
export function useReadAgain(callback: () => void): void {
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => rounds.subscribe(() => latest.current()), []);
}

/** Whether what is shown is how it is. */
export function useServerState(): ServerState {
  return useSyncExternalStore(server.subscribe, server.get);
}

/** Looks at how the reads of what is in sight have ended last. */
function assess(): void {
  const home = queryClient.getQueryData<HomeFacts>(["home"]);
  const shown = queryClient.getQueryCache().findAll({ type: "active" });
  const next = serverStateOf(home, [
    ...shown.map(({ state }) => state.error),
    ...watching.troubles().flatMap(({ code, message }) => {
      // Others concern one topic, and reads of its route tell whether they matter.
      const isOfStore = code.startsWith("store_");
      return isOfStore ? new FlotillaError(code as ErrorCode, message) : [];
    }),
  ]);
  const before = server.get();
  const isSame =
    next.type === before.type &&
    (next.type !== "unable" ||
      before.type !== "unable" ||
      next.error.message === before.error.message);
  if (!isSame) server.set(next);
}

function isSignedOut(): boolean {
  return server.get().type === "signed out";
}

/** Says what an act has done, where screen readers read it as well. */
export function announce(text: string): void {
  notice.set({ text, number: notice.get().number + 1 });
}

export function useNotice(): Notice {
  return useSyncExternalStore(notice.subscribe, notice.get);
}

/** The time of now, as it passes. */
export function useNow(): number {
  return useSyncExternalStore(clock.subscribe, clock.get);
}

/** What the server said of itself and of its caller. */
export const HomeContext = createContext<HomeFacts | undefined>(undefined);

export function useHome(): HomeFacts {
  const home = useContext(HomeContext);
  if (!home) throw new Error("a page is shown before the server is known");
  return home;
}

/** Whether the caller may do something. The server refuses it in any case where not. */
export function useMay(verb: Verb): boolean {
  return useHome().caller?.verbs.includes(verb) ?? false;
}

/** Whether the caller sees the fleet as a whole, and not one tenant's part of it. */
export function useSeesAll(): boolean {
  return useHome().caller?.tenant === undefined;
}
