/**
 * Which writes a fence refused, found by comparing what a write asked for with what it met. A suite
 * in which some fence never refused anything has shown nothing about it.
 */
import { readTaskStates } from "../../src/tasks/sql/finish.ts";
import type { Database, Row } from "../../src/store/database.ts";
import { sql, table } from "../../src/store/sql.ts";
import type { Change } from "./audit.ts";
import type { Intent } from "./kinds.ts";
import type { BulksSeen } from "./bulks.ts";
import type { RedrivesSeen } from "./redrives.ts";
import type { World } from "./world.ts";

/** What a write was about to meet. */
export type Seen = {
  readonly tasks: ReadonlyMap<string, Row>;
  readonly pods: ReadonlyMap<string, Row>;
  readonly schedules?: ReadonlyMap<string, Row>;
  readonly pauses?: ReadonlyMap<string, Row>;
  readonly redrives?: RedrivesSeen;
  readonly bulks?: BulksSeen;
};

export const nothingSeen: Seen = { tasks: new Map(), pods: new Map() };

export async function lookBefore(database: Database, who: string, intent: Intent): Promise<Seen> {
  if (["finish", "progress", "recover"].includes(intent.kind)) {
    const ids = intent.rows.map((row) => row["task_id"] as string);
    const found = await database.read(readTaskStates(ids));
    const beats =
      intent.kind === "recover"
        ? await database.read(sql`select pod_id, beat from ${table("pod")}`)
        : [];
    return { tasks: byId(found, "task_id"), pods: byId(beats, "pod_id") };
  }
  if (intent.kind === "fire") {
    const found = await database.read(sql`select schedule_id, next_at from ${table("schedule")}`);
    return { ...nothingSeen, schedules: byId(found, "schedule_id") };
  }
  if (intent.kind === "claim" || intent.carried) {
    const floors = await database.read(
      sql`select pod_id, claim_floor, pauses from ${table("pod")} where pod_id = ${who}`,
    );
    return { tasks: new Map(), pods: byId(floors, "pod_id") };
  }
  if (intent.kind === "pause" || intent.kind === "resume") {
    const found = await database.read(sql`select name, done from ${table("task_pause")}`);
    return { ...nothingSeen, pauses: byId(found, "name") };
  }
  return nothingSeen;
}

function byId(rows: readonly Row[], column: string): Map<string, Row> {
  return new Map(rows.map((row) => [row[column] as string, row]));
}

export function countFences(
  world: World,
  who: string,
  intent: Intent,
  seen: Seen,
  changes: readonly Change[],
): void {
  const changed = new Set(changes.map((change) => change.taskId));
  const claimRefused = (what: string, { call, number }: Pick<Intent, "call" | "number">) => {
    const pauses = seen.pods.get(who)?.["pauses"];
    if (pauses !== undefined && Number(pauses) !== number) world.count(`fence: ${what}, pauses`);
    const floor = Number(seen.pods.get(who)?.["claim_floor"] ?? 0);
    if (floor >= (call ?? Infinity)) world.count(`fence: ${what}, floor`);
  };
  if (intent.kind === "enqueue") {
    if (intent.carried) {
      claimRefused("carried claim", intent.carried);
      const isClaimed = changes.some(({ after }) => after?.status === "claimed");
      world.count(`hand-over: ${isClaimed ? "claimed" : "nothing claimed"}`);
    }
    for (const row of intent.rows) {
      if (changed.has(row["task_id"] as string)) continue;
      world.count(row["unique_key"] === null ? "fence: enqueue, id" : "fence: enqueue, key or id");
    }
    return;
  }
  if (intent.kind === "fire") {
    for (const row of intent.rows) {
      const met = seen.schedules?.get(row["schedule_id"] as string);
      if (met?.["next_at"] !== row["seen_at"]) world.count("fence: fire, next time");
    }
    return;
  }
  if (intent.kind === "claim") return claimRefused("claim", intent);
  if (intent.kind === "pause" || intent.kind === "resume") {
    const done = Number(seen.pauses?.get(intent.subject!)?.["done"]);
    if (done > intent.number!) world.count(`fence: ${intent.kind}, number`);
    return;
  }
  if (intent.kind.startsWith("bulk")) return;
  if (intent.kind.startsWith("redrive")) {
    const met = seen.redrives?.redrives.find((row) => row["redrive_id"] === intent.subject);
    if (met && met["revision"] !== intent.number) world.count(`fence: ${intent.kind}, revision`);
    return;
  }
  for (const row of intent.rows) {
    const met = seen.tasks.get(row["task_id"] as string);
    if (!met || changed.has(row["task_id"] as string)) continue;
    const refused = (fence: string) => world.count(`fence: ${intent.kind}, ${fence}`);
    const open = intent.kind === "finish" ? ["claimed", "pending"] : ["claimed"];
    if (met["claim_token"] !== row["token"]) refused("token");
    else if (!open.includes(met["status"] as string)) refused("status");
    else if (row["wake"] !== undefined && row["wake"] !== null && met["wake"] !== row["wake"]) {
      refused("wake");
    } else if (intent.kind === "finish" && Number(met["dependents"]) > 0) refused("awaited");
    else if (intent.kind === "recover") {
      const beat = seen.pods.get(row["pod_id"] as string)?.["beat"];
      if (beat !== row["beat"]) refused("beat");
    }
  }
}
