/**
 * The one store of a simulation, in memory, with triggers that tell of every row as it is written. What
 * checkers see is therefore what was committed, by whichever process, without asking the store.
 */
import type { Database, Row } from "../../src/store/database.ts";
import { migrate } from "../../src/store/migrate.ts";
import { sql, type Statement, table, type Value } from "../../src/store/sql.ts";
import { spareDatabase } from "./spare-stores.ts";

/** How a task's row stood before or after a write. */
export type TaskState = {
  readonly status: string;
  readonly token: number;
  readonly claimedBy: string | null;
  readonly claimCall: number | null;
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

/** A row that was written, as it stood before and after; undefined where it wasn't there. */
export type Noted = {
  readonly table: AuditedTable;
  readonly before: Row | undefined;
  readonly after: Row | undefined;
};

export type AuditedStore = {
  readonly database: Database;
  /** Commits, and tells what that did to rows, and to tasks among them. */
  commit(statements: readonly Statement[]): Promise<Committed>;
  /** All rows of a table, as they are stored now. */
  rows(of: AuditedTable): Iterable<Row>;
};

export type Committed = {
  readonly tables: Row[][];
  readonly changes: Change[];
  readonly noted: readonly Noted[];
};

const auditedTables = [
  "session_log",
  "message",
  "session",
  "task_event",
  "task_signal",
  "task",
  "task_dependency",
  "task_pause",
  "redrive",
  "bulk",
  "step_journal",
  "audit",
] as const;

/** A store makes its own by chance; simulations have the same, so that they can be replayed. */
export const simulatedSecret = "simulated";

export type AuditedTable = (typeof auditedTables)[number];

/** The columns of each table, in order. They are those of the newest schema. */
const columnsOf = new Map<AuditedTable, readonly string[]>();

export async function openAuditedStore(clock: { now(): number }): Promise<AuditedStore> {
  let written: (readonly Value[])[] = [];
  const database = spareDatabase({
    now: clock.now,
    note: (values) => written.push(values),
  });
  await migrate(database);
  if (columnsOf.size === 0) await readColumns(database);
  const secrets = table("bus_secret");
  await database.write([
    sql`delete from ${secrets}`,
    sql`insert into ${secrets} (secret) values (${simulatedSecret})`,
    ...auditedTables.flatMap(triggersOf),
  ]);
  const stored = new Map(auditedTables.map((each) => [each, new Map<Value, Row>()]));

  /** Takes in what triggers have told since the last time, now that it is committed. */
  const take = (): Noted[] => {
    const noted = written.map(([name, address, ...values]): Noted => {
      const of = name as AuditedTable;
      const rows = stored.get(of)!;
      const before = rows.get(address!);
      if (values.length === 0) {
        rows.delete(address!);
        return { table: of, before, after: undefined };
      }
      const after: Record<string, Value> = {};
      const names = columnsOf.get(of)!;
      for (let at = 0; at < names.length; at++) after[names[at]!] = values[at]!;
      rows.set(address!, after);
      return { table: of, before, after };
    });
    written = [];
    return noted;
  };

  return {
    database,
    async commit(statements) {
      try {
        const tables = await database.write(statements);
        if (written.length === 0) return { tables, changes: [], noted: [] };
        const noted = take();
        return { tables, changes: noted.flatMap(changesOf), noted };
      } catch (error) {
        written = [];
        throw error;
      }
    },
    rows(of) {
      take();
      return stored.get(of)!.values();
    },
  };
}

async function readColumns(database: Database): Promise<void> {
  for (const each of auditedTables) {
    const found = await database.read(
      sql`${text("select * from pragma_table_info('")}${table(each)}${text("')")}`,
    );
    columnsOf.set(
      each,
      found.map((row) => row["name"] as string),
    );
  }
}

function triggersOf(of: AuditedTable): Statement[] {
  return (["insert", "update", "delete"] as const).map((when) => {
    const row = when === "delete" ? "old" : "new";
    const names = ["rowid", ...(when === "delete" ? [] : columnsOf.get(of)!)];
    const values = names.map((name) => `${row}.${name}`).join();
    return sql`${text(`create trigger if not exists sim_${of}_${when} after ${when} on `)}${table(of)}${text(
      ` begin select sim_note('${of}', ${values}); end`,
    )}`;
  });
}

const text = (words: string): Statement => sql([words] as unknown as TemplateStringsArray);

function changesOf({ table: of, before, after }: Noted): Change[] {
  if (of !== "task") return [];
  const row = (after ?? before)!;
  return [
    {
      taskId: row["task_id"],
      name: row["name"],
      payload: row["payload"],
      maxAttempts: row["max_attempts"],
      tenant: row["tenant"],
      group: row["concurrency_key"],
      gated: row["limited"],
      result: row["result"],
      error: row["error"],
      progress: row["progress"],
      before: before && toState(before),
      after: after && toState(after),
    },
  ];
}

function toState(row: Row): TaskState {
  return {
    status: row["status"],
    token: row["claim_token"],
    claimedBy: row["claimed_by"],
    claimCall: row["claim_call"],
    failures: row["retry_count"],
    deaths: row["deaths"],
    runAtMs: row["run_at"],
    cancelRequested: row["cancel_requested"],
    parked: row["parked"],
    waits: row["depends"],
    redriveId: row["redrive_id"],
    redriveStep: row["redrive_step"],
  };
}
