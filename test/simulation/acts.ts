/**
 * Acts and their entries in the audit: a commit that does what an operator has asked for stores one entry,
 * and no other commit stores any, whatever is sent twice, lands late or is answered by nothing.
 */
import type { Noted } from "./audit.ts";
import type { Intent } from "./kinds.ts";
import type { World } from "./world.ts";

type Judge = (intent: Intent, noted: readonly Noted[]) => void;

export function createActChecker({ violate, count }: World): Judge {
  return (intent, noted) => {
    const entries = noted.filter(({ table, before }) => table === "audit" && before === undefined);
    const isAct = noted.some((each) => isActOf(intent, each));
    if (isAct) count(`audit: ${intent.kind}`);
    if (entries.length === (isAct ? 1 : 0)) return;
    const what = isAct ? "which is an act" : "which is none";
    violate("audit", `${intent.kind}, ${what}, has stored ${entries.length} entries`);
  };
}

/** Whether a row was written as an act of this kind writes it. */
function isActOf({ kind }: Intent, { table, before, after }: Noted): boolean {
  const isNew = before === undefined && after !== undefined;
  if (table === "task_event" && isNew) {
    const type = after["type"] as string;
    if (kind === "cancel") return type === "cancel_requested" || type === "given_up";
    return kind === "retry" && type === "retried";
  }
  if (table === "task_signal") return kind === "signal" && isNew;
  if (table === "task_pause") return before !== undefined && before["paused"] !== after?.["paused"];
  if (table === "bulk") {
    return isNew || (kind === "bulk_stop" && before?.["state"] !== after?.["state"]);
  }
  if (table !== "redrive") return false;
  return isNew || (kind === "redrive_cancel" && before?.["state"] !== after?.["state"]);
}
