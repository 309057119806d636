import type { PlainConnection } from "../../store/postgres/inspect.ts";
import { ago, oneLine } from "../output.ts";
import { type Check, ok, warn } from "./check.ts";
import { attempt } from "./schema.ts";

export type ActivityLimits = {
  /** A transaction that is idle for so long may block others. */
  readonly idleMs: number;
  /** A snapshot this old keeps vacuum from removing dead rows. */
  readonly snapshotMs: number;
  /** So many connections should be left: as many as a pod takes. */
  readonly connectionsLeft: number;
};

export const activityLimits: ActivityLimits = {
  idleMs: 60_000,
  snapshotMs: 300_000,
  connectionsLeft: 12,
};

/** Checks activity of others on the server that could slow the queue down. */
export async function checkActivity(
  connection: PlainConnection,
  limits: ActivityLimits,
): Promise<Check[]> {
  return [
    await attempt("connections", () => connectionCheck(connection, limits)),
    await attempt("idle", () => idleCheck(connection, limits)),
    await attempt("snapshots", () => snapshotCheck(connection, limits)),
  ];
}

/** Checks the limit that is reached first: the server's, the database's or the role's. */
async function connectionCheck(
  { ask }: PlainConnection,
  { connectionsLeft }: ActivityLimits,
): Promise<Check> {
  const [row] = await ask(`
    with used as (
      select count(*) as server,
        count(*) filter (where datname = current_database()) as database,
        count(*) filter (where usename = session_user) as role
      from pg_stat_activity
      where backend_type = 'client backend' or (backend_type is null and datname is not null)
    )
    select used.server, current_setting('max_connections')::int as most,
      least(
        current_setting('max_connections')::int
          - current_setting('superuser_reserved_connections')::int
          - coalesce(current_setting('reserved_connections', true)::int, 0) - used.server,
        (select case when datconnlimit < 0 then null else datconnlimit - used.database end
          from pg_database where datname = current_database()),
        (select case when rolconnlimit < 0 then null else rolconnlimit - used.role end
          from pg_roles where rolname = session_user)
      ) as left_over
    from used`);
  const { server, most: max, left_over: left } = row!;
  const text = `${server} of ${max} in use, ${left} left for this role`;
  return left < connectionsLeft
    ? warn(
        "connections",
        `${text}: a pod takes up to twelve; raise max_connections or put a pooler in between`,
      )
    : ok("connections", text);
}

async function idleCheck({ ask }: PlainConnection, { idleMs }: ActivityLimits): Promise<Check> {
  const rows = await ask(
    `select pid, usename, application_name, ${milliseconds("state_change")} as ms from pg_stat_activity
      where state like 'idle in transaction%' and pid <> pg_backend_pid()
        and ${milliseconds("state_change")} >= $1
      order by state_change`,
    [idleMs],
  );
  const [oldest] = rows;
  if (!oldest) return ok("idle", `no transaction is idle${await blindness({ ask })}`);
  return warn(
    "idle",
    `${rows.length} idle in transaction, the oldest for ${ago(oldest["ms"], 0)} by ${whose(oldest)}: it may hold locks that tasks wait for`,
  );
}

/** Finds what keeps the server from removing old row versions, which slow a queue down. */
async function snapshotCheck(
  { ask }: PlainConnection,
  { snapshotMs }: ActivityLimits,
): Promise<Check> {
  const rows = await ask(
    `select pid::text, usename::text, application_name, ${milliseconds("xact_start")} as ms
      from pg_stat_activity
      where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
        and datname = current_database() and ${milliseconds("xact_start")} >= $1
      union all
      select gid, owner::text, 'a prepared transaction', ${milliseconds("prepared")}
      from pg_prepared_xacts
      where database = current_database() and ${milliseconds("prepared")} >= $1
      order by ms desc`,
    [snapshotMs],
  );
  const slots = await ask(
    `select slot_name from pg_replication_slots
      where not active and (xmin is not null or catalog_xmin is not null or restart_lsn is not null)`,
  );
  if (rows[0]) {
    return warn(
      "snapshots",
      `${rows.length} transactions are old, the oldest has run for ${ago(rows[0]["ms"], 0)} by ${whose(rows[0])}: vacuum can't remove dead rows meanwhile`,
    );
  }
  if (slots[0]) {
    return warn(
      "snapshots",
      `the replication slot ${oneLine(String(slots[0]["slot_name"]), 60)} has no reader: dead rows or WAL pile up behind it; drop it if it isn't needed`,
    );
  }
  return ok("snapshots", `no transaction is old${await blindness({ ask })}`);
}

function milliseconds(since: string): string {
  return `(extract(epoch from clock_timestamp() - ${since}) * 1000)::bigint`;
}

function whose({ pid, usename, application_name: program }: Record<string, unknown>): string {
  const name = String(program) === "" ? "" : `, ${String(program)}`;
  return oneLine(`${String(usename)} (${String(pid)}${name})`, 120);
}

/** A role without privileges sees only its own sessions. */
async function blindness({ ask }: Pick<PlainConnection, "ask">): Promise<string> {
  const [row] = await ask("select pg_has_role(session_user, 'pg_read_all_stats', 'usage') as sees");
  return row!["sees"] ? "" : " (of this role's sessions; `grant pg_monitor` to it to see all)";
}
