import type { RecorderName, TableName } from "../sql.ts";

/**
 * Up to here no transaction is open, nor will be: the oldest that has written something, in any database of
 * the server.
 */
export const horizon = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/**
 * The mark of a change. It is above the transaction's own number, so that the horizon passes it only when
 * the transaction has ended; and above those of all transactions that had ended when the changed rows were
 * locked, so that a later change of the same row never has a lower one. The transaction's number alone
 * would not do: it may be older than that of the change before it.
 */
const mark = `greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint + 1)`;
const now = "floor(extract(epoch from statement_timestamp()) * 1000)::bigint";
// It needs a lock that every write of the table waits behind, once it is asked for.
const lockMs = 2_000;

const ended = "('completed', 'failed', 'cancelled')";
const kind = (row: string) => `case when ${row}.flow_version is null then 'task' else 'run' end`;
const noTurn = "null::bigint as epoch, null::bigint as attempt";
const turnId = (row: string, epoch: string) => `${row}.session_id || '/' || ${row}.${epoch}`;

type Recorder = {
  readonly on: TableName;
  readonly event: "insert" | "update" | "delete";
  /** The condition without which nothing is to be recorded: of most claims it is false. */
  readonly unless?: string;
  /**
   * A query for what was changed, of `fresh` and `past`: its place among others of the same subject, and the
   * fields of a subject.
   */
  readonly subjects: (schema: string) => string;
};

const recorders: Readonly<Record<RecorderName, Recorder>> = {
  task_insert: {
    on: "task",
    event: "insert",
    subjects: () => `select 1 as place, ${kind("fresh")} as kind, task_id as id, name, tenant,
        'created' as change, status, ${noTurn} from fresh`,
  },
  task_update: {
    on: "task",
    event: "update",
    unless: "exists (select 1 from fresh where status <> 'claimed' or retry_count > 0)",
    subjects:
      () => `select 1 as place, ${kind("fresh")} as kind, fresh.task_id as id, fresh.name, fresh.tenant,
        case
          when fresh.status in ${ended} then case when past.status <> fresh.status then fresh.status end
          when past.status in ${ended} then 'retried'
          when fresh.parked = 6 and past.parked <> 6 then 'set_aside'
          when fresh.retry_count > past.retry_count or fresh.deaths > past.deaths then 'retried'
          when past.parked = 6 and fresh.parked <> 6 then 'resumed'
        end as change, fresh.status, ${noTurn}
        from fresh join past on past.task_id = fresh.task_id
        where fresh.status <> 'claimed' or fresh.retry_count > past.retry_count`,
  },
  task_delete: {
    on: "task",
    event: "delete",
    subjects: () => `select 1 as place, ${kind("past")} as kind, task_id as id, name, tenant,
        'deleted' as change, status, ${noTurn} from past where status not in ${ended}`,
  },
  session_insert: {
    on: "session",
    event: "insert",
    subjects: (
      schema,
    ) => `select 1 as place, 'session' as kind, session_id as id, agent as name, tenant,
        'created' as change, status, ${noTurn} from fresh
        union all
        select 2, 'session', session_id, agent, tenant, status, status, null, null from fresh
        where status <> 'active'
        union all ${begunTurns(schema, "true")}`,
  },
  session_update: {
    on: "session",
    event: "update",
    subjects: (
      schema,
    ) => `select 1 as place, 'session' as kind, fresh.session_id as id, fresh.agent as name,
        fresh.tenant, case fresh.status when 'active' then 'resumed' else fresh.status end as change,
        fresh.status, ${noTurn} from fresh join past on past.session_id = fresh.session_id
        where fresh.status <> past.status
        union all ${begunTurns(
          schema,
          `not exists (select 1 from past where past.session_id = fresh.session_id
            and past.turn_epoch = fresh.turn_epoch)`,
        )}`,
  },
  turn_insert: {
    on: "turn",
    event: "insert",
    subjects: (
      schema,
    ) => `select 1 as place, 'turn' as kind, ${turnId("fresh", "epoch")} as id, agent as name,
        (select tenant from ${schema}.session where session.session_id = fresh.session_id) as tenant,
        'created' as change, 'running' as status, epoch, attempt from fresh
        where not exists (select 1 from ${schema}.session
            where session.session_id = fresh.session_id and session.turn_epoch = fresh.epoch)
          and not exists (select 1 from ${schema}.turn earlier
            where earlier.session_id = fresh.session_id and earlier.epoch = fresh.epoch
              and earlier.attempt < fresh.attempt)
        union all
        select 1 + attempt, 'turn', ${turnId("fresh", "epoch")}, agent,
          (select tenant from ${schema}.session where session.session_id = fresh.session_id),
          case when outcome in ('released', 'lost') then 'retried'
            when outcome in ('stopped', 'dropped') then 'cancelled'
            when outcome = 'completed' then 'completed' else 'failed' end,
          outcome, epoch, attempt from fresh`,
  },
};

/** Turns of sessions that have begun, unless an ended attempt of one has told so already. */
function begunTurns(schema: string, isNew: string): string {
  return `select 3, 'turn', ${turnId("fresh", "turn_epoch")}, turn_agent, tenant, 'created', 'running',
          turn_epoch, 1 from fresh
        where turn_epoch is not null and ${isNew} and not exists (
          select 1 from ${schema}.turn where turn.session_id = fresh.session_id
            and turn.epoch = fresh.turn_epoch)`;
}

type RecorderOptions = {
  readonly schema: string;
  readonly name: RecorderName;
  readonly isOn: boolean;
};

/**
 * Makes or drops a trigger that is called once for each statement, with all rows that it has changed. It has
 * the rights of its owner, so that a role which may insert tasks needs no others.
 */
export function postgresRecorder({ schema, name, isOn }: RecorderOptions): string {
  const { on, event, unless, subjects } = recorders[name];
  const trigger = `record_${name}`;
  const limited = `perform set_config('lock_timeout', '${lockMs}', true);`;
  if (!isOn) {
    return `do $recorder$ begin
    ${limited}
    drop trigger if exists ${trigger} on ${schema}.${on};
    drop function if exists ${schema}.${trigger}();
  end $recorder$`;
  }
  const seen = [
    event === "delete" ? "" : "new table as fresh",
    event === "insert" ? "" : "old table as past",
  ];
  return `do $recorder$ begin
    ${limited}
    create or replace function ${schema}.${trigger}() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
    begin
      ${unless === undefined ? "" : `if not ${unless} then return null; end if;`}
      insert into ${schema}.change (mark, at, subjects)
      select ${mark}, ${now},
        json_agg(json_build_array(kind, id, name, tenant, change, status, epoch, attempt)
          order by id, place)::text
      from (${subjects(schema)}) subject
      where change is not null having count(*) > 0;
      return null;
    end $body$;
    create or replace trigger ${trigger} after ${event} on ${schema}.${on}
      referencing ${seen.join(" ").trim()} for each statement execute function ${schema}.${trigger}();
  end $recorder$`;
}
