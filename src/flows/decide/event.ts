import type { Random } from "../../base/random.ts";
import type { Json } from "../../base/json.ts";
import type { NewChild } from "./decision.ts";
import type { RunError, State } from "./run.ts";
import type { Thrown } from "./thrown.ts";

/** A child as it stands when its parent looks. */
export type ChildSeen = { readonly taskId: string; readonly name: string } & (
  | { readonly status: "open" }
  | { readonly status: "completed"; readonly result: Json }
  | { readonly status: "failed"; readonly error: RunError }
  | { readonly status: "cancelled" }
  /** Its row isn't there any more. */
  | { readonly status: "gone" }
);

/** What has happened to a run on the pod that holds it. */
export type Happened =
  /** `output` belongs to the last transition of a flow whose output has a schema. */
  | { readonly type: "returned"; readonly set: State | null; readonly output?: Json }
  | { readonly type: "handed_off"; readonly output: Json }
  | { readonly type: "sleep_asked"; readonly ms: number }
  /** `startedBy` is the name by which a run that is started over has started them before. */
  | {
      readonly type: "children_asked";
      readonly children: readonly NewChild[];
      readonly startedBy?: string;
    }
  /** `startedBy` is the name that the transition had when it started them. */
  | {
      readonly type: "children_seen";
      readonly children: readonly ChildSeen[];
      readonly startedBy: string;
    }
  | {
      readonly type: "signal_seen";
      readonly signal: { readonly signalId: string; readonly payload: Json } | null;
    }
  /** A signal came that its schema refuses. It is dropped, and the run waits on. */
  | { readonly type: "signal_refused"; readonly signalId: string; readonly message: string }
  /** It was claimed while it slept. */
  | { readonly type: "woken" }
  /** A finalizer returned. */
  | { readonly type: "finalized" }
  /** No transition was left to run, and this is what the state makes as an output. */
  | { readonly type: "concluded"; readonly output?: Json }
  | { readonly type: "threw"; readonly thrown: Thrown }
  | { readonly type: "timed_out"; readonly timeoutMs: number }
  | { readonly type: "cancel_asked"; readonly reason: string | null }
  /** The pod stops, or has lost its patience: no fault of the run. */
  | { readonly type: "interrupted" }
  /** What it was to run after hasn't completed. */
  | { readonly type: "unmet"; readonly error: RunError }
  /** Too many pods have died while they ran what is at the cursor. */
  | { readonly type: "poisoned" };

export type Now = {
  /** The store's time, as the claim gave it and this pod's monotonic clock has carried it on. */
  readonly nowMs: number;
  /** When the attempt began, in the same time. */
  readonly startedAtMs: number;
  readonly random: Random;
  /** Whether somebody has asked for the run to be cancelled. */
  readonly cancelRequested: boolean;
};
