import type { Client } from "../client.ts";
import type { ConnectionState } from "../socket/status.ts";
import type { InboxSnapshot } from "../inbox.ts";
import type { RunView, TaskView } from "../views.ts";
import type { Watched, WatchedSnapshot } from "../watched.ts";
import { useClient } from "./provider.ts";
import { useOpened, useStore } from "./use-store.ts";

export type HookOptions = { client?: Client };

const notConnected: ConnectionState = { status: "idle" };
const noInbox: InboxSnapshot = { status: "idle", sessions: [] };
const notLooked: WatchedSnapshot<never> = { status: "idle" };
const nothing: Watched<never> = { get: () => notLooked, subscribe: () => () => {} };

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
export function useInbox({ client: given }: HookOptions = {}): InboxSnapshot {
  return useStore(useOpened(openInbox, useClient(given), ""), noInbox);
}

/** A task as it goes on, its progress among it. Without an id, nothing is looked at. */
export function useTask(
  taskId: string | null | undefined,
  { client: given }: HookOptions = {},
): WatchedSnapshot<TaskView> {
  return useStore(useOpened(openTask, useClient(given), taskId ?? ""), notLooked);
}

/** A run of a flow as it goes on. Without an id, nothing is looked at. */
export function useRun(
  runId: string | null | undefined,
  { client: given }: HookOptions = {},
): WatchedSnapshot<RunView> {
  return useStore(useOpened(openRun, useClient(given), runId ?? ""), notLooked);
}
