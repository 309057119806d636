/**
 * The one store of a simulation, in memory, with triggers that note every change of a task's row.
 * What checkers see is therefore what was committed, whoever wrote it and however.
 */
import type { Database, Row } from "../../src/store/database.ts";
import { migrate } from "../../src/store/migrate.ts";
import { sql, type Statement, table } from "../../src/store/sql.ts";
import { spareDatabase } from "./spare-stores.ts";

/** How a task's row stood before or after a write. */
export type TaskState = {
  readonly status: string;
  readonly token: number;
  readonly claimedBy: string | null;
  readonly failures: number;
  readonly deaths: number;
  readonly runAtMs: number;
  readonly cancelRequested: number;
  readonly parked: number;
  readonly waits: number;
  readonly redriveId: string | null;
  readonly redriveStep: number | null;
};

export type Change = {
  readonly taskId: string;
  readonly name: string;
  readonly payload: string;
  readonly maxAttempts: number | null;
  readonly tenant: string;
  readonly group: string | null;
  readonly gated: number;
  readonly result: string | null;
  readonly error: string | null;
  readonly progress: string | null;
  readonly before: TaskState | undefined;
  readonly after: TaskState | undefined;
};

export type AuditedStore = {
  readonly database: Database;
  /** Commits, and tells what that did to tasks. */
  commit(statements: readonly Statement[]): Promise<{ tables: Row[][]; changes: Change[] }>;
};

const stateColumns = [
  "status",
  "claim_token",
  "claimed_by",
  "retry_count",
  "deaths",
  "run_at",
  "cancel_requested",
  "parked",
  "waits",
  "redrive_id",
  "redrive_step",
];
const rowColumns = [
  "name",
  "payload",
  "max_attempts",
  "tenant",
  "group_key",
  "gated",
  "result",
  "error",
  "progress",
];

export async function openAuditedStore(clock: { now(): number }): Promise<AuditedStore> {
  const database = spareDatabase(clock);
  await migrate(database);
  await database.write(auditStatements());
  const readChanges = sql`select * from sim_change order by n`;
  const forgetChanges = [sql`delete from sim_change`];
  return {
    database,
    async commit(statements) {
      const tables = await database.write(statements);
      const rows = await database.read(readChanges);
      if (rows.length > 0) await database.write(forgetChanges);
      return { tables, changes: rows.map(toChange) };
    },
  };
}

function auditStatements(): Statement[] {
  const named = (prefix: string) => stateColumns.map((column) => `${prefix}_${column}`);
  const from = (prefix: string, columns: string[]) =>
    columns.map((column) => `${prefix}.${column}`);
  const trigger = (when: "delete" | "insert" | "update") => {
    const row = when === "delete" ? "old" : "new";
    const columns = [
      "task_id",
      ...rowColumns,
      ...(when === "insert" ? [] : named("old")),
      ...(when === "delete" ? [] : named("new")),
    ];
    const values = [
      ...from(row, ["task_id", ...rowColumns]),
      ...(when === "insert" ? [] : from("old", stateColumns)),
      ...(when === "delete" ? [] : from("new", stateColumns)),
    ];
    return sql`${text(`create trigger if not exists sim_${when} after ${when} on `)}${table("step_tracker")}${text(
      ` begin insert into sim_change (${columns.join()}) values (${values.join()}); end`,
    )}`;
  };
  const all = ["task_id", ...rowColumns, ...named("old"), ...named("new")];
  return [
    text(`create table if not exists sim_change (n integer primary key, ${all.join()})`),
    trigger("insert"),
    trigger("update"),
    trigger("delete"),
  ];
}

const text = (words: string): Statement => sql([words] as unknown as TemplateStringsArray);

function toChange(row: Row): Change {
  return {
    taskId: row["task_id"],
    name: row["name"],
    payload: row["payload"],
    maxAttempts: row["max_attempts"],
    tenant: row["tenant"],
    group: row["group_key"],
    gated: row["gated"],
    result: row["result"],
    error: row["error"],
    progress: row["progress"],
    before: toState(row, "old"),
    after: toState(row, "new"),
  };
}

function toState(row: Row, prefix: "old" | "new"): TaskState | undefined {
  if (row[`${prefix}_status`] === null) return undefined;
  return {
    status: row[`${prefix}_status`],
    token: row[`${prefix}_claim_token`],
    claimedBy: row[`${prefix}_claimed_by`],
    failures: row[`${prefix}_retry_count`],
    deaths: row[`${prefix}_deaths`],
    runAtMs: row[`${prefix}_run_at`],
    cancelRequested: row[`${prefix}_cancel_requested`],
    parked: row[`${prefix}_parked`],
    waits: row[`${prefix}_waits`],
    redriveId: row[`${prefix}_redrive_id`],
    redriveStep: row[`${prefix}_redrive_step`],
  };
}
