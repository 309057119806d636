import type { RecorderName } from "../sql.ts";

/** Comparisons, because SQLite makes a table of a list of three, anew for each row that a trigger is called for. */
const isEnded = (row: string) =>
  `(${["completed", "failed", "cancelled"].map((each) => `${row}.status = '${each}'`).join(" or ")})`;
const kind = (row: string) => `case when ${row}.flow_version is null then 'task' else 'run' end`;

const taskChange = `case
      when ${isEnded("new")} then case when old.status <> new.status then new.status end
      when ${isEnded("old")} then 'retried'
      when new.parked = 6 and old.parked <> 6 then 'set_aside'
      when new.retry_count > old.retry_count or new.deaths > old.deaths then 'retried'
      when old.parked = 6 and new.parked <> 6 then 'resumed' end`;

type Subject = {
  readonly kind: string;
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly change: string;
  readonly status: string;
  readonly epoch?: string;
  readonly attempt?: string;
  /** Where it isn't always recorded. */
  readonly when?: string;
};

type Recorder = {
  /** The event with its columns, and the table. */
  readonly event: string;
  /** The condition on the row. */
  readonly when?: string;
  readonly subjects: readonly Subject[];
};

const ofTask = (row: "new" | "old") =>
  ({
    kind: kind(row),
    id: `${row}.task_id`,
    name: `${row}.name`,
    tenant: `${row}.tenant`,
    status: `${row}.status`,
  }) as const;

const ofSession = {
  kind: "'session'",
  id: "new.session_id",
  name: "new.agent",
  tenant: "new.tenant",
  status: "new.status",
} as const;

/** A turn that has begun, unless an ended attempt of it has told so already. */
const begunTurn = {
  kind: "'turn'",
  id: "new.session_id || '/' || new.turn_epoch",
  name: "new.turn_agent",
  tenant: "new.tenant",
  change: "'created'",
  status: "'running'",
  epoch: "new.turn_epoch",
  attempt: "1",
} as const;
const isUntold = `new.turn_epoch is not null and not exists (
      select 1 from flotilla_turn turn
      where turn.session_id = new.session_id and turn.epoch = new.turn_epoch)`;

const ofTurn = {
  kind: "'turn'",
  id: "new.session_id || '/' || new.epoch",
  name: "new.agent",
  tenant: `(select tenant from flotilla_session session where session.session_id = new.session_id)`,
  epoch: "new.epoch",
  attempt: "new.attempt",
} as const;

const recorders: Readonly<Record<RecorderName, Recorder>> = {
  task_insert: {
    event: "insert on flotilla_task",
    subjects: [{ ...ofTask("new"), change: "'created'" }],
  },
  task_update: {
    // Nothing else of a task makes a change, so that no other update pays for it.
    event: "update of status, parked, retry_count, deaths on flotilla_task",
    when: `(new.status <> 'claimed' or new.retry_count > old.retry_count) and ${taskChange} is not null`,
    subjects: [{ ...ofTask("new"), change: taskChange }],
  },
  task_delete: {
    event: "delete on flotilla_task",
    when: `not ${isEnded("old")}`,
    subjects: [{ ...ofTask("old"), change: "'deleted'" }],
  },
  session_insert: {
    event: "insert on flotilla_session",
    subjects: [
      { ...ofSession, change: "'created'" },
      { ...ofSession, change: "new.status", when: "new.status <> 'active'" },
      { ...begunTurn, when: isUntold },
    ],
  },
  session_update: {
    event: "update of status, turn_epoch on flotilla_session",
    when: "new.status <> old.status or new.turn_epoch is not old.turn_epoch",
    subjects: [
      {
        ...ofSession,
        change: "case new.status when 'active' then 'resumed' else new.status end",
        when: "new.status <> old.status",
      },
      { ...begunTurn, when: `new.turn_epoch is not old.turn_epoch and ${isUntold}` },
    ],
  },
  turn_insert: {
    event: "insert on flotilla_turn",
    subjects: [
      {
        ...ofTurn,
        change: "'created'",
        status: "'running'",
        when: `not exists (select 1 from flotilla_session session
          where session.session_id = new.session_id and session.turn_epoch = new.epoch)
        and not exists (select 1 from flotilla_turn earlier
          where earlier.session_id = new.session_id and earlier.epoch = new.epoch
            and earlier.attempt < new.attempt)`,
      },
      {
        ...ofTurn,
        change: `case when new.outcome in ('released', 'lost') then 'retried'
          when new.outcome in ('stopped', 'dropped') then 'cancelled'
          when new.outcome = 'completed' then 'completed' else 'failed' end`,
        status: "new.outcome",
      },
    ],
  },
};

type RecorderOptions = {
  readonly name: RecorderName;
  readonly isOn: boolean;
  readonly now: string;
};

/**
 * Makes or drops a trigger. SQLite calls it for each row and not for each statement, so that here a row of
 * `change` has one subject, or that and its turn: its rows cost little, and there is no server between.
 */
export function sqliteRecorder({ name, isOn, now }: RecorderOptions): string {
  const trigger = `flotilla_record_${name}`;
  if (!isOn) return `drop trigger if exists ${trigger}`;
  const { event, when, subjects } = recorders[name];
  const inserts = subjects.map((subject) => {
    const { id, tenant, change, status, epoch = "null", attempt = "null" } = subject;
    const fields = [subject.kind, id, subject.name, tenant, change, status, epoch, attempt];
    return `insert into flotilla_change (at, subjects)
    select ${now}, json_array(json_array(${fields.join(", ")}))${
      subject.when === undefined ? "" : ` where ${subject.when}`
    };`;
  });
  return `create trigger if not exists ${trigger} after ${event}
  ${when === undefined ? "" : `when ${when}`}
  begin
    ${inserts.join("\n    ")}
  end`;
}
