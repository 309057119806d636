import { expect } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { createBulks } from "../../bulk/bulks.ts";
import { createDeadLetters } from "../../dead-letters/dead-letters.ts";
import { createRuns } from "../../flows/runs.ts";
import { runWithOrigin } from "../../pods/unhandled-errors.ts";
import { createPodActs } from "../../runtime/pods.ts";
import { createSchedules } from "../../schedules/schedules.ts";
import { createStoredAgents } from "../../sessions/agents/stored-agents.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { now, sql, type Statement, table, type TableName } from "../../store/sql.ts";
import { openTasks } from "../../tasks/contract/harness.ts";
import { parked } from "../../tasks/sql/task-state.ts";
import { createTasks } from "../../tasks/tasks.ts";
import { createThrottlesClient } from "../../throttles/shares/admin.ts";
import type { Action } from "../act.ts";
import { type AuditEntry, createAudit } from "../audit.ts";

export type ActsHarness = Awaited<ReturnType<typeof openActs>>;
export type Clients = ReturnType<ActsHarness["clients"]>;

const tasks = table("task");
const others = [
  "schedule",
  "redrive",
  "failure_group",
  "bulk",
  "throttle",
  "agent",
  "audit",
] as const;
const changed: readonly TableName[] = [
  "task",
  "task_event",
  "task_limit",
  "task_signal",
  "schedule",
  "redrive",
  "failure_group",
  "bulk",
  "throttle",
  "agent",
];

/** Tasks and runs in the states that acts are for, and a throttle. */
export function somethingToActOn(): Statement[] {
  const failed = JSON.stringify({ code: "handler_failed", message: "boom" });
  return [
    sql`insert into ${tasks} (task_id, name, status, parked, flow_version, error) values
      ('pending', 'mail', 'pending', 0, null, null),
      ('failed', 'mail', 'failed', 0, null, ${failed}),
      ('aside', 'mail', 'pending', ${parked.setAside}, null, null),
      ('ended', 'mail', 'completed', 0, null, null),
      ('run', 'order', 'pending', 0, 1, null),
      ('run-failed', 'order', 'cancelled', 0, 1, ${failed}),
      ('run-aside', 'order', 'pending', ${parked.setAside}, 1, null)`,
    sql`update ${tasks} set created_at = ${now} - 1000000, last_update = ${now} - 1000000
      where task_id = 'ended'`,
    sql`insert into ${table("throttle")} (name, bound) values ('api', 5)`,
    sql`insert into ${table("pod")} (pod_id) values ('pod')`,
  ];
}

/** A store with something to act on, and all that acts on it. */
export async function openActs(kind: StoreKind) {
  const queue = await openTasks(kind);
  const { clock, random, ids } = queue;
  await emptyTables(queue.store, others);
  await queue.database.write(somethingToActOn());

  const clients = (database: Database = queue.database) => {
    const parts = { database, clock, random, ids };
    const own = createTasks(parts);
    return {
      tasks: own,
      runs: createRuns(own, parts),
      schedules: createSchedules(parts),
      letters: createDeadLetters(parts),
      bulk: createBulks(parts),
      pods: createPodActs(parts),
      throttles: createThrottlesClient(parts),
      agents: createStoredAgents(parts),
      audit: createAudit(parts),
    };
  };

  return {
    queue,
    clients,
    close: () => queue.close(),
    async entries(): Promise<AuditEntry[]> {
      return (await clients().audit.list({ limit: 1_000 })).entries;
    },
    /** All that acts change, as text. */
    async state(): Promise<string> {
      const of = changed.map((name) => queue.database.read(sql`select * from ${table(name)}`));
      const pauses = queue.database.read(
        sql`select name from ${table("task_pause")} where paused = 1`,
      );
      const drains = queue.database.read(sql`select pod_id, drain from ${table("pod")}`);
      const sorted = (await Promise.all([...of, pauses, drains])).map((rows) =>
        rows.map((row) => JSON.stringify(row)).toSorted(),
      );
      return JSON.stringify(sorted);
    },
    /** The store, with the answer to the first write that stores an entry lost. */
    losing(): Database {
      let lost = false;
      return {
        ...queue.database,
        async write(statements, options) {
          const tables = await queue.database.write(statements, options);
          const isAct = JSON.stringify(statements).includes('"table":"audit"');
          if (lost || !isAct) return tables;
          lost = true;
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      };
    },
  };
}

/** Runs code as a handler does, whose acts leave no entries. */
export function inHandler<Result>(run: () => Result): Result {
  const from = { id: "task-1", what: "task" } as const;
  return runWithOrigin({ by: "handler", from, fields: {}, log: silentLogger }, run);
}

export type ActCase = {
  readonly action: Action;
  /** What must have been done before. */
  readonly arrange?: (on: Clients) => Promise<unknown>;
  readonly act: (on: Clients) => Promise<unknown>;
  /** What its entry says. */
  readonly entry: Partial<AuditEntry>;
};

const nightly = { name: "mail", pattern: "0 3 * * *", zone: "UTC", missed: "once" };
const schedule = { name: "mail", pattern: "0 3 * * *", input: { card: "canary-secret" } };
const helper = {
  settings: { url: "https://agent.example/chat", headers: { Authorization: "canary-secret" } },
};
const putNightly = ({ schedules }: Clients) => schedules.put("nightly", schedule);
const makeHelper = ({ agents }: Clients) => agents.create("default", "helper", helper);

const aGroup = expect.stringMatching(/^g\d+-/) as string;
const groupOf = async ({ letters }: Clients) => {
  const [open] = (await letters.groups()).groups;
  const [ignored] = (await letters.groups({ state: "ignored" })).groups;
  return (open ?? ignored)!.group;
};

/** Every act that leaves an entry, on the store above. */
export const acts: readonly ActCase[] = [
  {
    action: "failures.resolve",
    act: async (on) => on.letters.resolve(await groupOf(on)),
    entry: { subject: aGroup, before: { state: "open" }, after: { state: "resolved" } },
  },
  {
    action: "failures.ignore",
    act: async (on) => on.letters.ignore(await groupOf(on), { untilMs: 4_000_000_000_000 }),
    entry: {
      subject: aGroup,
      before: { state: "open" },
      after: { state: "ignored", untilMs: 4_000_000_000_000 },
    },
  },
  {
    action: "failures.reopen",
    arrange: async (on) => on.letters.resolve(await groupOf(on)),
    act: async (on) => on.letters.reopen(await groupOf(on)),
    entry: { subject: aGroup, before: { state: "resolved" }, after: { state: "open" } },
  },
  {
    action: "tasks.cancel",
    act: (on) => on.tasks.cancel("pending"),
    entry: {
      subject: "pending",
      before: { status: "pending" },
      after: { status: "cancelled" },
    },
  },
  {
    action: "tasks.retry",
    act: (on) => on.tasks.retry("failed"),
    entry: {
      subject: "failed",
      before: { status: "failed" },
      after: { status: "pending", forgottenSteps: 0 },
    },
  },
  {
    action: "tasks.resume",
    act: (on) => on.tasks.resumeTask("aside"),
    entry: {
      subject: "aside",
      before: { status: "set_aside" },
      after: { status: "pending", forget: 0 },
    },
  },
  {
    action: "tasks.signal",
    act: (on) => on.tasks.signal("pending", "paid", { card: "canary-secret" }, { id: "s1" }),
    entry: { subject: "pending", before: null, after: { signal: "paid" } },
  },
  {
    action: "runs.cancel",
    act: (on) => on.runs.cancel("run"),
    entry: { subject: "run", before: { status: "pending" }, after: { status: "cancelling" } },
  },
  {
    action: "runs.retry",
    act: (on) => on.tasks.retry("run-failed"),
    entry: { subject: "run-failed", before: { status: "cancelled" } },
  },
  {
    action: "runs.resume",
    act: (on) => on.runs.resume("run-aside"),
    entry: { subject: "run-aside", before: { status: "set_aside" } },
  },
  {
    action: "runs.signal",
    act: (on) => on.runs.signal("run", "approved", { card: "canary-secret" }, { id: "s1" }),
    entry: { subject: "run", after: { signal: "approved" } },
  },
  {
    action: "names.pause",
    act: (on) => on.tasks.pause("mail", { reason: "repairs" }),
    entry: {
      subject: "mail",
      before: { paused: false },
      after: { paused: true },
      reason: "repairs",
    },
  },
  {
    action: "names.resume",
    arrange: (on) => on.tasks.pause("mail"),
    act: (on) => on.tasks.resume("mail"),
    entry: { subject: "mail", before: { paused: true }, after: { paused: false } },
  },
  {
    action: "limits.set",
    act: (on) => on.tasks.limits.set("tenant/acme", 5),
    entry: { subject: "tenant/acme", before: { limit: null }, after: { limit: 5 } },
  },
  {
    action: "schedules.put",
    act: putNightly,
    entry: { subject: "nightly", before: null, after: nightly },
  },
  {
    action: "schedules.pause",
    arrange: putNightly,
    act: (on) => on.schedules.pause("nightly"),
    entry: { subject: "nightly", before: { paused: false }, after: { paused: true } },
  },
  {
    action: "schedules.resume",
    arrange: async (on) => {
      await putNightly(on);
      await on.schedules.pause("nightly");
    },
    act: (on) => on.schedules.resume("nightly"),
    entry: { subject: "nightly", before: { paused: true }, after: { paused: false } },
  },
  {
    action: "schedules.fire",
    arrange: putNightly,
    act: (on) => on.schedules.fire("nightly"),
    entry: { subject: "nightly", before: null, count: 1 },
  },
  {
    action: "schedules.remove",
    arrange: putNightly,
    act: (on) => on.schedules.remove("nightly"),
    entry: { subject: "nightly", before: nightly, after: null },
  },
  {
    action: "redrives.start",
    act: (on) => on.letters.redrive({ name: "mail" }, { maxStep: 8 }),
    entry: { subject: null, filter: { name: "mail" }, count: null },
  },
  {
    action: "redrives.cancel",
    arrange: (on) => on.letters.redrive({ name: "mail" }),
    act: async (on) => {
      const { redrives } = await on.letters.redrives();
      return on.letters.cancelRedrive(redrives[0]!.redriveId);
    },
    entry: { before: { state: "running" }, after: { state: "stopping" } },
  },
  {
    action: "bulk.start",
    act: (on) =>
      on.bulk.start({ action: "cancel", filter: { name: "mail" }, reason: "a wrong batch" }),
    entry: {
      subject: null,
      filter: { action: "cancel", name: "mail" },
      count: 0,
      outcome: "begun",
      reason: "a wrong batch",
    },
  },
  {
    action: "bulk.stop",
    arrange: (on) => on.bulk.start({ action: "cancel", filter: { name: "mail" } }),
    act: async (on) => {
      const { bulks } = await on.bulk.list();
      return on.bulk.stop(bulks[0]!.bulkId);
    },
    entry: { before: { state: "running" }, after: { state: "stopped" } },
  },
  {
    action: "pods.drain",
    act: (on) => on.pods.drainPod("pod"),
    entry: { subject: "pod", before: { drain: false }, after: { drain: true } },
  },
  {
    action: "pods.undrain",
    arrange: (on) => on.pods.drainPod("pod"),
    act: (on) => on.pods.undrainPod("pod"),
    entry: { subject: "pod", before: { drain: true }, after: { drain: false } },
  },
  {
    action: "tasks.discard",
    act: (on) => on.letters.discard({ name: "mail" }),
    entry: { subject: null, filter: { name: "mail" }, count: 1, after: { status: "cancelled" } },
  },
  {
    action: "tasks.prune",
    act: async (on) => (await on.tasks.prune({ olderThanMs: 60_000, status: "completed" })).deleted,
    entry: { filter: { olderThanMs: 60_000, status: "completed" }, count: 1 },
  },
  {
    action: "throttles.pin",
    act: (on) => on.throttles.pin("api", 3),
    entry: { subject: "api", before: { pinned: null }, after: { pinned: 3 } },
  },
  {
    action: "throttles.unpin",
    arrange: (on) => on.throttles.pin("api", 3),
    act: (on) => on.throttles.unpin("api"),
    entry: { subject: "api", before: { pinned: 3 }, after: { pinned: null } },
  },
  {
    action: "agents.create",
    act: makeHelper,
    entry: { subject: "helper", filter: { tenant: "default" }, after: { revision: 1 } },
  },
  {
    action: "agents.replace",
    arrange: makeHelper,
    act: (on) => on.agents.replace("default", "helper", helper),
    entry: { subject: "helper", before: { revision: 1 }, after: { revision: 2 } },
  },
  {
    action: "agents.remove",
    arrange: makeHelper,
    act: (on) => on.agents.remove("default", "helper"),
    entry: { subject: "helper", before: { revision: 1 }, after: null },
  },
];
