import {
  QueryCache,
  QueryClient,
  useInfiniteQuery,
  useQuery,
  type UseQueryResult,
} from "@tanstack/react-query";
import { createContext, useContext, useSyncExternalStore } from "react";
import { hasCode } from "../base/errors.ts";
import type { Verb } from "../protocol/verbs.ts";
import { api, type HomeFacts, type TaskFilter } from "./api.ts";
import { repeat, wallClockMs } from "./browser.ts";

/** What the page knows of its connection to the server. */
export type Connection = "online" | "away" | "signed out";

// Also how old the counts of the server may be.
const liveMs = 2_000;
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

const connection = createStore<Connection>("online");
const notice = createStore<string>("");

export const queryClient = new QueryClient({
  queryCache: new QueryCache({
    onSuccess(data, query) {
      // The server answers strangers here, too.
      if (query.queryKey[0] === "home") {
        const { caller } = data as HomeFacts;
        connection.set(caller ? "online" : "signed out");
      } else if (connection.get() === "away") connection.set("online");
    },
    onError(error) {
      if (hasCode(error, "unauthorized")) connection.set("signed out");
      else if (isAway(error)) connection.set("away");
    },
  }),
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

/**
 * Reads something and keeps it as it is at the server: the one way in which pages are live. Hidden tabs
 * read nothing.
 */
export function useLive<Data>(
  topic: readonly unknown[],
  read: (signal: AbortSignal) => Promise<Data>,
  { isOff = false, everyMs = liveMs }: { isOff?: boolean; everyMs?: number } = {},
): UseQueryResult<Data> {
  return useQuery({
    queryKey: topic,
    queryFn: ({ signal }) => read(signal),
    enabled: !isOff,
    refetchInterval: () => (connection.get() === "signed out" ? false : everyMs),
  });
}

/** A list of tasks, page by page. Its first page is live; with more pages it stays until it is read again. */
export function useLiveTasks(filter: TaskFilter) {
  return useInfiniteQuery({
    queryKey: ["tasks", filter],
    queryFn: ({ signal, pageParam }) => api.tasks(filter, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }) => next ?? undefined,
    refetchInterval: ({ state }) =>
      connection.get() === "signed out" || (state.data?.pages.length ?? 1) > 1 ? false : liveMs,
    refetchOnWindowFocus: ({ state }) => (state.data?.pages.length ?? 1) <= 1,
  });
}

/** Reads everything in sight again, as after an act. */
export function readAgain(): void {
  void queryClient.invalidateQueries();
}

export function useServerConnection(): Connection {
  return useSyncExternalStore(connection.subscribe, connection.get);
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

export function isAway(error: unknown): boolean {
  return hasCode(error, "unavailable") && error.details?.["away"] === true;
}
