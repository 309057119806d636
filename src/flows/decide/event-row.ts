import type { HistoryEvent } from "./history.ts";

/** An event as the store has it, without its number, its time and its pod. */
export type EventRow = {
  readonly type: string;
  readonly attempt: number | null;
  /** The rest of it, as JSON. */
  readonly detail: string | null;
};

const types: ReadonlySet<string> = new Set<HistoryEvent["type"]>([
  "start",
  "move",
  "complete",
  "error",
  "park",
  "cancel",
  "finish",
  "set_aside",
  "given_up",
  "resume",
  "pod_died",
  "retried",
  "redriven",
]);

export function toEventRow(event: HistoryEvent): EventRow {
  const { type, ...rest } = event;
  if (!("attempt" in rest)) return { type, attempt: null, detail: JSON.stringify(rest) };
  const { attempt, ...detail } = rest;
  return { type, attempt, detail: JSON.stringify(detail) };
}

/** A run's row has other events too, of tasks; those say nothing about where the run stands. */
export function toHistory(rows: readonly EventRow[]): HistoryEvent[] {
  return rows.flatMap(({ type, attempt, detail }) => {
    if (!types.has(type)) return [];
    // Those who note these do so for tasks too, and count attempts as those do.
    if (type === "pod_died" || type === "retried" || type === "redriven") return [{ type }];
    if (type === "given_up") return [{ type }];
    const rest = JSON.parse(detail ?? "{}") as object;
    return [{ type, ...(attempt !== null && { attempt }), ...rest } as HistoryEvent];
  });
}
