import { useMemo, useSyncExternalStore } from "react";
import type { Person } from "../../protocol/frames.ts";
import type { Client } from "../client.ts";
import { isPageVisible, defaultNetwork } from "../environment.ts";
import type { InboxSnapshot } from "../inbox.ts";
import type { Store } from "../observable.ts";
import type { SessionPresence } from "../session/presence.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";
import type { ConnectionState } from "../socket/status.ts";
import type { RunView, TaskView } from "../views.ts";
import type { Watched, WatchedSnapshot } from "../watch.ts";
import { useClient } from "./provider.ts";

export type UsedSession = SessionSnapshot &
  Pick<Session, "sessionId" | "send" | "stop" | "regenerate" | "toolResult" | "signal" | "read">;

export type UsedPresence = Pick<SessionPresence, "typing"> & {
  readonly people: readonly Person[];
};

export type HookOptions = { client?: Client };

type Readable = Pick<Session, "get" | "read" | "subscribe">;

const idleSession: SessionSnapshot = {
  status: "idle",
  messages: [],
  unsent: [],
  state: { state: "idle" },
  lastSeq: 0,
};

const notConnected: ConnectionState = { status: "idle" };
const noInbox: InboxSnapshot = { status: "idle", sessions: [] };
const notWatched: WatchedSnapshot<never> = { status: "idle" };
const noPeople: readonly Person[] = [];
const nothing: Watched<never> = { get: () => notWatched, subscribe: () => () => {} };
const open = (client: Client, sessionId: string) => client.session(sessionId);
const openPresence = (client: Client, sessionId: string) => client.session(sessionId).presence;
const openInbox = (client: Client) => client.inbox();
const openTask = (client: Client, taskId: string): Watched<TaskView> =>
  taskId === "" ? nothing : client.tasks.watch(taskId);
const openRun = (client: Client, runId: string): Watched<RunView> =>
  runId === "" ? nothing : client.runs.watch(runId);

/** A session's snapshot, followed while the component is mounted. */
export function useSession(sessionId: string, options: { client?: Client } = {}): UsedSession {
  const client = useClient(options.client);
  const snapshot = useStore(useOpened(open, client, sessionId), idleSession);
  const verbs = useMemo(() => methodsOf(client, sessionId), [client, sessionId]);
  return useMemo(() => ({ ...snapshot, ...verbs }), [snapshot, verbs]);
}

/**
 * Who has the session open, by name, the user of this page too, and who types. While it is mounted, the
 * user is shown to the others; `typing` is to be called with every key.
 */
export function usePresence(sessionId: string, options: { client?: Client } = {}): UsedPresence {
  const client = useClient(options.client);
  const people = useStore(useOpened(openPresence, client, sessionId), noPeople);
  return useMemo(
    () => ({
      people,
      typing: (isTyping) => client.session(sessionId).presence.typing(isTyping),
    }),
    [people, client, sessionId],
  );
}

/** The state of the connection. */
export function useConnection({ client }: HookOptions = {}): ConnectionState {
  return useStore(useClient(client).connection, notConnected);
}

/** The user's sessions with unread counts, as they change. */
export function useInbox({ client: provided }: HookOptions = {}): InboxSnapshot {
  return useStore(useOpened(openInbox, useClient(provided), ""), noInbox);
}

/** A task and its progress, as they change. Without an id, nothing is watched. */
export function useTask(
  taskId: string | null | undefined,
  { client: provided }: HookOptions = {},
): WatchedSnapshot<TaskView> {
  return useStore(useOpened(openTask, useClient(provided), taskId ?? ""), notWatched);
}

/** A run of a flow, as it changes. Without an id, nothing is watched. */
export function useRun(
  runId: string | null | undefined,
  { client: provided }: HookOptions = {},
): WatchedSnapshot<RunView> {
  return useStore(useOpened(openRun, useClient(provided), runId ?? ""), notWatched);
}

/** Marks a session as read while its page is visible. */
export function markReadWhileVisible(session: Readable): () => void {
  let readSeq = 0;
  const markRead = () => {
    const { status, lastSeq } = session.get();
    if (status !== "live" || lastSeq <= readSeq || !isPageVisible()) return;
    const before = readSeq;
    readSeq = lastSeq;
    // A read mark that is lost is sent again with the next change, at the latest when the session rejoins.
    session.read(lastSeq).catch(() => {
      if (readSeq === lastSeq) readSeq = before;
    });
  };
  const stop = session.subscribe(markRead);
  const stopVisibility = defaultNetwork.onChange(markRead);
  markRead();
  return () => {
    stop();
    stopVisibility();
  };
}

/** Stable functions for as long as the session stays the same, so that effects may depend on them. */
function methodsOf(client: Client, sessionId: string): Omit<UsedSession, keyof SessionSnapshot> {
  const session = () => client.session(sessionId);
  return {
    sessionId,
    send: (...args) => session().send(...args),
    stop: (...args) => session().stop(...args),
    regenerate: (...args) => session().regenerate(...args),
    toolResult: (...args) => session().toolResult(...args),
    signal: (...args) => session().signal(...args),
    read: (...args) => session().read(...args),
  };
}

/** A store's value. During server rendering and hydration: the initial one. */
function useStore<Value>(store: Store<Value>, first: Value): Value {
  return useSyncExternalStore(store.subscribe, store.get, () => first);
}

/**
 * A client's store for an id, stable for as long as both stay the same. It is opened on its first use in
 * a page: server rendering would otherwise keep a handle of every id that it renders.
 */
function useOpened<Value>(
  open: (client: Client, id: string) => Store<Value>,
  client: Client,
  id: string,
): Store<Value> {
  return useMemo(() => {
    let opened: Store<Value> | undefined;
    const store = () => (opened ??= open(client, id));
    return { get: () => store().get(), subscribe: (listener) => store().subscribe(listener) };
  }, [open, client, id]);
}
