import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { monotonicMs } from "./ledger.ts";
import { pauseFor } from "./until.ts";

export type StoreKind = "sqlite" | "postgres";

/** The store that a fleet shares, and a way to it past everything that is tested. */
export type FleetStore = {
  readonly kind: StoreKind;
  /** What pods and producers are given. */
  readonly url: string;
  /**
   * Plain SQL, in SQLite's words: `flotilla_task` and `?` are spelled as the store wants
   * them. A select waits for a server that is away.
   */
  sql(text: string, ...values: PlainValue[]): Promise<Record<string, any>[]>;
  /** Whether no process that was just paused keeps the others from writing. */
  writable(): Promise<boolean>;
  remove(): Promise<void>;
};

export type PlainValue = string | number | null;

/** A file in the given folder. */
export function sqliteStore(folder: string): FleetStore {
  const path = join(folder, "store.db");
  let plain: DatabaseSync | undefined;
  return {
    kind: "sqlite",
    url: `sqlite:${path}`,
    async sql(text, ...values) {
      plain ??= new DatabaseSync(path, { timeout: 30_000 });
      return plain.prepare(text).all(...values);
    },
    writable: async () => isWritable(path),
    remove: async () => plain?.close(),
  };
}

/** Whether the write lock can be had within a time in which every running process gives it back. */
function isWritable(path: string): boolean {
  const db = new DatabaseSync(path, { timeout: 150 });
  try {
    db.exec("begin immediate; rollback");
    return true;
  } catch {
    return false;
  } finally {
    db.close();
  }
}

let databases = 0;
/** Pods aren't superusers, so that there are connections which they can't take. */
const podRole = "flotilla_pods";

/** A database of its own on a server whose superuser's URL is given. */
export async function postgresStore(serverUrl: string): Promise<FleetStore> {
  const name = `crash_${process.pid}_${++databases}`;
  await once(serverUrl, async (client) => {
    await client.query(
      `do $$ begin create role ${podRole} login; exception when duplicate_object then end $$`,
    );
    await client.query(`create database ${name} owner ${podRole}`);
  });
  const named = new URL(serverUrl);
  named.pathname = `/${name}`;
  const plain = new pg.Pool({
    connectionString: named.href,
    max: 2,
    application_name: "witness",
    types: numbersAsNumbers,
  });
  plain.on("error", () => {});
  plain.on("connect", (client) => client.on("error", () => {}));
  const ask: FleetStore["sql"] = (text, ...values) =>
    patiently(text, () => plain.query(inPostgres(text), values));
  named.username = podRole;
  return {
    kind: "postgres",
    url: named.href,
    sql: ask,
    async writable() {
      await pauseFor(150);
      const open = `select 1 from pg_stat_activity
         where datname = current_database() and usename = $1
           and state like 'idle in transaction%' and state_change < now() - interval '100 ms'`;
      // A server that is down has no transactions.
      const noneIfDown = (error: { code?: unknown }) => {
        if (error.code === "ECONNREFUSED") return { rows: [] };
        throw error;
      };
      const asked = () => plain.query<pg.QueryResultRow>(open, [podRole]).catch(noneIfDown);
      return (await patiently(open, asked)).length === 0;
    },
    async remove() {
      await plain.end();
      await once(serverUrl, (client) => client.query(`drop database ${name} with (force)`));
    },
  };
}

const bigintOid = 20;
const numbersAsNumbers = {
  getTypeParser: (oid: number) => (oid === bigintOid ? Number : pg.types.getTypeParser(oid)),
} as pg.CustomTypesConfig;

const ourTables =
  /\bflotilla_(agent|api_key|audit|bulk|failure_group|file|file_count|file_part|file_reference|file_remnant|message|pod|redrive|schedule|session|session_fork|session_log|step_journal|task|task_event|task_limit|task_pause|task_signal|throttle|token_revocation|turn_checkpoint)\b/g;

function inPostgres(text: string): string {
  let position = 0;
  return text.replaceAll(ourTables, "flotilla.$1").replaceAll("?", () => `$${++position}`);
}

const patienceMs = 90_000;

async function patiently(text: string, ask: () => Promise<Pick<pg.QueryResult, "rows">>) {
  const deadlineMs = monotonicMs() + patienceMs;
  for (;;) {
    try {
      return (await ask()).rows as Record<string, any>[];
    } catch (error) {
      const answered = (error as { severity?: string }).severity === "ERROR";
      const repeatable = /^\s*select/.test(text);
      if (answered || !repeatable || monotonicMs() > deadlineMs) throw error;
      await pauseFor(50);
    }
  }
}

async function once(url: string, ask: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await ask(client);
  } finally {
    await client.end();
  }
}
