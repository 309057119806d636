import { useMemo, useSyncExternalStore } from "react";
import type { Client } from "../client.ts";
import { isPageVisible, defaultNetwork } from "../environment.ts";
import type { InboxSnapshot } from "../inbox.ts";
import type { Store } from "../observable.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";
import type { ConnectionState } from "../socket/status.ts";
import type { RunView, TaskView } from "../views.ts";
import type { Watched, WatchedSnapshot } from "../watch.ts";
import { useClient } from "./provider.ts";

export type UsedSession = SessionSnapshot &
  Pick<Session, "sessionId" | "send" | "stop" | "regenerate" | "toolResult" | "read">;

const idleSession: SessionSnapshot = {
  status: "idle",
  messages: [],
  unsent: [],
  state: { state: "idle" },
  lastSeq: 0,
};
const open = (client: Client, sessionId: string) => client.session(sessionId);

/** A session as it is now, followed while the component is there. */
export function useSession(sessionId: string, options: { client?: Client } = {}): UsedSession {
  const client = useClient(options.client);
  const snapshot = useStore(useOpened(open, client, sessionId), idleSession);
  const verbs = useMemo(() => methodsOf(client, sessionId), [client, sessionId]);
  return useMemo(() => ({ ...snapshot, ...verbs }), [snapshot, verbs]);
}

/** The same functions for as long as the session is the same, so that effects may depend on them. */
function methodsOf(client: Client, sessionId: string): Omit<UsedSession, keyof SessionSnapshot> {
  const session = () => client.session(sessionId);
  return {
    sessionId,
    send: (...args) => session().send(...args),
    stop: (...args) => session().stop(...args),
    regenerate: (...args) => session().regenerate(...args),
    toolResult: (...args) => session().toolResult(...args),
    read: (...args) => session().read(...args),
  };
}

export type HookOptions = { client?: Client };

const notConnected: ConnectionState = { status: "idle" };
const noInbox: InboxSnapshot = { status: "idle", sessions: [] };
const notWatched: WatchedSnapshot<never> = { status: "idle" };
const nothing: Watched<never> = { get: () => notWatched, subscribe: () => () => {} };

const openInbox = (client: Client) => client.inbox();
const openTask = (client: Client, taskId: string): Watched<TaskView> =>
  taskId === "" ? nothing : client.tasks.watch(taskId);
const openRun = (client: Client, runId: string): Watched<RunView> =>
  runId === "" ? nothing : client.runs.watch(runId);

/** How the connection is doing. */
export function useConnection({ client }: HookOptions = {}): ConnectionState {
  return useStore(useClient(client).connection, notConnected);
}

/** The user's sessions with what is unread, as they change. */
export function useInbox({ client: provided }: HookOptions = {}): InboxSnapshot {
  return useStore(useOpened(openInbox, useClient(provided), ""), noInbox);
}

/** A task as it goes on, its progress among it. Without an id, nothing is looked at. */
export function useTask(
  taskId: string | null | undefined,
  { client: provided }: HookOptions = {},
): WatchedSnapshot<TaskView> {
  return useStore(useOpened(openTask, useClient(provided), taskId ?? ""), notWatched);
}

/** A run of a flow as it goes on. Without an id, nothing is looked at. */
export function useRun(
  runId: string | null | undefined,
  { client: provided }: HookOptions = {},
): WatchedSnapshot<RunView> {
  return useStore(useOpened(openRun, useClient(provided), runId ?? ""), notWatched);
}

/** A store's value. On a server, and while its page is hydrated: what it is at first. */
function useStore<Value>(store: Store<Value>, first: Value): Value {
  return useSyncExternalStore(store.subscribe, store.get, () => first);
}

/**
 * What a client has under an id, as a store that is the same for as long as both are. The client is
 * asked for it only by a page that shows it: a server would keep a handle of every id that it renders.
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

type Readable = Pick<Session, "get" | "read" | "subscribe">;

/** Marks what a session shows as read, while its page is to be seen. */
export function markReadWhileVisible(session: Readable): () => void {
  let readSeq = 0;
  const markRead = () => {
    const { status, lastSeq } = session.get();
    if (status !== "live" || lastSeq <= readSeq || !isPageVisible()) return;
    const before = readSeq;
    readSeq = lastSeq;
    // One that is lost is said again with the next change, at the latest when the session is live again.
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
