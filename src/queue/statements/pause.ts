import { now, seizePod, sql, type Statement, table } from "../../store/sql.ts";

const pauses = table("step_pause");
const pods = table("pod_health");

/** Stands for every name. */
export const everything = "*";

/**
 * Pauses as pods see them. Each pod's row has a number that changes with every pause, and a claim says
 * which number it knows: one that doesn't know of a pause takes nothing. So a claim needn't look for
 * pauses, and what it asks for are the names that aren't paused.
 */
export function putPause(name: string, reason: string | null): Statement {
  return sql`
    insert into ${pauses} (name, at, reason) values (${name}, ${now}, ${reason})
    on conflict (name) do nothing`;
}

export function dropPause(name: string): Statement {
  return sql`delete from ${pauses} where name = ${name}`;
}

export function listPauses(): Statement {
  return sql`select name, at, reason from ${pauses} order by name`;
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
    select pod.pauses, pause.name from ${pods} pod left join ${pauses} pause on true
    where pod.pod_id = ${podId}`;
}
