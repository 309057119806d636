import process from "node:process";
import { followUntil, systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { systemRandom } from "../base/random.ts";
import { type Client, createClient } from "../client/client.ts";
import { serverUrl } from "../client/environment.ts";
import { createClientCredentials, createHttp, type Http } from "../client/http.ts";
import type { ClientOptions } from "../client/options.ts";
import { type Bulk, hasBulkEnded } from "../bulk/bulk.ts";
import type { BulkOutcome } from "../bulk/bulks.ts";
import { type ChangePage, followPages } from "../changes/changes.ts";
import type { DeadLetters } from "../dead-letters/dead-letters.ts";
import type { HistoryEntry, RunView } from "../flows/rows.ts";
import type { OpenSignal, Runs } from "../flows/runs.ts";
import type { flowToJson } from "../runtime/flows.ts";
import type { KeyView } from "../keys/key.ts";
import type { Grant } from "../keys/keys.ts";
import type { Revocation } from "../keys/revocations.ts";
import type { SignInView } from "../keys/sign-ins.ts";
import type { Flotilla } from "../runtime/connect.ts";
import type { PodInfo } from "../runtime/pods.ts";
import type { Schedule } from "../schedules/rows.ts";
import type { ScheduleDeclaration } from "../schedules/schedule.ts";
import type { Schedules } from "../schedules/schedules.ts";
import type { CountedListOptions, TenantCounts } from "../quotas/counts.ts";
import type { ShownQuota } from "../runtime/quota-config.ts";
import type { AgentView } from "../sessions/agents/stored-agents.ts";
import type { SessionPage, SessionService, SessionView } from "../sessions/service.ts";
import type { Links } from "../links/links.ts";
import type { Paused } from "../tasks/claim/pauses.ts";
import type { LimitState } from "../tasks/concurrency/limits.ts";
import type { EnqueueRow } from "../tasks/enqueue/each.ts";
import type { EnqueueOptions } from "../tasks/enqueue/options.ts";
import type { Verdict } from "../tasks/inspect/evidence.ts";
import { resultOf, type WaitOptions } from "../tasks/inspect/wait-for.ts";
import type { Task } from "../tasks/rows.ts";
import type { TaskContract } from "../tasks/model.ts";
import type {
  Stats,
  StepEntry,
  TaskEvent,
  TaskEventsOptions,
  TaskPage,
  Tasks,
} from "../tasks/tasks.ts";
import type { ThrottleView } from "../throttles/shares/admin.ts";
import { checkedFetch } from "./checked-fetch.ts";
import { remoteDeadLetters } from "./remote-dead-letters.ts";
import {
  allPages,
  ifFound,
  type RequestQuery,
  unlessFinished,
  valuesQuery,
  whenEnded,
} from "./remote-requests.ts";
import { nameOf, sendRows, withoutTrace } from "./send-rows.ts";

/** What commands ask of Flotilla. A store and a server answer alike, so a command needn't know which. */
export type Operations = Pick<
  Flotilla,
  | "agents"
  | "approvals"
  | "audit"
  | "bulk"
  | "changes"
  | "drainPod"
  | "enqueue"
  | "enqueueEach"
  | "keys"
  | "pods"
  | "throttles"
  | "tokens"
  | "undrainPod"
  | "waitFor"
> & {
  readonly tasks: Omit<Tasks, keyof Flotilla | "prune" | "settled" | "states" | "waitFor">;
  readonly runs: Omit<Runs, "doing">;
  readonly schedules: Schedules;
  readonly deadLetters: Omit<DeadLetters, "getRedrive">;
  readonly sessionService: SessionOperations;
  readonly signIns: Omit<Flotilla["signIns"], "create">;
  readonly series: Omit<Flotilla["series"], "totals">;
  readonly quotas: { list(options?: CountedListOptions): Promise<QuotaPage> };
};

/** What tenants use. A server also says what they may use. */
export type QuotaPage = {
  readonly tenants: readonly {
    readonly tenant: string;
    /** Null where it isn't counted. */
    readonly used: TenantCounts | null;
    readonly requestsHere?: number;
    readonly limits?: ShownQuota;
  }[];
  readonly next: string | null;
};

export type SessionOperations = Pick<
  SessionService,
  | "list"
  | "get"
  | "entries"
  | "turns"
  | "started"
  | "signal"
  | "wake"
  | "wakes"
  | "cancelWake"
  | "stop"
  | "archive"
  | "unarchive"
  | "remove"
>;

/** A server: its client, and plain requests for the routes that the client has no call for. */
export type Remote = { readonly client: Client; readonly http: Http };

/** Whom a key acts for; a token determines its own user and tenant. */
export type ActingFor = { user?: string | undefined; tenant?: string | undefined };

type Shown<View> = View & { readonly noWorker: boolean };

const noLinks: Links = {
  startedBy: null,
  started: [],
  hasMore: false,
  dependents: [],
  copies: [],
};
// Reading or discarding millions of failed tasks takes a while.
const answerTimeoutMs = 10 * 60_000;

/** A key of the server, or a user's token. */
export function serverKey(): string | undefined {
  return process.env["FLOTILLA_API_KEY"] || undefined;
}

export function openRemote(url: string, { user, tenant }: ActingFor = {}): Remote {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    const message = "--url must be an http or https URL, such as http://localhost:8080";
    throw new FlotillaError("invalid_option", message);
  }
  const token = serverKey();
  const options: ClientOptions = {
    url,
    fetch: checkedFetch,
    ...(token !== undefined && { token }),
    ...(user !== undefined && { user }),
    ...(tenant !== undefined && { tenant }),
  };
  const client = createClient(options);
  const http = createHttp({
    url: () => serverUrl(url),
    fetch: checkedFetch,
    credentials: createClientCredentials(token),
    clock: systemClock,
    answerTimeoutMs,
    user,
    tenant,
  });
  return { client, http };
}

/** The operations of a server, through its API. Those that it has no route for say so. */
export function remoteOperations({ client, http }: Remote): Operations {
  /** Names that the server has reported as being without a worker. */
  const withoutWorker = new Set<string>();
  const note = (name: string, noWorker: boolean | undefined): void => {
    if (noWorker) withoutWorker.add(name);
  };
  const withoutNote = ({ noWorker, ...schedule }: Shown<Schedule>): Schedule => {
    note(schedule.name, noWorker);
    return schedule;
  };
  const scheduleCall = async (method: "PUT" | "POST", path: string, body?: unknown) => {
    const answer = await http<{ schedule: Shown<Schedule> }>(method, path, { body });
    return withoutNote(answer.schedule);
  };
  const settled = async (taskId: string, options: WaitOptions = {}): Promise<Task> =>
    (await whenEnded(client, taskId, options)) as unknown as Task;
  type Flows = { flows: ReturnType<typeof flowToJson>[] };
  let answered: Promise<Flows> | undefined;
  /** One answer has both the counts and the stuck runs of a command. */
  const flows = async () => (await (answered ??= http<Flows>("GET", "/v1/flows"))).flows;

  return {
    async enqueue(task: TaskContract | string, input: unknown, options: EnqueueOptions = {}) {
      const name = nameOf(task);
      const { taskId, created, replaced, noWorker } = await client.tasks.enqueue(
        name,
        input as never,
        withoutTrace(options),
      );
      note(name, noWorker);
      return { taskId, created, ...(replaced !== undefined && { replaced }) };
    },
    enqueueEach: ((rows: Iterable<EnqueueRow>, options = {}) =>
      sendRows(http, rows, options, note)) as Flotilla["enqueueEach"],
    waitFor: (async (task: string | { taskId: string }, options?: WaitOptions) =>
      resultOf(
        await settled(typeof task === "string" ? task : task.taskId, options),
      )) as Flotilla["waitFor"],
    pods: async () => (await http<{ pods: PodInfo[] }>("GET", "/v1/pods")).pods,
    drainPod: (podId) => http("POST", `${podAt(podId)}/drain`),
    undrainPod: (podId) => http("POST", `${podAt(podId)}/undrain`),

    tasks: {
      get: async (taskId) => (await ifFound(client.tasks.get(taskId))) as Task | undefined,
      async list(options = {}) {
        const { payload = {}, signal: _, setAside, ids, ...filter } = options;
        const query: RequestQuery = {
          ...filter,
          ...(setAside && { setAside: "true" }),
          ...(ids && { ids: ids.join(",") }),
          ...valuesQuery("payload", payload),
        };
        return http<TaskPage>("GET", "/v1/tasks", { query });
      },
      async events(taskId, query = {}) {
        const path = `/v1/tasks/${encodeURIComponent(taskId)}/events`;
        return (await ifFound(http<{ events: TaskEvent[] }>("GET", path, { query })))?.events ?? [];
      },
      async steps(taskId, query = {}) {
        const path = `/v1/tasks/${encodeURIComponent(taskId)}/steps`;
        return (await ifFound(http<{ steps: StepEntry[] }>("GET", path, { query })))?.steps ?? [];
      },
      async links(taskId) {
        const path = `/v1/tasks/${encodeURIComponent(taskId)}`;
        // A server of an earlier release answers without them.
        return (await ifFound(http<{ links?: Links }>("GET", path)))?.links ?? noLinks;
      },
      why: async (taskId) =>
        (await http<{ verdict: Verdict }>("GET", `/v1/tasks/${encodeURIComponent(taskId)}/why`))
          .verdict,
      cancel: (taskId) => unlessFinished(client.tasks.cancel(taskId)),
      async resumeTask(taskId, body = {}) {
        await http("POST", `/v1/tasks/${encodeURIComponent(taskId)}/resume`, { body });
      },
      retry: (taskId, { fromStart = false } = {}) =>
        http("POST", `/v1/tasks/${encodeURIComponent(taskId)}/retry`, {
          query: fromStart ? { fromStart: "true" } : {},
        }),
      async signal(taskId, name, payload = null, options = {}) {
        const body = { name, payload, ...options };
        await http("POST", `/v1/tasks/${encodeURIComponent(taskId)}/signals`, { body });
      },
      async stats({ exact = false } = {}) {
        const query: RequestQuery = exact ? { exact: "true" } : {};
        // A server of an earlier release counts all tasks, and doesn't say so.
        const stats = await http<Partial<Stats>>("GET", "/v1/stats", { query });
        return { atLeast: [], ...stats } as Stats;
      },
      depth: async () =>
        new Map(Object.entries((await http<{ names: object }>("GET", "/v1/depth")).names)),
      noWorker: async (names) => names.filter((name) => withoutWorker.has(name)),
      async pause(name, { reason } = {}) {
        await http("POST", "/v1/pause", { body: { name, reason } });
      },
      async resume(name) {
        await http("POST", "/v1/resume", { body: { name } });
      },
      paused: async () => (await http<{ paused: Paused[] }>("GET", "/v1/pauses")).paused,
      limits: {
        async set(scope, limit) {
          await http("PUT", "/v1/limits", { body: { scope, limit } });
        },
        async get(scope) {
          const query = { scope };
          return (await http<{ limits: LimitState[] }>("GET", "/v1/limits", { query })).limits[0]!;
        },
        list: () => allPages(http, "/v1/limits", "limits"),
        tenants: () => allPages(http, "/v1/tenants", "tenants"),
      },
    },

    runs: {
      async start(flow: TaskContract | string, input: unknown, options = {}) {
        const name = nameOf(flow);
        const { runId, created, noWorker } = await client.runs.start(
          name,
          input as never,
          withoutTrace(options) as object,
        );
        note(name, noWorker);
        return { runId, created };
      },
      wait: (async (run: string | { runId: string }, options?: WaitOptions) =>
        resultOf(
          await settled(typeof run === "string" ? run : run.runId, options),
        )) as Runs["wait"],
      get: async (runId) => (await ifFound(client.runs.get(runId))) as RunView | undefined,
      async list(options = {}) {
        const { setAside, signal: _, ...filter } = options;
        const query: RequestQuery = { ...filter, ...(setAside && { setAside: "true" }) };
        return http("GET", "/v1/runs", { query });
      },
      cancel: (runId) =>
        unlessFinished(
          http<{ status: "cancelled" | "cancelling" }>("POST", `${runAt(runId)}/cancel`).then(
            ({ status }) => status,
          ),
        ),
      signal: (runId, name, payload, options) =>
        client.runs.signal(runId, name, payload as never, options),
      signals: async (runId, query: TaskEventsOptions = {}) =>
        (await http<{ signals: OpenSignal[] }>("GET", `${runAt(runId)}/signals`, { query }))
          .signals,
      history: async (runId, query: TaskEventsOptions = {}) =>
        (await http<{ history: HistoryEntry[] }>("GET", `${runAt(runId)}/history`, { query }))
          .history,
      async resume(runId, body = {}) {
        await http("POST", `${runAt(runId)}/resume`, { body });
      },
      counts: flows,
      stuck: async () => (await flows()).flatMap(({ stuck }) => stuck),
    },

    schedules: {
      async list(query = {}) {
        type Page = { schedules: Shown<Schedule>[]; next: string | null };
        const page = await http<Page>("GET", "/v1/schedules", { query: query as RequestQuery });
        return { ...page, schedules: page.schedules.map(withoutNote) };
      },
      async get(scheduleId) {
        type Found = { schedule: Shown<Schedule> };
        const found = await ifFound(http<Found>("GET", scheduleAt(scheduleId)));
        return found && withoutNote(found.schedule);
      },
      upcoming: async (scheduleId) =>
        (await http<{ upcomingMs: number[] }>("GET", scheduleAt(scheduleId))).upcomingMs,
      firings: (scheduleId, query = {}) =>
        http("GET", `${scheduleAt(scheduleId)}/firings`, { query: query as RequestQuery }),
      put: (async ({ scheduleId, task, ...declared }: ScheduleDeclaration) =>
        scheduleCall("PUT", scheduleAt(scheduleId), {
          ...declared,
          name: nameOf(task),
        })) as Schedules["put"],
      pause: (scheduleId) => scheduleCall("POST", `${scheduleAt(scheduleId)}/pause`),
      resume: (scheduleId) => scheduleCall("POST", `${scheduleAt(scheduleId)}/resume`),
      fire: (scheduleId) => http("POST", `${scheduleAt(scheduleId)}/fire`),
      remove: async (scheduleId) =>
        (await ifFound(http("DELETE", scheduleAt(scheduleId)))) !== undefined,
    },

    deadLetters: remoteDeadLetters(http),

    bulk: {
      preview: (body) => http("POST", "/v1/bulk/preview", { body }),
      start: (body) => http("POST", "/v1/bulk", { body }),
      list: (query = {}) => http("GET", "/v1/bulk", { query: query as RequestQuery }),
      get: (bulkId) => ifFound(http<Bulk>("GET", bulkAt(bulkId))),
      follow(bulkId, options = {}) {
        const read = () => http<Bulk>("GET", bulkAt(bulkId));
        return followUntil(systemClock, read, { ...options, hasEnded: hasBulkEnded });
      },
      async outcomes(bulkId) {
        type Found = { outcomes: readonly BulkOutcome[] };
        return (await http<Found>("GET", `${bulkAt(bulkId)}/outcomes`)).outcomes;
      },
      stop: (bulkId) => http("POST", `${bulkAt(bulkId)}/stop`),
    },

    throttles: {
      list: (query = {}) => http("GET", "/v1/throttles", { query: query as RequestQuery }),
      async get(name, query = {}) {
        type Found = { throttle: ThrottleView };
        return (await ifFound(http<Found>("GET", throttleAt(name), { query })))?.throttle;
      },
      holders: (name, query = {}) =>
        http("GET", `${throttleAt(name)}/holders`, { query: query as RequestQuery }),
      events: (name, query = {}) =>
        http("GET", `${throttleAt(name)}/events`, { query: query as RequestQuery }),
      async pin(name, limit, key = {}) {
        const body = { limit, ...key };
        return (await http<{ throttle: ThrottleView }>("POST", `${throttleAt(name)}/pin`, { body }))
          .throttle;
      },
      async unpin(name, body = {}) {
        const path = `${throttleAt(name)}/unpin`;
        return (await http<{ throttle: ThrottleView }>("POST", path, { body })).throttle;
      },
    },

    approvals: (query = {}) => http("GET", "/v1/approvals", { query: query as RequestQuery }),

    series: {
      read: ({ fromMs, toMs, ...query }) =>
        http("GET", "/v1/series", { query: { ...query, from: fromMs, to: toMs } as RequestQuery }),
      subjects: (query = {}) =>
        http("GET", "/v1/series/subjects", { query: query as RequestQuery }),
    },

    changes: followPages(
      ({ names, kinds, ...page }) => {
        const query = { ...page, names: names?.join(","), kinds: kinds?.join(",") };
        return http<ChangePage>("GET", "/v1/changes", { query: query as RequestQuery });
      },
      { clock: systemClock, random: systemRandom },
    ),

    audit: { list: (query = {}) => http("GET", "/v1/audit", { query: query as RequestQuery }) },

    quotas: { list: (query = {}) => http("GET", "/v1/quotas", { query: query as RequestQuery }) },

    // The key or the token determines the tenant of agents and sessions.
    agents: {
      list: (_, query = {}) => http("GET", "/v1/agents", { query }),
      get: async (_, name) =>
        (await ifFound(http<{ agent: AgentView }>("GET", agentAt(name))))?.agent,
      create: async (_, name, fields) =>
        (await http<{ agent: AgentView }>("POST", "/v1/agents", { body: { name, ...fields } }))
          .agent,
      replace: async (_, name, body) =>
        (await http<{ agent: AgentView }>("PUT", agentAt(name), { body })).agent,
      remove: async (_, name) => (await ifFound(http("DELETE", agentAt(name)))) !== undefined,
    },

    // The server names the key that makes a key or a revocation, and knows its rights.
    keys: {
      list: (query = {}) => http("GET", "/v1/keys", { query }),
      create: (options) => http("POST", "/v1/keys", { body: withoutMaker(options) }),
      revoke: async (keyId) => (await http<{ key: KeyView }>("DELETE", keyAt(keyId))).key,
      rotate: (keyId, options = {}) =>
        http("POST", `${keyAt(keyId)}/rotate`, { body: withoutMaker(options) }),
    },

    // The server knows whose are the key's own.
    signIns: {
      list: ({ cursor, limit } = {}) => http("GET", "/v1/sign-ins", { query: { cursor, limit } }),
      async end(signInId) {
        const path = `/v1/sign-ins/${encodeURIComponent(signInId)}`;
        return (await http<{ signIn: SignInView }>("DELETE", path)).signIn;
      },
    },

    tokens: {
      async revoke(options) {
        const path = "/v1/tokens/revocations";
        const body = withoutMaker(options);
        return (await http<{ revocation: Revocation }>("POST", path, { body })).revocation;
      },
      revocations: (query = {}) => http("GET", "/v1/tokens/revocations", { query }),
    },

    sessionService: {
      // The server decides by the token which sessions a caller may see.
      list: (_, { only: __, metadata = {}, ...options }) => {
        const query: RequestQuery = { ...options, ...valuesQuery("metadata", metadata) };
        return http<SessionPage>("GET", "/v1/sessions", { query });
      },
      get: async (_, sessionId) => (await client.sessions.get(sessionId)) as SessionView,
      entries: (_, sessionId, page) => client.sessions.entries(sessionId, page),
      turns: (_, sessionId, query = {}) => http("GET", `${sessionAt(sessionId)}/turns`, { query }),
      started: (_, sessionId) => http("GET", `${sessionAt(sessionId)}/tasks`),
      async stop(_, sessionId) {
        return (await http<{ done: boolean }>("POST", `${sessionAt(sessionId)}/stop`)).done;
      },
      signal: (_, sessionId, body) =>
        http("POST", `${sessionAt(sessionId)}/signals`, { body: { ...body } }),
      wake: (_, sessionId, { at, ...wake }) => {
        const time = at instanceof Date ? at.getTime() : at;
        const body = { ...wake, ...(time !== undefined && { at: time }) };
        return http("POST", `${sessionAt(sessionId)}/wakes`, { body });
      },
      wakes: (_, sessionId) => client.sessions.wakes(sessionId),
      cancelWake: (_, sessionId, { key }) => client.sessions.cancelWake(sessionId, key),
      archive: (_, sessionId) => client.sessions.archive(sessionId),
      unarchive: (_, sessionId) => client.sessions.unarchive(sessionId),
      remove: (_, sessionId) => client.sessions.remove(sessionId),
    },
  };
}

const runAt = (runId: string) => `/v1/runs/${encodeURIComponent(runId)}`;
const scheduleAt = (scheduleId: string) => `/v1/schedules/${encodeURIComponent(scheduleId)}`;
const podAt = (podId: string) => `/v1/pods/${encodeURIComponent(podId)}`;
const bulkAt = (bulkId: string) => `/v1/bulk/${encodeURIComponent(bulkId)}`;
const throttleAt = (name: string) => `/v1/throttles/${encodeURIComponent(name)}`;
const sessionAt = (sessionId: string) => `/v1/sessions/${encodeURIComponent(sessionId)}`;
const keyAt = (keyId: string) => `/v1/keys/${encodeURIComponent(keyId)}`;
const agentAt = (name: string) => `/v1/agents/${encodeURIComponent(name)}`;

function withoutMaker(options: Grant): object {
  const { by: _, within: __, ...sent } = options;
  return sent;
}
