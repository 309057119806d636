import type { Json } from "../../base/json.ts";
import type { TaskError } from "../../tasks/rows.ts";
import type { HistoryEvent } from "./history.ts";

/** What transitions have returned so far, merged, as it comes from the store. */
export type State = Readonly<Record<string, Json>>;

/** Why a run failed, as it is stored. */
export type RunError = TaskError & {
  /** Of `unrecoverable`: whose fault it is. */
  readonly by?: "system" | "user";
};

/** The ending that a run is led to. It is set before the finalizers run, and they don't change it. */
export type Intent =
  /** Without `output`, the result is the state. */
  | { readonly type: "completed"; readonly output?: Json }
  | { readonly type: "failed"; readonly error: RunError }
  | { readonly type: "cancelled"; readonly reason: string | null };

/** What a parked run waits for. A retry isn't among them: it has only a time. */
export type Waiting = { readonly sinceMs: number } & (
  | { readonly for: "sleep"; readonly untilMs: number }
  /** Null where it waits for as long as it takes. */
  | { readonly for: "signal"; readonly untilMs: number | null }
  | { readonly for: "children" }
);

/** Where a run stands. All of it but `unnoted` is in its row. */
export type Run = {
  /** The highest version of the flow that has advanced it; 0 before any has. */
  readonly version: number;
  /** The transition or finalizer that is next; `atEnd` behind the last; null once the run has ended. */
  readonly cursor: string | null;
  readonly state: State;
  /** Failed attempts of what is at the cursor. */
  readonly failures: number;
  /** Pods that died while they ran what is at the cursor. */
  readonly deaths: number;
  /** Null for as long as transitions run. */
  readonly intent: Intent | null;
  readonly waiting: Waiting | null;
  /** What was at the cursor when it failed or was cancelled: there it goes on if it is started over. */
  readonly stoppedAt: string | null;
  /** What happened to it when it was read, to be noted with the next decision. */
  readonly unnoted: readonly HistoryEvent[];
};

/** The cursor of a run that has nothing left but to finish. No transition can have this name. */
export const atEnd = "$end";

/** What a run that completes gives. Null is an output too. */
export function outputOf(intent: Intent & { type: "completed" }, state: State): Json {
  return "output" in intent ? intent.output : state;
}
