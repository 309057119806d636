import { now, seizePod, sql, type Statement, table } from "../../store/sql.ts";

const pauses = table("step_pause");
const pods = table("pod_health");

/** Stands for every name. */
export const everything = "*";

/**
 * Gives out a number to pause a name with. It is higher than any that was given before, so whatever was
 * sent with those, and isn't stored by then, never undoes what is done with this one.
 */
export function numberToPause(name: string): Statement[] {
  return [
    sql`
      insert into ${pauses} (name, paused, given) values (${name}, 0, 1)
      on conflict (name) do update set given = ${pauses}.given + 1`,
    givenOf(name),
  ];
}

/** The same to resume it; none where it was never paused, nor is about to be. */
export function numberToResume(name: string): Statement[] {
  return [sql`update ${pauses} set given = given + 1 where name = ${name}`, givenOf(name)];
}

function givenOf(name: string): Statement {
  return sql`select given from ${pauses} where name = ${name}`;
}

/**
 * Pauses as pods see them. Each pod's row has a number that changes with every pause, and a claim says
 * which number it knows: one that doesn't know of a pause takes nothing. So a claim needn't look for
 * pauses, and what it asks for are the names that aren't paused.
 */
export function putPause(name: string, reason: string | null, number: number): Statement {
  return sql`
    update ${pauses}
    set at = case when paused = 1 then at else ${now} end,
      reason = case when paused = 1 then reason else ${reason} end,
      paused = 1, done = ${number}
    where name = ${name} and done < ${number}`;
}

export function dropPause(name: string, number: number): Statement {
  return sql`
    update ${pauses} set paused = 0, reason = null, done = ${number}
    where name = ${name} and done < ${number}`;
}

export function listPauses(): Statement {
  return sql`select name, at, reason from ${pauses} where paused = 1 order by name`;
}

/** Lets every pod know that there is something new. */
export function tellPods(): Statement {
  return sql`update ${pods} set pauses = pauses + 1`;
}

export function podIds(): Statement {
  return sql`select pod_id from ${pods} order by pod_id`;
}

/**
 * Waits for a claim of this pod that is under way, and keeps those out that began before they could know:
 * they wait for this, and find another number. One pod to a transaction, because whoever waits for one
 * pod's claim must not hold the rows of others, which they beat on.
 */
export function tellPod(podId: string): Statement[] {
  return [
    sql`select 1 from ${pods} where pod_id = ${podId} ${seizePod}`,
    sql`update ${pods} set pauses = pauses + 1 where pod_id = ${podId}`,
  ];
}

/** What is paused, with the number under which this pod's claims may say that they know it. */
export function seePauses(podId: string): Statement {
  return sql`
    select pod.pauses, pause.name from ${pods} pod left join ${pauses} pause on pause.paused = 1
    where pod.pod_id = ${podId}`;
}
