import type { ActParts } from "../../audit/act.ts";
import { type Audit, createAudit } from "../../audit/audit.ts";
import { type Bulks, createBulks } from "../../bulk/bulks.ts";
import { createDeadLetters, type DeadLetters } from "../../dead-letters/dead-letters.ts";
import { createRuns, type Runs } from "../../flows/runs.ts";
import { createSchedules, type Schedules } from "../../schedules/schedules.ts";
import { listSessions, readSessionCounts, type SessionCounts } from "../../sessions/list.ts";
import { readLogOwners } from "../../sessions/log/sql-journal.ts";
import type { SessionPage } from "../../sessions/service.ts";
import { pageReads } from "../../store/database.ts";
import { createTasks, type Tasks } from "../../tasks/tasks.ts";
import { createThrottlesClient, type ThrottlesClient } from "../../throttles/shares/admin.ts";
import { type ApprovalListOptions, type ApprovalPage, createApprovals } from "../approvals.ts";
import { createPodActs, type PodInfo } from "../pods.ts";

/**
 * What pages about the fleet read while people look at them. It is read on the connections for pages, each
 * statement for 2 seconds at most, so that no claim and no request of a program waits for it.
 */
export type FleetPages = {
  readonly task: Tasks["get"];
  readonly taskStates: Tasks["states"];
  readonly tasks: Tasks["list"];
  readonly links: Tasks["links"];
  readonly depth: Tasks["depth"];
  readonly paused: Tasks["paused"];
  readonly limits: Tasks["limits"]["list"];
  readonly run: Runs["get"];
  readonly doing: Runs["doing"];
  readonly flows: Runs["counts"];
  readonly throttle: ThrottlesClient["get"];
  readonly throttles: ThrottlesClient["list"];
  readonly schedules: Schedules["list"];
  readonly bulks: Bulks["list"];
  readonly redrives: DeadLetters["redrives"];
  readonly audit: Audit["list"];
  /** With the logs of sessions that they own. */
  pods(): Promise<PodInfo[]>;
  approvals(options?: ApprovalListOptions): Promise<ApprovalPage>;
  /** The sessions of a tenant, the most recently active first. */
  sessions(tenant: string, options: { limit: number }): Promise<SessionPage>;
  sessionCounts(): Promise<SessionCounts>;
};

export function createFleetPages(given: ActParts): FleetPages {
  const database = pageReads(given.database);
  const parts = { ...given, database };
  const tasks = createTasks(parts);
  const runs = createRuns(tasks, parts);
  const throttles = createThrottlesClient(parts);
  const fleet = createPodActs(parts);
  return {
    task: tasks.get,
    taskStates: tasks.states,
    tasks: tasks.list,
    links: tasks.links,
    depth: tasks.depth,
    paused: tasks.paused,
    limits: tasks.limits.list,
    run: runs.get,
    doing: runs.doing,
    flows: runs.counts,
    throttle: throttles.get,
    throttles: throttles.list,
    schedules: createSchedules(parts).list,
    bulks: createBulks(parts).list,
    redrives: createDeadLetters(parts).redrives,
    audit: createAudit(parts).list,
    async pods() {
      const [pods, logs] = await Promise.all([fleet.pods(), readLogOwners(database)]);
      return pods.map((pod) => ({ ...pod, logs: logs.get(pod.podId) ?? [] }));
    },
    approvals: createApprovals(parts),
    sessions: (tenant, options) => listSessions(database, tenant, options),
    sessionCounts: () => readSessionCounts(database),
  };
}
