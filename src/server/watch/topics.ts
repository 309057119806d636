import { z } from "zod";
import { FlotillaError } from "../../base/errors.ts";
import { isStorable } from "../../base/options.ts";
import { pageAfter } from "../../base/page.ts";
import type { DeadLetters } from "../../dead-letters/dead-letters.ts";
import type { FleetPages } from "../../runtime/fleet/pages.ts";
import { bulkSpecs } from "../api/acts/bulk.schema.ts";
import { auditSpecs } from "../api/access/audit.schema.ts";
import { deadLetterSpecs } from "../api/dead-letters.schema.ts";
import { fleetSpecs } from "../api/fleet.schema.ts";
import { limitSpecs } from "../api/limits.schema.ts";
import { runSpecs } from "../api/runs.schema.ts";
import { scheduleSpecs } from "../api/schedules.schema.ts";
import type { RouteSpec } from "../api/schema.ts";
import { sessionSpecs } from "../api/sessions.schema.ts";
import { sessionSchema } from "../api/conversation/session.schema.ts";
import { taskSpecs } from "../api/tasks.schema.ts";
import { throttleSpecs } from "../api/throttles.schema.ts";
import { turnSpecs } from "../api/conversation/turns.schema.ts";
import { visibleLinks } from "../api/tasks.ts";
import { approvalSpecs } from "../api/waiting/approvals.schema.ts";
import { type Caller, canSee, onlyTenant } from "../auth/caller.ts";
import { countsOf } from "../home/overview.ts";
import { watchSpecs } from "./watch.schema.ts";

/** What topics are read from. */
export type TopicSources = {
  pages: FleetPages;
  /** The leader's where the leader is in this process, because it has the groups in memory. */
  deadLetters: () => Pick<DeadLetters, "groups">;
};

/** A route that isn't open. */
type GuardedSpec = Extract<RouteSpec, { readonly verb: string }>;

/** What there is to watch. */
export type TopicSpec<Data extends z.ZodType = z.ZodType> = {
  /**
   * The routes that answer the same. The topic needs of its caller what each of them needs, so a topic
   * without one, or of an open route, doesn't compile.
   */
  readonly routes: readonly [GuardedSpec, ...GuardedSpec[]];
  /**
   * Where no argument names one, it is about the tenant that the caller names, also where that one sees
   * all. Callers whose tokens name sessions are refused.
   */
  readonly ofNamedTenant?: true;
  /** How many names or ids follow its own name. Default: none. */
  readonly args?: { readonly min: number; readonly max: number };
  /** Its data, with what users put in marked as in the answers of the routes. */
  readonly schema: Data;
  /** Reads it for callers that see the same tenants as this one does. */
  readonly read: (
    sources: TopicSources,
    scope: { readonly args: readonly string[]; readonly caller: Caller },
  ) => Promise<z.input<Data>>;
};

/** A topic that is asked for. */
export type Topic = {
  /** As events name it. */
  readonly topic: string;
  readonly args: readonly string[];
  readonly spec: TopicSpec;
};

/** Keeps the type of a declaration's schema, which its `read` is checked against. */
export function topicSpec<Data extends z.ZodObject>(declared: TopicSpec<Data>): TopicSpec<Data> {
  return declared;
}

const maxThrottles = 1_000;
const maxGroups = 100;
const maxSchedules = 1_000;
const maxApprovals = 100;
const maxActs = 20;
const maxNewest = 50;
const maxSessions = 50;
const auditHead = 20;
export const maxTasksInView = 100;
const maxArgChars = 500;

const fleet = fleetSpecs.fleet.answers[200].shape;
const { names } = fleetSpecs.depth.answers[200].shape;
const pauseRow = limitSpecs.paused.answers[200].shape.paused.element;
const limitRow = limitSpecs.limits.answers[200].shape.limits.element;
const throttleRow = throttleSpecs.list.answers[200].shape.throttles.element;
const throttleSummary = throttleRow.pick({
  name: true,
  key: true,
  bound: true,
  epoch: true,
  pinned: true,
  breaker: true,
  inFlight: true,
  waiting: true,
  outcomes: true,
  p95Ms: true,
  lastUpdateMs: true,
});
const groups = deadLetterSpecs.groups.answers[200].shape;
const runAnswer = runSpecs.get.answers[200].shape;
const flowRow = runSpecs.flows.answers[200].shape.flows.element.pick({
  places: true,
  openByVersion: true,
  completed: true,
  failed: true,
  cancelled: true,
  atLeast: true,
});
const scheduleRow = scheduleSpecs.list.answers[200].shape.schedules.element.pick({
  scheduleId: true,
  name: true,
  state: true,
  revision: true,
  nextAtMs: true,
  lastAtMs: true,
  lastTaskId: true,
  error: true,
});
const approvals = approvalSpecs.list.answers[200].shape;
const bulkRow = bulkSpecs.list.answers[200].shape.bulks.element;
const redriveRow = deadLetterSpecs.redrives.answers[200].shape.redrives.element;
const overviewCounts = fleetSpecs.home.answers[200].shape.overview.unwrap().shape;
const taskAnswer = taskSpecs.get.answers[200].shape;
const auditRow = auditSpecs.list.answers[200].shape.entries.element;

const noRuns = { places: {}, completed: 0, failed: 0, cancelled: 0 };
const count = () => z.int();
const taskStateRow = z.object({
  taskId: z.string(),
  name: z.string(),
  tenant: z.string(),
  status: z.enum(["pending", "claimed", "completed", "failed", "cancelled"]),
  claimedBy: z.string().nullable(),
  failures: count(),
  deaths: count(),
  cancelRequested: z.boolean(),
  runAtMs: z.int(),
  updatedAtMs: z.int(),
});
const sessionStateRow = z.object({
  sessionId: z.string(),
  status: sessionSchema.shape.status,
  state: z.enum(["idle", "catching_up", "waiting", "compacting"]),
  lastSeq: z.int(),
  activeAtMs: z.int(),
});

/** Every topic by its name. */
export const topicSpecs = {
  overview: topicSpec({
    routes: [
      fleetSpecs.depth,
      fleetSpecs.fleet,
      throttleSpecs.list,
      runSpecs.flows,
      taskSpecs.list,
    ],
    schema: z.object({
      names,
      failed: count(),
      /** The id of the newest task or run, so that a list can tell that there is a new one. */
      newest: z.string().nullable(),
      /** What pods have claimed and ended so far, which moves on where counts are at their bound. */
      totals: z.object({ claimed: count(), ended: count() }),
      tasks: overviewCounts.tasks,
      runs: overviewCounts.runs,
      sessions: overviewCounts.sessions,
      pods: overviewCounts.pods,
      throttles: z.object({
        all: count(),
        inFlight: count(),
        waiting: count(),
        /** Those whose breaker isn't closed. */
        open: count(),
        pinned: count(),
      }),
    }),
    async read({ pages }) {
      const [depth, doing, sessions, pods, throttles, newest] = await Promise.all([
        pages.depth(),
        pages.doing(),
        pages.sessionCounts(),
        pages.podCounts(),
        pages.throttleSummaries({ limit: maxThrottles }),
        pages.tasks({ limit: 1 }),
      ]);
      return {
        names: Object.fromEntries(depth),
        failed: sum([...depth.values()], ({ failed }) => failed),
        newest: newest.tasks[0]?.taskId ?? null,
        totals: pods.totals,
        ...countsOf({ depth, doing, pods }),
        sessions,
        throttles: {
          all: throttles.length,
          inFlight: sum(throttles, ({ inFlight }) => inFlight),
          waiting: sum(throttles, ({ waiting }) => waiting),
          open: throttles.filter(({ breaker }) => breaker !== "closed").length,
          pinned: throttles.filter(({ pinned }) => pinned !== undefined).length,
        },
      };
    },
  }),
  queues: topicSpec({
    routes: [fleetSpecs.depth, limitSpecs.paused, limitSpecs.limits],
    schema: z.object({
      names,
      paused: z.record(z.string(), pauseRow),
      limits: z.record(z.string(), limitRow),
      hasMoreLimits: z.boolean(),
    }),
    async read({ pages }) {
      const [depth, paused, found] = await Promise.all([
        pages.depth(),
        pages.paused(),
        pages.limits(),
      ]);
      const limits = pageAfter(found, ({ scope }) => scope);
      return {
        names: Object.fromEntries(depth),
        paused: keyed(paused, ({ name }) => name),
        limits: keyed(limits.items, ({ scope }) => scope),
        hasMoreLimits: limits.next !== null,
      };
    },
  }),
  /** Without the shares of pods, of which each key may have hundreds. */
  throttles: topicSpec({
    routes: [throttleSpecs.list],
    schema: z.object({
      /** By name, and then by key. */
      throttles: z.record(z.string(), z.record(z.string(), throttleSummary)),
      hasMore: z.boolean(),
    }),
    async read({ pages }) {
      const found = await pages.throttleSummaries({ limit: maxThrottles + 1 });
      const byName = Map.groupBy(found.slice(0, maxThrottles), ({ name }) => name);
      return {
        throttles: Object.fromEntries(
          [...byName].map(([name, keys]) => [name, keyed(keys, ({ key }) => key)]),
        ),
        hasMore: found.length > maxThrottles,
      };
    },
  }),
  throttle: topicSpec({
    routes: [throttleSpecs.get],
    args: { min: 1, max: 2 },
    schema: z.object({ throttle: throttleRow.nullable() }),
    async read({ pages }, { args: [name, key] }) {
      const found = await pages.throttle(name!, key === undefined ? {} : { key });
      return { throttle: found ?? null };
    },
  }),
  flow: topicSpec({
    routes: [runSpecs.flows],
    args: { min: 1, max: 1 },
    schema: z.object({ doing: z.record(z.string(), count()) }),
    async read({ pages }, { args: [flow] }) {
      return { doing: { ...(await pages.doing([flow!])).get(flow!) } };
    },
  }),
  /** The runs of all flows, by where they are. */
  flows: topicSpec({
    routes: [runSpecs.flows],
    schema: z.object({ flows: z.record(z.string(), flowRow) }),
    async read({ pages }) {
      const found = await pages.flows();
      const rows = found.map(({ flow, ...counts }) => [flow, { ...noRuns, ...counts }] as const);
      return { flows: Object.fromEntries(rows) };
    },
  }),
  run: topicSpec({
    routes: [runSpecs.get],
    args: { min: 1, max: 1 },
    schema: z.object({ run: runAnswer.run.nullable(), links: runAnswer.links.nullable() }),
    async read({ pages }, { args: [runId], caller }) {
      const run = await pages.run(runId!);
      if (!run || !canSee(caller, run)) return { run: null, links: null };
      return { run, links: visibleLinks(caller, await pages.links(runId!)) };
    },
  }),
  task: topicSpec({
    routes: [taskSpecs.get],
    args: { min: 1, max: 1 },
    schema: z.object({ task: taskAnswer.task.nullable(), links: taskAnswer.links.nullable() }),
    async read({ pages }, { args: [taskId], caller }) {
      const task = await pages.task(taskId!);
      if (!task || !canSee(caller, task)) return { task: null, links: null };
      return { task, links: visibleLinks(caller, await pages.links(taskId!)) };
    },
  }),
  /** The rows of a list that are in view. Without what users put in, which a list would read each second. */
  tasks: topicSpec({
    routes: [taskSpecs.list],
    args: { min: 1, max: maxTasksInView },
    schema: z.object({ tasks: z.record(z.string(), taskStateRow) }),
    async read({ pages }, { args, caller }) {
      const found = await pages.taskStates(args);
      const seen = found.filter((state) => canSee(caller, state));
      return { tasks: keyed(seen, ({ taskId }) => taskId) };
    },
  }),
  /** How the newest tasks and runs stand, by which the lists of a caller of one tenant know of changes. */
  newest: topicSpec({
    routes: [taskSpecs.list],
    schema: z.object({ tasks: z.record(z.string(), taskStateRow) }),
    async read({ pages }, { caller }) {
      const tenant = onlyTenant(caller);
      const options = { limit: maxNewest, ...(tenant !== undefined && { tenant }) };
      const found = await pages.newestTasks(options);
      return { tasks: keyed(found, ({ taskId }) => taskId) };
    },
  }),
  pods: topicSpec({
    routes: [fleetSpecs.fleet],
    schema: z.object({ ...fleet, pods: z.record(z.string(), fleet.pods.unwrap().element) }),
    async read({ pages }) {
      const found = await pages.fleet();
      return { ...found, pods: keyed(found.pods, ({ podId }) => podId) };
    },
  }),
  failures: topicSpec({
    routes: [deadLetterSpecs.groups],
    schema: z.object({
      ...groups,
      groups: z.record(z.string(), groups.groups.unwrap().element),
    }),
    async read({ deadLetters }, { caller }) {
      const tenant = onlyTenant(caller);
      const found = await deadLetters().groups({
        limit: maxGroups,
        ...(tenant !== undefined && { tenant }),
      });
      return { ...found, groups: keyed(found.groups, ({ group }) => group) };
    },
  }),
  /** The newest redrives and bulks, which the leader does. */
  acts: topicSpec({
    routes: [deadLetterSpecs.redrives, bulkSpecs.list],
    schema: z.object({
      redrives: z.record(z.string(), redriveRow),
      bulks: z.record(z.string(), bulkRow),
    }),
    async read({ pages }, { caller }) {
      const tenant = onlyTenant(caller);
      const options = { limit: maxActs, ...(tenant !== undefined && { tenant }) };
      const [{ redrives }, { bulks }] = await Promise.all([
        pages.redrives(options),
        pages.bulks(options),
      ]);
      return {
        redrives: keyed(redrives, ({ redriveId }) => redriveId),
        bulks: keyed(bulks, ({ bulkId }) => bulkId),
      };
    },
  }),
  /** What waits for a person, the nearest deadlines and then those that have waited for longest. */
  approvals: topicSpec({
    routes: [approvalSpecs.list],
    schema: z.object({
      approvals: z.record(z.string(), approvals.approvals.element),
      isWhole: approvals.isWhole,
      hasMore: z.boolean(),
    }),
    async read({ pages }, { caller }) {
      const tenant = onlyTenant(caller);
      const found = await pages.approvals({
        limit: maxApprovals,
        ...(tenant !== undefined && { tenant }),
      });
      return {
        // Sessions of two tenants may have the same id.
        approvals: keyed(found.approvals, ({ what, tenant: of, id }) => `${what} ${of} ${id}`),
        isWhole: found.isWhole,
        hasMore: found.next !== null,
      };
    },
  }),
  /** Without what their tasks get, which a list would read each second. */
  schedules: topicSpec({
    routes: [scheduleSpecs.list],
    schema: z.object({ schedules: z.record(z.string(), scheduleRow), hasMore: z.boolean() }),
    async read({ pages }) {
      const { schedules, next } = await pages.schedules({ limit: maxSchedules });
      const rows = schedules.map((found) => {
        const { scheduleId, name, state, revision, nextAtMs, lastAtMs, lastTaskId, error } = found;
        return { scheduleId, name, state, revision, nextAtMs, lastAtMs, lastTaskId, error };
      });
      return { schedules: keyed(rows, ({ scheduleId }) => scheduleId), hasMore: next !== null };
    },
  }),
  /** How the sessions of a tenant stand that were active last, without what is said in them. */
  sessions: topicSpec({
    routes: [watchSpecs.watch, sessionSpecs.list],
    ofNamedTenant: true,
    args: { min: 0, max: 1 },
    schema: z.object({ sessions: z.record(z.string(), sessionStateRow) }),
    async read({ pages }, { args: [tenant], caller }) {
      const of = { tenant: tenant ?? caller.tenant };
      if (!canSee(caller, of)) return { sessions: {} };
      const { sessions } = await pages.sessions(of.tenant, { limit: maxSessions });
      const rows = sessions.map(({ sessionId, status, state, lastSeq, activeAtMs }) => {
        return { sessionId, status, state: state.state, lastSeq, activeAtMs };
      });
      return { sessions: keyed(rows, ({ sessionId }) => sessionId) };
    },
  }),
  /** The pod that owns the log of a session, whose tenant may be named behind it. */
  owner: topicSpec({
    routes: [watchSpecs.watch, turnSpecs.owner],
    ofNamedTenant: true,
    args: { min: 1, max: 2 },
    schema: z.object({ owner: turnSpecs.owner.answers[200].nullable() }),
    async read({ pages }, { args: [sessionId, tenant], caller }) {
      const found = await pages.sessionOwner(tenant ?? caller.tenant, sessionId!);
      return { owner: found ?? null };
    },
  }),
  /** The newest entries. */
  audit: topicSpec({
    routes: [auditSpecs.list],
    schema: z.object({ entries: z.record(z.string(), auditRow) }),
    async read({ pages }) {
      const { entries } = await pages.audit({ limit: auditHead });
      return { entries: keyed(entries, ({ id }) => id) };
    },
  }),
};

/** Parses `name`, or `name:arg/arg` with each argument percent-encoded. */
export function parseTopic(text: string): Topic {
  const [name = "", ...rest] = text.split(":");
  const spec: TopicSpec | undefined = Object.hasOwn(topicSpecs, name)
    ? topicSpecs[name as keyof typeof topicSpecs]
    : undefined;
  if (!spec) {
    const known = Object.keys(topicSpecs).join(", ");
    throw invalid(`there is no topic ${JSON.stringify(name.slice(0, 80))}: there are ${known}`);
  }
  const args = rest.length === 0 ? [] : rest.join(":").split("/").map(decoded);
  const { min, max } = spec.args ?? { min: 0, max: 0 };
  if (args.length < min || args.length > max) {
    const wanted = max === 0 ? "nothing" : min === max ? `${min}` : `${min} to ${max}`;
    throw invalid(`the topic ${name} takes ${wanted} after its name, not ${args.length}`);
  }
  const canonical = args.map((each) => encodeURIComponent(each)).join("/");
  return { topic: args.length === 0 ? name : `${name}:${canonical}`, args, spec };
}

function decoded(text: string): string {
  try {
    const arg = decodeURIComponent(text);
    if (arg.length <= maxArgChars && isStorable(arg)) return arg;
  } catch {
    // Refused below.
  }
  throw invalid(
    `${JSON.stringify(text.slice(0, 80))} must be a name or an id, as encodeURIComponent writes it`,
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_input", message);
}

function sum<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}

/** From entries, because a name may be `__proto__`. */
function keyed<Row>(rows: readonly Row[], keyOf: (row: Row) => string): Record<string, Row> {
  return Object.fromEntries(rows.map((row) => [keyOf(row), row]));
}
