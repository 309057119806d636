import type { Row } from "../../store/database.ts";
import { now, returning, sql, type Statement, table } from "../../store/sql.ts";
import type { LogLife } from "../../sessions/log/jetstream/streams.ts";
import type { Copier } from "../sql.ts";

const promotions = table("promotion");

/** Beside the row of a store that is filled from another one. */
const rowId = 2;

/** Where logs go. */
export type MoveTarget = "nats" | "sql";

/** A promotion of logs, to streams or back, as the store has it. */
export type LogMove = {
  readonly moveId: string;
  readonly to: MoveTarget;
  readonly state: "copying" | "done";
  readonly holder: string | null;
  readonly host: string | null;
  readonly heldMs: number;
  /** The lives that logs have on the streams that are made for them. */
  readonly lives: readonly LogLife[];
};

const columns = sql`promotion_id, source, state, holder, host, progress, held_until - ${now} as held_ms`;

export function readMove(): Statement {
  return sql`select ${columns} from ${promotions} where id = ${rowId}`;
}

export function toMove(row: Row): LogMove {
  const { lives = [] } = JSON.parse(row["progress"] as string) as { lives?: readonly LogLife[] };
  return {
    moveId: row["promotion_id"],
    to: row["source"] === "sql" ? "nats" : "sql",
    state: row["state"],
    holder: row["holder"],
    host: row["host"],
    heldMs: Number(row["held_ms"]),
    lives,
  };
}

/**
 * Begins a promotion of logs, unless one is under way. One to the other place, which no process holds, has
 * changed nothing yet: its caller has looked.
 */
export function beginMove(given: {
  moveId: string;
  clusterId: string;
  to: MoveTarget;
  logs: number;
}): Statement {
  const { moveId, clusterId, to, logs } = given;
  const source = to === "nats" ? "sql" : "nats";
  return sql`
    insert into ${promotions} as known (id, promotion_id, source_id, source, logs)
    values (${rowId}, ${moveId}, ${clusterId}, ${source}, ${logs})
    on conflict (id) do update
    set promotion_id = excluded.promotion_id, source_id = excluded.source_id,
      source = excluded.source, logs = excluded.logs, state = 'copying', holder = null,
      held_until = 0, progress = '{}', began_at = excluded.began_at,
      last_update = excluded.last_update
    where known.state = 'done'
      or (known.source <> excluded.source and (known.holder is null or known.held_until < ${now}))`;
}

/** Takes the promotion of logs that is under way, if no other process holds it, or its holder is `gone`. */
export function takeMove(
  { holder, host }: Copier,
  { forMs, gone }: { forMs: number; gone: string | null },
): Statement {
  return sql`
    update ${promotions}
    set holder = ${holder}, host = ${host}, held_until = ${now} + ${forMs}, last_update = ${now}
    where id = ${rowId} and state = 'copying'
      and (holder is null or holder = ${holder} or holder = ${gone} or held_until < ${now})
    ${returning(columns, { after: sql`${readMove()} and holder = ${holder}` })}`;
}

/** Holds it for longer, and stores the lives that were drawn, if they are given. */
export function keepMove(
  holder: string,
  { forMs, lives }: { forMs: number; lives?: readonly LogLife[] },
): Statement {
  const progress = lives ? sql`, progress = ${JSON.stringify({ lives })}` : sql``;
  return sql`
    update ${promotions} set held_until = ${now} + ${forMs}, last_update = ${now} ${progress}
    where id = ${rowId} and ${isOwn(holder)}
    ${returning(sql`id`, {
      after: sql`select id from ${promotions} where id = ${rowId} and ${isOwn(holder)}`,
    })}`;
}

const isOwn = (holder: string) => sql`holder = ${holder} and state = 'copying'`;

/** True while a process holds the promotion of logs. */
export function isMoveHeld(holder: string): Statement {
  return sql`exists (select 1 from ${promotions} where id = ${rowId} and ${isOwn(holder)})`;
}

export function releaseMove(holder: string): Statement {
  return sql`
    update ${promotions} set holder = null, held_until = 0, last_update = ${now}
    where id = ${rowId} and ${isOwn(holder)}`;
}

export function finishMove(holder: string): Statement {
  return sql`
    update ${promotions} set state = 'done', held_until = 0, last_update = ${now}
    where id = ${rowId} and holder = ${holder}`;
}
