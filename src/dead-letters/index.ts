import { DatabaseSync } from "../store/sqlite/driver.ts";
import { makePrivate } from "../store/sqlite/private-file.ts";
import type { WalkSpan } from "../store/walk.ts";
import type { DeadLetter } from "./dead-letter.ts";
import { fingerprintVersion } from "./fingerprint.ts";
import type { Picking, Selection } from "./redrive.ts";
import type { FailedCursor } from "./sql.ts";

/**
 * An index of failed tasks in an SQLite database of this process, in memory or in a file, grouped
 * by their errors. It holds nothing that the store does not: any process that builds it gets the
 * same rows.
 */
export type DeadLetterIndex = ReturnType<typeof openIndex>;

/** The fields of a failed task that a walk reads. */
export type FailedTask = {
  readonly taskId: string;
  readonly token: number;
  readonly failedAtMs: number;
  readonly redriveId: string | null;
};

/** A group of failed tasks with the same error. */
export type IndexedGroup = {
  readonly group: string;
  readonly name: string;
  readonly code: string;
  /** The message of the latest. */
  readonly message: string;
  readonly tasks: number;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
  /** Some of its tasks, the latest first. */
  readonly taskIds: readonly string[];
};

/** The largest groups, and the total number of groups and tasks. */
export type IndexedGroups = {
  readonly groups: readonly IndexedGroup[];
  readonly count: number;
  readonly tasks: number;
};

type GroupFilter = Pick<Selection, "name" | "tenant"> & {
  /** Only these groups. */
  readonly only?: readonly string[];
  /** Not these groups. */
  readonly without?: readonly string[];
};

type GroupsQuery = GroupFilter & { readonly limit: number };

const maxSamples = 5;
const hourMs = 3_600_000;
const trendHours = 24;

// Must grow when the table changes. It includes the fingerprint version, because groups of other
// rules are useless too.
const version = 2_000 + fingerprintVersion;

const schema = `
  create table failed (
    task_id text primary key,
    name text not null,
    tenant text not null,
    group_id text not null,
    code text not null,
    message text not null,
    failures integer not null,
    deaths integer not null,
    failed_at integer not null,
    redrive_id text,
    token integer not null
  ) without rowid;
  create index failed_at on failed (failed_at, task_id);
  create index failed_group on failed (group_id, failed_at, task_id);
  create index failed_group_task on failed (group_id, task_id);
  create index failed_name on failed (name, failed_at, task_id);`;

/** Opens an index: a new one in memory, or what an earlier process has left in a file. */
export function openIndex(path?: string) {
  const db = path === undefined ? new DatabaseSync(":memory:") : openFile(path);
  if (Number(db.prepare("pragma user_version").get()!["user_version"]) !== version) {
    db.exec(
      `begin; drop table if exists failed; ${schema} pragma user_version = ${version}; commit`,
    );
  }
  let groupsOf = new Map<string, IndexedGroups>();
  let trendsOf = new Map<string, ReadonlyMap<string, readonly number[]>>();
  /** Groups with tasks that were put since they were last taken. */
  const touched = new Set<string>();
  let wasTaken = false;

  const put = db.prepare("insert or replace into failed values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  const known = db.prepare(
    `select task_id, token, failed_at, redrive_id from failed
     where task_id in (select value from json_each(?))`,
  );
  const between = db.prepare(
    `select task_id from failed where (failed_at, task_id) > (?, ?) and (failed_at, task_id) <= (?, ?)`,
  );
  const remove = db.prepare("delete from failed where task_id in (select value from json_each(?))");
  const count = db.prepare("select count(*) as count from failed");
  const samples = db.prepare(
    `select task_id, message from failed where group_id = ? and (? is null or tenant = ?)
     order by failed_at desc, task_id desc limit ${maxSamples}`,
  );

  const idsOfGroup = db.prepare(
    `select task_id from failed where group_id = ? and task_id < ? and task_id >= ?
     order by task_id desc limit ?`,
  );
  const times = db.prepare(
    `select (select min(failed_at) from failed where group_id = :group) as first_at,
       (select max(failed_at) from failed where group_id = :group) as last_at`,
  );
  const allGroups = db.prepare("select distinct group_id from failed");
  const firstAfter = db.prepare(
    `select min(failed_at) as at from failed
     where group_id = :group and failed_at > :after and (:tenant is null or tenant = :tenant)`,
  );

  const changed = <Result>(change: () => Result): Result => {
    groupsOf = new Map();
    trendsOf = new Map();
    db.exec("begin");
    try {
      return change();
    } finally {
      db.exec("commit");
    }
  };

  const drop = (taskIds: readonly string[]): void => {
    if (taskIds.length > 0) changed(() => remove.run(JSON.stringify(taskIds)));
  };

  return {
    /** Its file, if it has one. */
    path,

    get tasks(): number {
      return Number(count.get()!["count"]);
    },

    put(deadLetters: readonly DeadLetter[]): void {
      changed(() => {
        for (const each of deadLetters) {
          const { taskId, name, tenant, group, code, message, failures, deaths } = each;
          const { failedAtMs, redriveId, token } = each;
          touched.add(group);
          put.run(
            taskId,
            name,
            tenant,
            group,
            code,
            message,
            failures,
            deaths,
            failedAtMs,
            redriveId,
            token,
          );
        }
      });
    },

    drop,

    /** Those of the given tasks that are missing in the index or outdated. */
    unknown(page: readonly FailedTask[]): string[] {
      const rows = known.all(JSON.stringify(page.map((each) => each.taskId)));
      const have = new Map(rows.map((row) => [row["task_id"], row]));
      return page
        .filter(({ taskId, token, failedAtMs, redriveId }) => {
          const row = have.get(taskId);
          return (
            row?.["token"] !== token ||
            row["failed_at"] !== failedAtMs ||
            row["redrive_id"] !== redriveId
          );
        })
        .map((each) => each.taskId);
    },

    /** Drops tasks between two cursors that are not among the given failed tasks of the store. */
    keepOnly(page: readonly FailedTask[], after: FailedCursor, upTo: FailedCursor): void {
      const failedIds = new Set(page.map((each) => each.taskId));
      const had = between.all(after.atMs, after.taskId, upTo.atMs, upTo.taskId);
      drop(had.map((row) => row["task_id"] as string).filter((taskId) => !failedIds.has(taskId)));
    },

    /** When the first and the last of a group's tasks failed; undefined if it has none. */
    times(group: string): { firstAtMs: number; lastAtMs: number } | undefined {
      const row = times.get({ group })!;
      if (row["first_at"] === null) return undefined;
      return { firstAtMs: Number(row["first_at"]), lastAtMs: Number(row["last_at"]) };
    },

    /** When a task of a group failed first after a time; undefined if none has. */
    firstAfter(group: string, afterMs: number, tenant?: string): number | undefined {
      const row = firstAfter.get({ group, after: afterMs, tenant: tenant ?? null })!;
      return row["at"] === null ? undefined : Number(row["at"]);
    },

    /** Takes up to so many groups with tasks that were put since they were taken last. */
    takeTouched(most: number): string[] {
      // An earlier process may have put tasks in the file, and have taken none.
      if (!wasTaken) for (const row of allGroups.all()) touched.add(row["group_id"] as string);
      wasTaken = true;
      const taken = [...touched].slice(0, most);
      for (const group of taken) touched.delete(group);
      return taken;
    },

    /** Gives groups back that couldn't be dealt with. */
    touch(groups: readonly string[]): void {
      for (const group of groups) touched.add(group);
    },

    /**
     * How many of each group's tasks failed in each of the hours before a time, the latest last. Those
     * that are no longer failed don't count.
     */
    trends(
      groups: readonly string[],
      { endMs, tenant }: { endMs: number; tenant?: string },
    ): ReadonlyMap<string, readonly number[]> {
      const key = JSON.stringify([groups, endMs, tenant]);
      const cached = trendsOf.get(key);
      if (cached) return cached;
      const { where, values } = conditionOf(
        { ...(tenant !== undefined && { tenant }) },
        {},
        groups,
      );
      const rows = db
        .prepare(
          `select group_id, cast((? - 1 - failed_at) / ${hourMs} as integer) as hours,
             count(*) as tasks
           from failed where ${where} and failed_at >= ? and failed_at < ? group by group_id, hours`,
        )
        .all(endMs, ...values, endMs - trendHours * hourMs, endMs);
      const trends = new Map(groups.map((group) => [group, Array<number>(trendHours).fill(0)]));
      for (const row of rows)
        trends.get(row["group_id"] as string)![trendHours - 1 - Number(row["hours"])] = Number(
          row["tasks"],
        );
      trendsOf.set(key, trends);
      return trends;
    },

    /** The groups, the largest first. Cached until something changes. */
    groups({ limit, ...selection }: GroupsQuery): IndexedGroups {
      const { name, tenant, only, without } = selection;
      const key = JSON.stringify([name, tenant, limit, only, without]);
      const cached = groupsOf.get(key);
      if (cached) return cached;
      const { where, values } = conditionOf(selection, {}, only, without);
      const onlyTenant = tenant ?? null;
      const [total] = db
        .prepare(
          `select count(*) as tasks, count(distinct group_id) as count from failed where ${where}`,
        )
        .all(...values);
      const rows = db
        .prepare(
          `select group_id, min(name) as name, min(code) as code, count(*) as tasks,
             min(failed_at) as first_at, max(failed_at) as last_at
           from failed where ${where} group by group_id
           order by tasks desc, last_at desc, group_id limit ?`,
        )
        .all(...values, limit);
      const found = {
        groups: rows.map((row) =>
          toGroup(row, samples.all(row["group_id"]!, onlyTenant, onlyTenant)),
        ),
        count: Number(total!["count"]),
        tasks: Number(total!["tasks"]),
      };
      groupsOf.set(key, found);
      return found;
    },

    /** A page of failed tasks before a cursor, the latest first. */
    page(selection: Selection, before: FailedCursor | undefined, most: number): DeadLetter[] {
      const { where, values } = conditionOf(selection, {});
      const earlier = before ? "and (failed_at, task_id) < (?, ?)" : "";
      const place = before ? [before.atMs, before.taskId] : [];
      return db
        .prepare(
          `select * from failed where ${where} ${earlier} order by failed_at desc, task_id desc limit ?`,
        )
        .all(...values, ...place, most)
        .map(toDeadLetter);
    },

    /** A piece of the ids of a group's tasks, in the order of ids, newest first. */
    idsIn(group: string, { before, from, count }: WalkSpan): string[] {
      return idsOfGroup.all(group, before, from, count).map((row) => row["task_id"] as string);
    },

    /** The tasks that failed first among those that may be picked. */
    pick(selection: Selection, picking: Picking, most: number): DeadLetter[] {
      const { where, values } = conditionOf(selection, picking);
      return db
        .prepare(`select * from failed where ${where} order by failed_at, task_id limit ?`)
        .all(...values, most)
        .map(toDeadLetter);
    },

    count(selection: Selection, picking: Picking = {}): number {
      const { where, values } = conditionOf(selection, picking);
      const row = db.prepare(`select count(*) as count from failed where ${where}`).get(...values);
      return Number(row!["count"]);
    },

    close(): void {
      db.close();
    },
  };
}

/**
 * Opens a file for this process alone. A power cut loses the last writes, and never damages the
 * rest.
 */
function openFile(path: string): DatabaseSync {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec(
      "pragma locking_mode = exclusive; pragma journal_mode = wal; pragma synchronous = normal",
    );
    db.exec("begin immediate; commit");
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** A selection as a condition on the index's rows. */
function conditionOf(
  selection: Selection,
  { untilMs, notOf = [] }: Picking,
  only?: readonly string[],
  without: readonly string[] = [],
) {
  const { group, taskId, name, tenant } = selection;
  const among = "(select value from json_each(?))";
  const conditions: [string, string | number][] = [
    ...(only ? [[`group_id in ${among}`, JSON.stringify(only)] as [string, string]] : []),
    ...(without.length > 0
      ? [[`group_id not in ${among}`, JSON.stringify(without)] as [string, string]]
      : []),
    ...(group === undefined ? [] : [["group_id = ?", group] as [string, string]]),
    ...(taskId === undefined ? [] : [["task_id = ?", taskId] as [string, string]]),
    ...(name === undefined ? [] : [["name = ?", name] as [string, string]]),
    ...(tenant === undefined ? [] : [["tenant = ?", tenant] as [string, string]]),
    ...(untilMs === undefined ? [] : [["failed_at <= ?", untilMs] as [string, number]]),
    ...(notOf.length === 0
      ? []
      : [
          [
            "(redrive_id is null or redrive_id not in (select value from json_each(?)))",
            JSON.stringify(notOf),
          ] as [string, string],
        ]),
  ];
  return {
    where: ["true", ...conditions.map(([text]) => text)].join(" and "),
    values: conditions.map(([, value]) => value),
  };
}

function toGroup(row: Record<string, unknown>, latest: Record<string, unknown>[]): IndexedGroup {
  return {
    group: row["group_id"] as string,
    name: row["name"] as string,
    code: row["code"] as string,
    message: latest[0]!["message"] as string,
    tasks: Number(row["tasks"]),
    firstAtMs: Number(row["first_at"]),
    lastAtMs: Number(row["last_at"]),
    taskIds: latest.map((each) => each["task_id"] as string),
  };
}

function toDeadLetter(row: Record<string, unknown>): DeadLetter {
  return {
    taskId: row["task_id"] as string,
    name: row["name"] as string,
    tenant: row["tenant"] as string,
    group: row["group_id"] as string,
    code: row["code"] as string,
    message: row["message"] as string,
    failures: Number(row["failures"]),
    deaths: Number(row["deaths"]),
    failedAtMs: Number(row["failed_at"]),
    redriveId: row["redrive_id"] as string | null,
    token: Number(row["token"]),
  };
}
