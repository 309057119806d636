/**
 * Triggers that note each change that is an act, by the table and the row. So the fuzz knows of an effect
 * without asking what is tested.
 */
import type { Fleet } from "../crash/fleet.ts";

export type Watched = {
  readonly entries: readonly { readonly action: string; readonly actId: string | null }[];
  /** `table id`. */
  readonly changes: readonly string[];
};

type Watch = {
  readonly table: string;
  readonly id: string;
  readonly on: "insert" | "update" | "delete";
  /** Which of these are acts. */
  readonly when?: string;
};

const differs = (column: string) => `old.${column} is distinct from new.${column}`;

/** Not what pods and the leader do by themselves: to claim, to end, to redrive, to fire what is due. */
const watches: readonly Watch[] = [
  {
    table: "task",
    id: "task_id",
    on: "update",
    when: `(${differs("status")} or ${differs("cancel_requested")}
      or (old.parked = 6 and new.parked <> 6))
      and new.status <> 'failed' and old.redrive_id is not distinct from new.redrive_id
      and new.claimed_by is null and old.claimed_by is null`,
  },
  { table: "task_signal", id: "task_id", on: "insert" },
  { table: "task_pause", id: "name", on: "insert", when: "new.paused = 1" },
  { table: "task_pause", id: "name", on: "update", when: differs("paused") },
  { table: "task_limit", id: "scope", on: "insert", when: "new.by_hand = 1" },
  {
    table: "task_limit",
    id: "scope",
    on: "update",
    when: `${differs("by_hand")} or (new.by_hand = 1 and ${differs("max_running")})`,
  },
  { table: "schedule", id: "schedule_id", on: "insert" },
  {
    table: "schedule",
    id: "schedule_id",
    on: "update",
    when: `${differs("paused")} or ${differs("pattern")} or ${differs("payload")}`,
  },
  { table: "schedule", id: "schedule_id", on: "delete" },
  { table: "redrive", id: "redrive_id", on: "insert" },
  // A group is opened by the leader, too.
  {
    table: "failure_group",
    id: "group_id",
    on: "update",
    when: `${differs("state")} and new.state <> 'open'`,
  },
  { table: "bulk", id: "bulk_id", on: "insert" },
  { table: "pod", id: "pod_id", on: "update", when: differs("drain") },
  { table: "api_key", id: "key_id", on: "insert" },
  {
    table: "api_key",
    id: "key_id",
    on: "update",
    when: `${differs("revoked_at")} or ${differs("replaced_by")}`,
  },
  { table: "token_revocation", id: "subject", on: "insert" },
  { table: "token_revocation", id: "subject", on: "update", when: differs("before_at") },
  { table: "agent", id: "name", on: "insert" },
  { table: "agent", id: "name", on: "update", when: differs("settings") },
  { table: "agent", id: "name", on: "delete" },
  { table: "throttle", id: "name", on: "update", when: differs("pinned") },
];

/** Returns what gives all that was noted since its last call. */
export async function installWatch({
  kind,
  sql,
}: Pick<Fleet, "kind" | "sql">): Promise<() => Promise<Watched>> {
  const isPostgres = kind === "postgres";
  const seq = isPostgres ? "bigserial" : "integer";
  await sql(`create table noted (seq ${seq} primary key, what text, action text, act_id text)`);
  if (isPostgres) {
    // The pods' role may not touch the table, only cause what the trigger does.
    await sql(`create function note_act() returns trigger language plpgsql security definer as $$
      declare seen jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end);
      begin
        insert into public.noted (what, action, act_id)
        values (tg_argv[0] || ' ' || (seen ->> tg_argv[1]), seen ->> tg_argv[2], seen ->> 'act_id');
        return null;
      end $$`);
  }
  for (const [at, { table, id, on, when = "true" }] of watches.entries()) {
    const row = on === "delete" ? "old" : "new";
    const trigger = `create trigger noted_${at} after ${on} on flotilla_${table}`;
    await sql(
      isPostgres
        ? `${trigger} for each row when (${when}) execute function note_act('${table}', '${id}', 'none')`
        : `${trigger} when ${when}
           begin insert into noted (what) values ('${table} ' || ${row}.${id}); end`,
    );
  }
  // What the leader does for a bulk would be noted beside later requests, so it does nothing.
  const stop = "update flotilla_bulk set state = 'stopped' where bulk_id = new.bulk_id";
  if (isPostgres) {
    await sql(`create function stop_bulk() returns trigger language plpgsql security definer as $$
      begin new.state := 'stopped'; return new; end $$`);
  }
  await sql(
    isPostgres
      ? "create trigger stop_bulks before insert on flotilla_bulk for each row execute function stop_bulk()"
      : `create trigger stop_bulks after insert on flotilla_bulk begin ${stop}; end`,
  );
  const trigger = "create trigger noted_entry after insert on flotilla_audit";
  await sql(
    isPostgres
      ? `${trigger} for each row execute function note_act('entry', 'id', 'action')`
      : `${trigger} begin insert into noted (what, action, act_id)
         values ('entry ' || new.id, new.action, new.act_id); end`,
  );
  let seen = 0;
  return async () => {
    const rows = await sql(
      "select seq, what, action, act_id from noted where seq > ? order by seq",
      seen,
    );
    seen = Number(rows.at(-1)?.["seq"] ?? seen);
    return {
      entries: rows.flatMap((row) =>
        row["action"] === null
          ? []
          : [{ action: row["action"] as string, actId: row["act_id"] as string | null }],
      ),
      changes: rows.flatMap((row) => (row["action"] === null ? [row["what"] as string] : [])),
    };
  };
}
