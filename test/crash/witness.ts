import type { FleetStore } from "./stores.ts";
import { monotonicMs } from "./ledger.ts";

/** One committed change of a task's status or token. */
export type Transition = {
  /** The order of one task's commits. */
  readonly seq: number;
  readonly atMs: number;
  readonly task: string;
  readonly from: string;
  readonly to: string;
  readonly fromToken: number;
  readonly toToken: number;
  /** Who held it before, and who holds it now. */
  readonly fromPod: string | null;
  readonly toPod: string | null;
  readonly deaths: number;
  readonly failures: number;
  readonly result: { readonly pod: string; readonly token: number } | null;
};

const columns = `task, old_status, new_status, old_token, new_token, old_pod, new_pod, deaths,
  failures, result`;
const values = `new.task_id, old.status, new.status, old.claim_token, new.claim_token,
  old.claimed_by, new.claimed_by, new.deaths, new.retry_count, new.result`;

const onSqlite = [
  `create table witness (seq integer primary key, at integer, task text, old_status text,
    new_status text, old_token integer, new_token integer, old_pod text, new_pod text,
    deaths integer, failures integer, result text)`,
  `create trigger witness_change after update of status, claim_token on flotilla_task
  begin
    insert into witness (at, ${columns})
    values (cast(unixepoch('subsec') * 1000 as integer), ${values});
  end`,
];

// A row is locked from its change to the commit, so one task's changes are numbered in their order.
// The pods' role may not touch the table, only cause what the trigger does.
const onPostgres = [
  `create table witness (seq bigserial primary key, at bigint, task text, old_status text,
    new_status text, old_token bigint, new_token bigint, old_pod text, new_pod text,
    deaths integer, failures integer, result text)`,
  `create function witness_ms() returns bigint language sql security definer as
    $$ select (split_part(pg_read_file('/proc/uptime'), ' ', 1)::numeric * 1000)::bigint $$`,
  `create function witness_note() returns trigger language plpgsql security definer as
    $$ begin
      insert into public.witness (at, ${columns}) values (public.witness_ms(), ${values});
      return null;
    end $$`,
  `create trigger witness_change after update of status, claim_token on flotilla_task
    for each row execute function witness_note()`,
];

// The time since the machine's start can't be set, whatever is done to the server's clock.
const withoutUptime = `create or replace function witness_ms() returns bigint language sql as
  $$ select (extract(epoch from clock_timestamp()) * 1000)::bigint $$`;

/**
 * Triggers that note every change in the transaction that makes it, so that the checkers judge all
 * of what happened and not only how it ended.
 */
export async function installWitness(store: FleetStore): Promise<void> {
  const isPostgres = store.kind === "postgres";
  for (const statement of isPostgres ? onPostgres : onSqlite) await store.sql(statement);
  if (!isPostgres) return;
  await store.sql("select witness_ms()").catch(() => store.sql(withoutUptime));
}

const clocks = {
  sqlite: "select cast(unixepoch('subsec') * 1000 as integer) as now",
  postgres: "select witness_ms() as now",
};

export async function readWitness(store: FleetStore): Promise<Transition[]> {
  const rows = await store.sql("select * from witness order by seq");
  const aheadMs = await clockAheadMs(store);
  return rows.map((row) => ({
    seq: row["seq"],
    atMs: row["at"] - aheadMs,
    task: row["task"],
    from: row["old_status"],
    to: row["new_status"],
    fromToken: row["old_token"],
    toToken: row["new_token"],
    fromPod: row["old_pod"],
    toPod: row["new_pod"],
    deaths: row["deaths"],
    failures: row["failures"],
    result: row["result"] === null ? null : JSON.parse(row["result"]),
  }));
}

/** How far the store's clock is ahead of the processes', which is the same at all times. */
async function clockAheadMs(store: FleetStore): Promise<number> {
  const looks: { tookMs: number; aheadMs: number }[] = [];
  do {
    const askedMs = monotonicMs();
    const [clock] = await store.sql(clocks[store.kind]);
    const toldMs = monotonicMs();
    looks.push({ tookMs: toldMs - askedMs, aheadMs: clock!["now"] - (askedMs + toldMs) / 2 });
    // The machine may stand still between the question and its answer.
  } while (looks.length < 5 && looks.at(-1)!.tookMs > 50);
  return looks.reduce((best, look) => (look.tookMs < best.tookMs ? look : best)).aheadMs;
}
