import type { Json } from "../base/json.ts";
import type { Http } from "./http.ts";
import type { Watch } from "./watch.ts";
import type { TaskView } from "./views.ts";
import type { Watched } from "./watched.ts";
import type { PageOptions } from "./calls.ts";

export type TaskCalls = {
  enqueue(name: string, input?: Json, options?: EnqueueOptions): Promise<Enqueued>;
  get(taskId: string): Promise<TaskView>;
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
  /** No pod that is up works on tasks of this name: it waits until one does. */
  readonly noWorker?: boolean;
};

export type ListTasksOptions = PageOptions & {
  name?: string;
  status?: TaskView["status"];
  tenant?: string;
};

export type TaskPage = { readonly tasks: readonly TaskView[]; readonly next: string | null };

export function taskCalls(http: Http, watch: Watch): TaskCalls {
  const at = (taskId: string) => `/v1/tasks/${encodeURIComponent(taskId)}`;
  const get = async (taskId: string) => (await http<{ task: TaskView }>("GET", at(taskId))).task;
  const hasEnded = ({ status }: TaskView) => status !== "pending" && status !== "claimed";
  const watched = watch(get, hasEnded);
  return {
    enqueue: (name, input = null, options = {}) =>
      http("POST", "/v1/tasks", { body: { name, input, options } }),
    get,
    async cancel(taskId) {
      type Status = { status: "cancelled" | "cancelling" };
      return (await http<Status>("POST", `${at(taskId)}/cancel`)).status;
    },
    async retry(taskId) {
      await http("POST", `${at(taskId)}/retry`);
      watched(taskId).again();
    },
    list: (query = {}) => http("GET", "/v1/tasks", { query }),
    watch: watched,
  };
}
