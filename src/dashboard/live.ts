import {
  QueryCache,
  QueryClient,
  useInfiniteQuery,
  useQuery,
  type UseQueryResult,
} from "@tanstack/react-query";
import { createContext, useContext, useSyncExternalStore } from "react";
import type { Verb } from "../protocol/verbs.ts";
import { api, type HomeFacts, type TaskQuery } from "./api.ts";
import { repeat, wallClockMs } from "./browser.ts";
import { type ServerState, serverStateOf } from "./facts/server-state.ts";

// Also how old the counts of the server may be.
const liveMs = 2_000;
// What has ended changes when a person retries it, and may be a megabyte.
const settledMs = 10_000;
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
const notice = createStore<string>("");

export const queryClient = new QueryClient({
  queryCache: new QueryCache({ onSettled: () => assess() }),
  defaultOptions: {
    queries: {
      // The next look comes soon enough, and an error is shown meanwhile.
      retry: false,
      // What a browser takes for offline may be a server on the same machine.
      networkMode: "always",
      staleTime: liveMs / 2,
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
 * Reads something and keeps it as it is at the server: the one way in which pages are live. Hidden tabs
 * read nothing.
 */
export function useLive<Data>(
  topic: readonly unknown[],
  read: (signal: AbortSignal) => Promise<Data>,
  { isOff = false, isSettled }: LiveOptions<Data> = {},
): UseQueryResult<Data> {
  return useQuery({
    queryKey: topic,
    queryFn: ({ signal }) => read(signal),
    enabled: !isOff,
    refetchInterval({ state: { data } }) {
      if (isSignedOut()) return false;
      return data !== undefined && isSettled?.(data) ? settledMs : liveMs;
    },
  });
}

/** A list of tasks, page by page. Its first page is live; with more pages it stays until it is read again. */
export function useLiveTasks(filter: TaskQuery) {
  return useInfiniteQuery({
    queryKey: ["tasks", filter],
    queryFn: ({ signal, pageParam }) => api.tasks(filter, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }) => next ?? undefined,
    refetchInterval: ({ state }) =>
      isSignedOut() || (state.data?.pages.length ?? 1) > 1 ? false : liveMs,
    refetchOnWindowFocus: ({ state }) => (state.data?.pages.length ?? 1) <= 1,
  });
}

/** Reads everything in sight again, as after an act. */
export function readAgain(): void {
  void queryClient.invalidateQueries();
}

/** Whether what is shown is how it is. */
export function useServerState(): ServerState {
  return useSyncExternalStore(server.subscribe, server.get);
}

/** Looks at how the reads of what is in sight have ended last. */
function assess(): void {
  const home = queryClient.getQueryData<HomeFacts>(["home"]);
  const shown = queryClient.getQueryCache().findAll({ type: "active" });
  const next = serverStateOf(
    home,
    shown.map(({ state }) => state.error),
  );
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
  notice.set(text);
}

export function useNotice(): string {
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
