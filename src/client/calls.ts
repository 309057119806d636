import type { Json } from "../base/json.ts";
import type { FilePart } from "../protocol/file.ts";
import type { Entry, Part, SessionState, SessionView, WakeView } from "../protocol/message.ts";
import type { NewTaskOptions } from "../protocol/task-options.ts";
import type { Http } from "./http.ts";
import { loadLazyModule } from "./session/view.ts";
import type { AgentView, RunView, TaskView } from "./views.ts";
import type { WatchFactory, Watched } from "./watch.ts";

export type SessionCalls = {
  /** Creates a session; with the id of an existing one, returns that. */
  create(options?: CreateSessionOptions): Promise<SessionView>;
  get(sessionId: string): Promise<SessionView>;
  /** A page, the most recently active first. */
  list(options?: ListSessionsOptions): Promise<SessionPage>;
  /** Archives it: it can be read, but nothing can be added. */
  archive(sessionId: string): Promise<void>;
  unarchive(sessionId: string): Promise<void>;
  /** Deletes it and all its messages for good. */
  remove(sessionId: string): Promise<void>;
  setMetadata(
    sessionId: string,
    metadata: Json,
    options?: { ifVersion?: number },
  ): Promise<{ readonly metadataVersion: number }>;
  /** Changes its users and agents. */
  members(sessionId: string, change: MembersChange): Promise<SessionView>;
  /** A page of entries, in order. */
  entries(sessionId: string, options?: { after?: number; limit?: number }): Promise<EntryPage>;
  /** Has an agent asked at a time, or again and again. One with the same key takes its place. */
  wake(
    sessionId: string,
    wake: NewWake,
  ): Promise<{
    readonly key: string;
    readonly atMs: number;
    readonly seq: number;
    readonly duplicate: boolean;
  }>;
  /** The wakes that are set, the next one first. */
  wakes(sessionId: string): Promise<readonly WakeView[]>;
  /** False where no wake of this key is set. */
  cancelWake(sessionId: string, key: string): Promise<boolean>;
  /** A session that begins with the same entries up to `atSeq`; with the id of an existing fork, that one. */
  fork(sessionId: string, options: ForkOptions): Promise<SessionView>;
  /** Forks before a user's message, and says it anew there: once, however often it is sent with its `id`. */
  edit(
    sessionId: string,
    messageId: string,
    message: string | readonly Part[],
    options?: EditMessageOptions,
  ): Promise<EditedMessage>;
  /** A page of its forks, in the order of their places. */
  forks(sessionId: string, options?: ForksOptions): Promise<ForkPage>;
  /** Requests a summary; resolves to whether it has begun. */
  compact(sessionId: string): Promise<boolean>;
  /**
   * Stores a file for a message of the session, which has what this returns among its parts. One that no
   * message has within an hour is deleted.
   */
  upload(
    sessionId: string,
    file: Blob | Uint8Array<ArrayBuffer>,
    options?: UploadOptions,
  ): Promise<FilePart>;
  /** Where its files can be read without credentials, as by an `<img>`, for an hour at least. */
  openFiles(sessionId: string): Promise<OpenedFiles>;
};

export type UploadOptions = {
  /** Default: that of the `File`. */
  filename?: string;
  /** Default: that of the `Blob`. */
  mediaType?: string;
};

export type OpenedFiles = {
  /** The address of the file that a part refers to; undefined for another part. */
  urlOf(part: Part): string | undefined;
  readonly expiresAtMs: number;
};

export type CreateSessionOptions = {
  /** The agents that answer; the first where a message names none. */
  agents?: readonly string[];
  /** A single agent. */
  agent?: string;
  /** Default: a fresh one. */
  sessionId?: string;
  users?: readonly string[];
  metadata?: Json;
};

export type ForkOptions = {
  /** The last entry that both have. */
  atSeq: number;
  /** The id of the new session. Default: a fresh one. */
  id?: string;
  /** Default: those of the session that is forked. */
  agents?: readonly string[];
  /** Its members besides the caller. */
  users?: readonly string[];
  metadata?: Json;
};

export type EditMessageOptions = Omit<ForkOptions, "atSeq"> & { messageMetadata?: Json };

/** The fork, and where the message is in it. */
export type EditedMessage = {
  readonly session: SessionView;
  readonly seq: number;
  readonly messageId: string;
  readonly duplicate: boolean;
};

export type ForksOptions = PageOptions & {
  /** Only those of this place. */
  atSeq?: number;
};

export type ForkPage = { readonly forks: readonly SessionView[]; readonly next: string | null };

export type ListSessionsOptions = PageOptions & {
  user?: string;
  agent?: string;
  status?: "active" | "archived";
  state?: SessionState["state"];
};

export type PageOptions = {
  /** How many at most. Default 50. */
  limit?: number;
  /** The `next` of the page before. */
  cursor?: string;
};

export type SessionPage = {
  readonly sessions: readonly SessionView[];
  readonly next: string | null;
  /** Up to which time of their last activity sessions were searched so far; null if all were. */
  readonly lookedBackTo: number | null;
  /** Where logs are ahead of the database: when that had everything, in milliseconds. Absent: it does now. */
  readonly asOf?: number;
};

export type MembersChange = {
  addUsers?: readonly string[];
  removeUsers?: readonly string[];
  /** All of them, in order. */
  agents?: readonly string[];
};

/** When an agent is asked: exactly one of `at`, `afterMs` and `cron`. */
export type NewWake = {
  /** Names it in its session. */
  key: string;
  /** Milliseconds since 1970, or text as in RFC 3339. */
  at?: number | string;
  afterMs?: number;
  cron?: string;
  /** The zone of the pattern. Default UTC. */
  timezone?: string;
  /** What the agent is asked. Without it the agent gets the conversation as it is. */
  message?: string;
  /** The agent, where there are several. */
  to?: string;
  /** Sending the same id again sets nothing new. Default: a fresh one. */
  id?: string;
};

export type EntryPage = {
  readonly entries: readonly Entry[];
  /** The `after` of the page that follows; null where these are the last. */
  readonly next: number | null;
  readonly lastSeq: number;
  readonly incarnation: string;
};

/** `onCreated` is called with a session that exists from now on, whatever was known of it before. */
export function sessionCalls(
  http: Http,
  newId: () => string,
  onCreated: (sessionId: string) => void,
  url: () => string,
): SessionCalls {
  const pathOf = (sessionId: string) => `/v1/sessions/${encodeURIComponent(sessionId)}`;
  return {
    async create({ agent, agents, ...rest } = {}) {
      const body = { ...rest, agents: agents ?? (agent === undefined ? agent : [agent]) };
      const created = await http<SessionView>("POST", "/v1/sessions", { body });
      onCreated(created.sessionId);
      return created;
    },
    get: (sessionId) => http("GET", pathOf(sessionId)),
    list: (query = {}) => http("GET", "/v1/sessions", { query }),
    async archive(sessionId) {
      await http("POST", `${pathOf(sessionId)}/archive`);
    },
    async unarchive(sessionId) {
      await http("POST", `${pathOf(sessionId)}/unarchive`);
    },
    async remove(sessionId) {
      await http("DELETE", pathOf(sessionId));
    },
    setMetadata: (sessionId, metadata, { ifVersion } = {}) =>
      http("PUT", `${pathOf(sessionId)}/metadata`, { body: { metadata, ifVersion } }),
    members: (sessionId, body) => http("PUT", `${pathOf(sessionId)}/members`, { body }),
    entries: (sessionId, query = {}) => http("GET", `${pathOf(sessionId)}/messages`, { query }),
    wake: (sessionId, wake) =>
      http("POST", `${pathOf(sessionId)}/wakes`, { body: { id: newId(), ...wake } }),
    async wakes(sessionId) {
      return (await http<{ wakes: WakeView[] }>("GET", `${pathOf(sessionId)}/wakes`)).wakes;
    },
    async cancelWake(sessionId, key) {
      const path = `${pathOf(sessionId)}/wakes/${encodeURIComponent(key)}`;
      return (await http<{ done: boolean }>("DELETE", path)).done;
    },
    async fork(sessionId, body) {
      const fork = await http<SessionView>("POST", `${pathOf(sessionId)}/fork`, { body });
      onCreated(fork.sessionId);
      return fork;
    },
    async edit(sessionId, messageId, message, options = {}) {
      const parts = typeof message === "string" ? [{ type: "text", text: message }] : message;
      const body = { ...options, messageId, parts };
      const edited = await http<EditedMessage>("POST", `${pathOf(sessionId)}/edit`, { body });
      onCreated(edited.session.sessionId);
      return edited;
    },
    forks: (sessionId, query = {}) => http("GET", `${pathOf(sessionId)}/forks`, { query }),
    async compact(sessionId) {
      return (await http<{ done: boolean }>("POST", `${pathOf(sessionId)}/compact`)).done;
    },
    upload: async (sessionId, file, options) =>
      (await loadLazyModule()).uploadFile(http, pathOf(sessionId), file, options),
    openFiles: async (sessionId) =>
      (await loadLazyModule()).openFiles(http, pathOf(sessionId), url),
  };
}

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

/** As in code, but times are numbers or text, and dependencies are ids. See docs/tasks-reference.md. */
export type EnqueueOptions = NewTaskOptions;

export type Enqueued = {
  readonly taskId: string;
  readonly created: boolean;
  readonly replaced?: boolean;
  /** No live pod has a handler for this name: the task waits until one does. */
  readonly noWorker?: boolean;
};

/** See docs/operations-reference.md. */
export type ListTasksOptions = PageOptions & {
  name?: string;
  status?: TaskView["status"];
  tenant?: string;
  key?: string;
  scope?: string;
  pod?: string;
  group?: string;
  session?: string;
  run?: string;
  sinceMs?: number;
  untilMs?: number;
};

export type TaskPage = {
  readonly tasks: readonly TaskView[];
  readonly next: string | null;
  readonly lookedBackTo: number | null;
};

export function taskCalls(http: Http, watch: WatchFactory): TaskCalls {
  const pathOf = (taskId: string) => `/v1/tasks/${encodeURIComponent(taskId)}`;
  const get = async (taskId: string) =>
    (await http<{ task: TaskView }>("GET", pathOf(taskId))).task;
  const hasEnded = ({ status }: TaskView) => status !== "pending" && status !== "claimed";
  const watched = watch(get, hasEnded);
  return {
    enqueue: (name, input = null, options = {}) =>
      http("POST", "/v1/tasks", { body: { name, input, options } }),
    get,
    async cancel(taskId) {
      type Status = { status: "cancelled" | "cancelling" };
      return (await http<Status>("POST", `${pathOf(taskId)}/cancel`)).status;
    },
    async retry(taskId) {
      await http("POST", `${pathOf(taskId)}/retry`);
      watched(taskId).poll();
    },
    list: (query = {}) => http("GET", "/v1/tasks", { query }),
    watch: watched,
  };
}

export type RunCalls = {
  start(flow: string, input?: Json, options?: StartRunOptions): Promise<StartedRun>;
  get(runId: string): Promise<RunView>;
  /** Requests a cancellation. Its finalizers run first. */
  cancel(runId: string): Promise<void>;
  /** Sends a signal. Sending the same id again does nothing. */
  signal(runId: string, name: string, payload?: Json, options?: { id?: string }): Promise<void>;
  /** A page, newest first. */
  list(options?: ListRunsOptions): Promise<RunPage>;
  /** The same handle each time for the same run. */
  watch(runId: string): Watched<RunView>;
};

export type StartRunOptions = Omit<EnqueueOptions, "attempts" | "onDuplicate"> & {
  onDuplicate?: "existing" | "reject";
};

export type StartedRun = {
  readonly runId: string;
  readonly created: boolean;
  /** No live pod has this flow: the run waits until one does. */
  readonly noWorker?: boolean;
};

export type ListRunsOptions = PageOptions & {
  flow?: string;
  status?: RunView["status"] | "pending" | "claimed";
  tenant?: string;
  at?: string;
  parent?: string;
  key?: string;
  pod?: string;
  session?: string;
  run?: string;
  sinceMs?: number;
  untilMs?: number;
};

export type RunPage = {
  readonly runs: readonly RunView[];
  readonly next: string | null;
  readonly lookedBackTo: number | null;
};

export function runCalls(http: Http, watch: WatchFactory): RunCalls {
  const pathOf = (runId: string) => `/v1/runs/${encodeURIComponent(runId)}`;
  const get = async (runId: string) => (await http<{ run: RunView }>("GET", pathOf(runId))).run;
  return {
    start: (flow, input = null, options = {}) =>
      http("POST", "/v1/runs", { body: { flow, input, options } }),
    get,
    async cancel(runId) {
      await http("POST", `${pathOf(runId)}/cancel`);
    },
    async signal(runId, name, payload = null, { id } = {}) {
      await http("POST", `${pathOf(runId)}/signals`, { body: { name, payload, id } });
    },
    list: (query = {}) => http("GET", "/v1/runs", { query }),
    watch: watch(get, ({ status }) => status !== "open"),
  };
}

export type AgentCalls = {
  /** A page, ordered by name. */
  list(options?: PageOptions): Promise<AgentPage>;
};

export type AgentPage = { readonly agents: readonly AgentView[]; readonly next: string | null };

export function agentCalls(http: Http): AgentCalls {
  return { list: (query = {}) => http("GET", "/v1/agents", { query }) };
}
