import type { ActParts } from "../../audit/act.ts";
import { type Audit, createAudit } from "../../audit/audit.ts";
import { type Bulks, createBulks } from "../../bulk/bulks.ts";
import { createDeadLetters, type DeadLetters } from "../../dead-letters/dead-letters.ts";
import { readFlowNames } from "../../flows/counts.ts";
import { createRuns, type Runs } from "../../flows/runs.ts";
import { createSchedules, type Schedules } from "../../schedules/schedules.ts";
import {
  listSessions,
  readSessionCounts,
  readSessionOwner,
  type SessionCounts,
  type SessionOwner,
} from "../../sessions/list.ts";
import type { Head } from "../../sessions/log/journal.ts";
import { logsByOwner, readLogHeads } from "../../sessions/log/sql-journal.ts";
import type { SessionPage } from "../../sessions/service.ts";
import { type PodCounts, readPodCounts } from "../../pods/pods.ts";
import { pageReads } from "../../store/database.ts";
import { newestIds } from "../../tasks/inspect/list.ts";
import type { TaskState } from "../../tasks/rows.ts";
import { createTasks, type Tasks } from "../../tasks/tasks.ts";
import {
  createThrottlesClient,
  readThrottleSummaries,
  type ThrottlesClient,
  type ThrottleSummary,
} from "../../throttles/shares/admin.ts";
import { type ApprovalListOptions, type ApprovalPage, createApprovals } from "../approvals.ts";
import { createPodActs, type PodInfo } from "../pods.ts";
import { createFleetReader, type FleetSummary } from "./summary.ts";

/**
 * What pages about the fleet read while people look at them. It is read on the connections for pages, each
 * statement for 2 seconds at most, so that no claim and no request of a program waits for it.
 */
export type FleetPages = {
  readonly task: Tasks["get"];
  readonly taskStates: Tasks["states"];
  readonly tasks: Tasks["list"];
  /** How the newest tasks and runs stand, of a tenant or of all. */
  newestTasks(options: { tenant?: string; limit: number }): Promise<TaskState[]>;
  readonly links: Tasks["links"];
  readonly depth: Tasks["depth"];
  readonly paused: Tasks["paused"];
  readonly limits: Tasks["limits"]["list"];
  readonly run: Runs["get"];
  /** What the open runs of these flows do. Default: of all that have runs. */
  doing(flows?: readonly string[]): ReturnType<Runs["doing"]>;
  readonly flows: Runs["counts"];
  readonly throttle: ThrottlesClient["get"];
  readonly throttles: ThrottlesClient["list"];
  /** The first throttles and keys, without the shares of pods. */
  throttleSummaries(options: { limit: number }): Promise<ThrottleSummary[]>;
  readonly schedules: Schedules["list"];
  readonly bulks: Bulks["list"];
  readonly bulkPreview: Bulks["preview"];
  readonly redrives: DeadLetters["redrives"];
  readonly audit: Audit["list"];
  /** With the logs of sessions that they own. */
  pods(): Promise<PodInfo[]>;
  /** The same in brief, for fleets of hundreds of pods. */
  fleet(): Promise<FleetSummary>;
  podCounts(): Promise<PodCounts>;
  approvals(options?: ApprovalListOptions): Promise<ApprovalPage>;
  /** The sessions of a tenant, the most recently active first. */
  sessions(tenant: string, options: { limit: number }): Promise<SessionPage>;
  sessionCounts(): Promise<SessionCounts>;
  /** Undefined if the tenant has no session of that id. */
  sessionOwner(tenant: string, sessionId: string): Promise<SessionOwner | undefined>;
};

/** `heads` reads who owns which log, where logs aren't in the database. */
export function createFleetPages(
  given: ActParts & { heads?: (() => Promise<readonly Head[]>) | undefined },
): FleetPages {
  const database = pageReads(given.database);
  const heads = given.heads ?? (() => readLogHeads(database));
  const parts = { ...given, database };
  const tasks = createTasks(parts);
  const runs = createRuns(tasks, parts);
  const throttles = createThrottlesClient(parts);
  const fleet = createPodActs(parts);
  const bulks = createBulks(parts);
  const pods = async (): Promise<PodInfo[]> => {
    const [found, known] = await Promise.all([fleet.pods(), heads()]);
    const logs = logsByOwner(known);
    return found.map((pod) => ({ ...pod, logs: logs.get(pod.podId) ?? [] }));
  };
  return {
    task: tasks.get,
    taskStates: tasks.states,
    tasks: tasks.list,
    newestTasks: async (options) => tasks.states(await newestIds(parts, options)),
    links: tasks.links,
    depth: tasks.depth,
    paused: tasks.paused,
    limits: tasks.limits.list,
    run: runs.get,
    doing: async (flows) => runs.doing(flows ?? (await readFlowNames(database))),
    flows: runs.counts,
    throttle: throttles.get,
    throttles: throttles.list,
    throttleSummaries: (options) => readThrottleSummaries(database, options),
    schedules: createSchedules(parts).list,
    bulks: bulks.list,
    bulkPreview: bulks.preview,
    redrives: createDeadLetters(parts).redrives,
    audit: createAudit(parts).list,
    pods,
    fleet: createFleetReader({ ...parts, heads }),
    podCounts: () => readPodCounts(database),
    approvals: createApprovals(parts),
    sessions: (tenant, options) => listSessions(database, tenant, options, parts.clock),
    sessionCounts: () => readSessionCounts(database),
    sessionOwner: (tenant, sessionId) => readSessionOwner(database, tenant, sessionId, given.heads),
  };
}
