import type { Json } from "../base/json.ts";
import { type TaskEvent, toEvent } from "../tasks/tasks.ts";
import type { Row } from "../store/database.ts";

/** One thing that happened to a run, as it is stored. */
export type HistoryEntry = TaskEvent & {
  /** The transition or finalizer that it is about. */
  readonly transition: string | null;
  /** When the attempt began that it tells the end of. */
  readonly startedAtMs: number | null;
};

export function toHistoryEntry(row: Row): HistoryEntry {
  const event = toEvent(row);
  const { transition, startedAtMs } = (event.detail ?? {}) as { readonly [name: string]: Json };
  return {
    ...event,
    transition: typeof transition === "string" ? transition : null,
    startedAtMs: typeof startedAtMs === "number" ? startedAtMs : null,
  };
}
