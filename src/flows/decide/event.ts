import type { Json } from "../../base/json.ts";
import type { Random } from "../../base/random.ts";
import type { HistoryEvent, Intent, Run, RunError, State } from "./run.ts";
import type { Thrown } from "./thrown.ts";

/** A child as it stands when its parent looks. */
export type ChildState = { readonly taskId: string; readonly name: string } & (
  | { readonly status: "open" }
  | { readonly status: "completed"; readonly result: Json }
  | { readonly status: "failed"; readonly error: RunError }
  | { readonly status: "cancelled" }
  /** Its row isn't there any more. */
  | { readonly status: "gone" }
);

/** What has happened to a run on the pod that holds it. */
export type RunEvent =
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
      readonly children: readonly ChildState[];
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

/** A run to be started by another one. */
export type NewChild = {
  readonly flow: { readonly name: string };
  readonly input: unknown;
  readonly options: Readonly<Record<string, unknown>>;
};

/** What is to be done in the same transaction in which the decision is stored. */
export type RunEffect =
  /** Their place in the list makes their keys, so that they are the same if it is sent again. */
  | {
      readonly type: "start_children";
      readonly transition: string;
      readonly children: readonly NewChild[];
    }
  /** Those that haven't ended are asked to cancel. */
  | { readonly type: "cancel_children"; readonly transition: string }
  /** A signal is used once. */
  | { readonly type: "take_signal"; readonly signalId: string };

type StoredDecision = {
  /** What the row says from now on. Parts that didn't change are the same objects as before. */
  readonly run: Run;
  readonly events: readonly HistoryEvent[];
  readonly effects: readonly RunEffect[];
};

/** What can't be read is kept as it is, out of the way, and shown to people. A higher version may try again. */
export type SetAside = Extract<HistoryEvent, { type: "set_aside" }>;

/** What is to become of a run. All but `ignore` and `refuse` are one write, fenced by the claim. */
export type RunDecision =
  /** Stored, and the claim goes on to what is next. */
  | ({ readonly type: "commit" } & StoredDecision)
  /**
   * Given back until then, or until it is woken where there is no time. As with `retry`, it is stored
   * only if the row's `wake` is still the one that was seen; else the caller looks and decides again.
   */
  | ({ readonly type: "park"; readonly untilMs: number | null } & StoredDecision)
  /** Given back, one failed attempt richer. */
  | ({ readonly type: "retry"; readonly untilMs: number } & StoredDecision)
  | ({
      readonly type: "finish";
      readonly status: Intent["type"];
      readonly result: Json;
      readonly error: RunError | null;
    } & StoredDecision)
  /** Given back as it was, uncounted. */
  | { readonly type: "release" }
  /** Nothing of the run is changed but that nobody claims it. It is an event as it is. */
  | SetAside
  /** A later version has advanced it: this one mustn't touch it. */
  | { readonly type: "refuse"; readonly version: number }
  /** Nothing changes: it has ended, or it is ending already. */
  | { readonly type: "ignore"; readonly why: "ended" | "ending" };

/** The key of a child, by which it is one run however often it is sent. */
export function childKey(runId: string, transition: string, place: number): string {
  return `${childKeyPrefix(runId, transition)}${place}`;
}

/** What the keys of all children of a transition begin with. */
export function childKeyPrefix(runId: string, transition: string): string {
  return `${runId}/${transition}/`;
}
