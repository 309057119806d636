import { useMemo } from "react";
import type { Client } from "../client.ts";
import type { ConnectionState } from "../connection.ts";
import type { InboxSnapshot } from "../inbox.ts";
import type { RunView, TaskView } from "../views.ts";
import type { WatchedSnapshot } from "../watched.ts";
import { useClient } from "./provider.ts";
import { useStore } from "./use-store.ts";

export type HookOptions = { client?: Client };

const notConnected: ConnectionState = { status: "idle" };
const noInbox: InboxSnapshot = { status: "idle", sessions: [] };
const notLooked: WatchedSnapshot<never> = { status: "idle" };

/** How the connection is doing. */
export function useConnection({ client }: HookOptions = {}): ConnectionState {
  return useStore(useClient(client).connection, notConnected);
}

/** The user's sessions with what is unread, as they change. */
export function useInbox({ client: given }: HookOptions = {}): InboxSnapshot {
  const client = useClient(given);
  const inbox = useMemo(() => client.inbox(), [client]);
  return useStore(inbox, noInbox);
}

/** A task as it goes on, its progress among it. Without an id, nothing is looked at. */
export function useTask(
  taskId: string | null | undefined,
  { client: given }: HookOptions = {},
): WatchedSnapshot<TaskView> {
  const client = useClient(given);
  const task = useMemo(() => (taskId ? client.tasks.watch(taskId) : undefined), [client, taskId]);
  return useStore<WatchedSnapshot<TaskView>>(task, notLooked);
}

/** A run of a flow as it goes on. Without an id, nothing is looked at. */
export function useRun(
  runId: string | null | undefined,
  { client: given }: HookOptions = {},
): WatchedSnapshot<RunView> {
  const client = useClient(given);
  const run = useMemo(() => (runId ? client.runs.watch(runId) : undefined), [client, runId]);
  return useStore<WatchedSnapshot<RunView>>(run, notLooked);
}
