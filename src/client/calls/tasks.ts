import type { Json } from "../../base/jsonify.ts";
import type { TaskEventView, TaskView } from "../views.ts";
import type { Watched } from "../watched.ts";
import type { PageOptions } from "./sessions.ts";

export type TaskCalls = {
  enqueue(name: string, input?: Json, options?: EnqueueOptions): Promise<Enqueued>;
  get(taskId: string): Promise<TaskView>;
  /** What happened to it. */
  events(taskId: string): Promise<readonly TaskEventView[]>;
  /** `cancelling` while a pod still runs it. */
  cancel(taskId: string): Promise<"cancelled" | "cancelling">;
  /** Starts a failed or cancelled task over. */
  retry(taskId: string): Promise<void>;
  /** A page, newest first. */
  list(options?: ListTasksOptions): Promise<TaskPage>;
  /** The same handle each time for the same task. */
  watch(taskId: string): Watched<TaskView>;
};

/** As the server's own; see docs/tasks.md. */
export type EnqueueOptions = {
  priority?: number;
  delayMs?: number;
  runAt?: number | string;
  attempts?: number;
  tenant?: string;
  concurrencyKey?: string;
  /** Names the task, so that it isn't stored twice. */
  key?: string;
  onDuplicate?: "existing" | "reject" | "replace";
  uniqueWhile?: "kept" | "unfinished";
  uniqueForMs?: number;
  after?: readonly string[];
  afterFailed?: "fail" | "run";
};

export type Enqueued = {
  readonly taskId: string;
  readonly created: boolean;
  readonly replaced?: boolean;
};

export type ListTasksOptions = PageOptions & {
  name?: string;
  status?: TaskView["status"];
  tenant?: string;
};

export type TaskPage = { readonly tasks: readonly TaskView[]; readonly next: string | null };
