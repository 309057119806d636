import { FlotillaError } from "../../base/errors.ts";
import type { Claim } from "../rows.ts";
import type { Finish } from "../sql/finish.ts";

/** How long what a handler threw asks to wait, where it is a snooze. */
export function snoozeOf(thrown: unknown): number | undefined {
  if (!(thrown instanceof FlotillaError) || thrown.code !== "snoozed") return undefined;
  const asked = thrown.details?.["snoozeMs"];
  return typeof asked === "number" ? asked : undefined;
}

/** What the store should say of a task that waits, of its own accord, for its next run. */
export function snoozing(claim: Claim, snoozeMs: number, why: string): Finish {
  const detail = { delayMs: snoozeMs, times: claim.snoozes + 1, message: why };
  return {
    taskId: claim.taskId,
    token: claim.token,
    status: "pending",
    result: null,
    error: null,
    counted: 0,
    snoozed: 1,
    delayMs: snoozeMs,
    wake: claim.wake,
    event: { type: "snoozed", attempt: claim.failures + 1, detail: JSON.stringify(detail) },
  };
}
