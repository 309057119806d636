import type { Database, Row } from "../../store/database.ts";
import type { Running, StopReason } from "./attempt.ts";
import { lookAt } from "../sql/finish.ts";

/** What became, in the store, of the tasks that a pod runs and of the one that it drains for. */
export type HeldNews = {
  readonly stops: readonly { readonly run: Running; readonly reason: StopReason }[];
  /** Whether the task that was reserved is still meant for this pod. */
  readonly stillMeant: boolean;
};

/** Learns of cancels, and of tasks that went to other pods. */
export async function lookAtHeld(
  database: Database,
  { runs, reserved, podId }: { runs: readonly Running[]; reserved?: string; podId: string },
): Promise<HeldNews> {
  const ids = runs.map((run) => run.claim.taskId).concat(reserved ?? []);
  if (ids.length === 0) return { stops: [], stillMeant: false };
  const rows = await database.read(lookAt(ids));
  const seen = new Map(rows.map((row) => [row["task_id"] as string, row]));
  const stops: { run: Running; reason: StopReason }[] = [];
  for (const run of runs) {
    if (run.ended || run.stopped) continue;
    const row = seen.get(run.claim.taskId);
    if (!row || Number(row["claim_token"]) !== run.claim.token) {
      stops.push({ run, reason: "claim_lost" });
    } else if (Number(row["cancel_requested"]) === 1 && !run.cancelSeen) {
      // Whoever writes with this wake says that it knows of the cancel.
      run.wake = Number(row["wake"]);
      run.cancelSeen = true;
      stops.push({ run, reason: "cancel" });
    }
  }
  return { stops, stillMeant: reserved !== undefined && isMeant(seen.get(reserved), podId) };
}

function isMeant(row: Row | undefined, podId: string): boolean {
  return row?.["status"] === "pending" && row["claimed_by"] === podId;
}
