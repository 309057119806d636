import type { Database, Row } from "../store/database.ts";
import { limit, rows, sql, type Statement, table } from "../store/sql.ts";
import { maxDepthCount } from "../tasks/sql/inspect.ts";
import { parked } from "../tasks/sql/task-state.ts";
import type { FlowCounts, CursorCounts } from "./describe.ts";
import type { Doing } from "./rows.ts";

const tasks = table("task");
const bounded = limit(maxDepthCount);

/** The number of a flow's runs by cursor, and of its open runs by version. */
export type FlowCount = FlowCounts & {
  readonly flow: string;
  /** Open runs by the version that advanced them last; 0 before any has. */
  readonly openByVersion: Readonly<Record<number, number>>;
};

/** The number of open runs of each flow, by what they do. */
export type DoingCounts = ReadonlyMap<string, Readonly<Record<Doing["type"], number>>>;

type Counting = {
  places: Record<string, { -readonly [Key in keyof CursorCounts]: number }>;
  openByVersion: Record<number, number>;
  completed: number;
  failed: number;
  cancelled: number;
};

export function toFlowCounts(rows: readonly Row[]): FlowCount[] {
  const flows = new Map<string, Counting>();
  for (const row of rows) {
    const name = row["name"] as string;
    const flow = flows.get(name) ?? empty();
    flows.set(name, flow);
    const runs = Number(row["runs"]);
    const status = row["status"] as string;
    if (status === "completed" || status === "failed" || status === "cancelled") {
      flow[status] += runs;
      continue;
    }
    const version = Number(row["flow_version"]);
    flow.openByVersion[version] = (flow.openByVersion[version] ?? 0) + runs;
    const counts = (flow.places[(row["cursor"] as string | null) ?? "start"] ??= {});
    const what = doing(row);
    counts[what] = (counts[what] ?? 0) + runs;
  }
  return [...flows].map(([flow, counts]) => ({ flow, ...counts }));
}

function empty(): Counting {
  // Without a prototype, because a cursor may have any name.
  const places = Object.create(null) as Counting["places"];
  return { places, openByVersion: {}, completed: 0, failed: 0, cancelled: 0 };
}

function doing(row: Row): keyof CursorCounts {
  if (row["status"] === "claimed") return "running";
  switch (Number(row["parked"])) {
    case parked.setAside:
      return "setAside";
    case parked.untilDue:
      return Number(row["waiting"]) === 0 && Number(row["retrying"]) === 1 ? "retrying" : "waiting";
    case parked.forDependencies:
    case parked.untilSignal:
      return "waiting";
    default:
      return "ready";
  }
}

/**
 * Reads bounded ranges of indexes, so that the cost doesn't depend on the table's size. (`counts` reads
 * all runs.) Indexes that aren't separated by name contain tasks too, which are read and left out.
 */
export async function readDoing(
  database: Database,
  flows: readonly string[],
): Promise<DoingCounts> {
  const counts = new Map(flows.map((flow) => [flow, noRuns()]));
  if (flows.length === 0) return counts;
  const [ready, others] = await Promise.all([
    database.read(readyRuns(flows)),
    database.read(otherRuns()),
  ]);
  for (const row of [...ready, ...others]) {
    const of = counts.get(row["name"] as string);
    if (of) of[row["doing"] as Doing["type"]] += Number(row["runs"]);
  }
  return counts;
}

function noRuns(): Record<Doing["type"], number> {
  return {
    running: 0,
    ready: 0,
    retrying: 0,
    delayed: 0,
    sleeping: 0,
    waiting_for_signal: 0,
    waiting_for_children: 0,
    waiting_for_others: 0,
    waiting_for_room: 0,
    set_aside: 0,
  };
}

// Counting orders by an index, or a planner that takes most rows for pending would read the whole table.
function readyRuns(flows: readonly string[]): Statement {
  const wanted = rows(
    { name: "text" },
    flows.map((name) => [name]),
  );
  return sql`
    select 'ready' as doing, flow.name,
      (select count(*) from (
        select 1 from ${tasks} task
        where task.name = flow.name and task.status = 'pending' and task.parked = 0 and task.deaths < 2
        order by task.priority desc, task.created_at, task.task_id ${bounded}) open) +
      (select count(*) from (
        select 1 from ${tasks} task
        where task.name = flow.name and task.status = 'pending' and task.parked = 0 and task.deaths >= 2
        order by task.created_at, task.task_id ${bounded}) alone) as runs
    from ${wanted} flow`;
}

function otherRuns(): Statement {
  return sql`
    select 'running' as doing, name, count(*) as runs from (
      select name, flow_version from ${tasks} where status = 'claimed'
      order by claimed_by, claim_call ${bounded}) running
    where flow_version is not null group by name
    union all
    select case when awaits is not null then 'waiting_for_signal' when waiting is not null then 'sleeping'
        when run_seq = 0 then 'delayed' else 'retrying' end, name, count(*) from (
      select name, flow_version, awaits, waiting, run_seq from ${tasks}
      where status = 'pending' and parked = 1 order by run_at ${bounded}) later
    where flow_version is not null group by 1, 2
    union all
    select case when waiting is null then 'waiting_for_others' else 'waiting_for_children' end, name,
      count(*) from (
      select name, flow_version, waiting from ${tasks} where status = 'pending' and parked = 2
      order by task_id ${bounded}) waiting
    where flow_version is not null group by 1, 2
    union all
    select 'waiting_for_room', name, count(*) from (
      select name, flow_version from ${tasks} where status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id ${bounded}) blocked
    where flow_version is not null group by name
    union all
    select 'ready', name, count(*) from (
      select name, flow_version from ${tasks}
      where status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id ${bounded}) limited
    where flow_version is not null group by name
    union all
    select 'ready', name, count(*) from (
      select name, flow_version from ${tasks}
      where status = 'pending' and parked = 4 and deaths >= 2
      order by name, created_at, task_id ${bounded}) alone
    where flow_version is not null group by name
    union all
    select 'waiting_for_signal', name, count(*) from (
      select name from ${tasks} where status = 'pending' and parked = 5
      order by name ${bounded}) told group by name
    union all
    select 'set_aside', name, count(*) from (
      select name from ${tasks} where status = 'pending' and parked = 6
      order by name ${bounded}) set_aside group by name`;
}
