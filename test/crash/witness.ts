import type { DatabaseSync } from "node:sqlite";
import { monotonicMs } from "./ledger.ts";

/** One committed change of a task's status or token. */
export type Transition = {
  /** The order of commits. */
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

/**
 * Triggers that note every change in the transaction that makes it, so that the checkers judge all
 * of what happened and not only how it ended.
 */
export function installWitness(db: DatabaseSync): void {
  db.exec(`
    create table witness (seq integer primary key, at integer, task text, old_status text,
      new_status text, old_token integer, new_token integer, old_pod text, new_pod text,
      deaths integer, failures integer, result text);
    create trigger witness_change after update of status, claim_token on flotilla_step_tracker
    begin
      insert into witness (at, task, old_status, new_status, old_token, new_token, old_pod, new_pod,
        deaths, failures, result)
      values (cast(unixepoch('subsec') * 1000 as integer), new.task_id, old.status, new.status,
        old.claim_token, new.claim_token, old.claimed_by, new.claimed_by, new.deaths,
        new.retry_count, new.result);
    end`);
}

export function readWitness(db: DatabaseSync): Transition[] {
  // The store notes wall time; on one machine the two clocks are a fixed distance apart.
  const aheadMs = Date.now() - monotonicMs();
  const rows = db.prepare("select * from witness order by seq").all() as Record<string, any>[];
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
