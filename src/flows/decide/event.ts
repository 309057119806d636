import type { Json } from "../../base/json.ts";
import type { Random } from "../../base/random.ts";
import type { HistoryEvent, Intent, Run, RunError, State } from "./run.ts";
import type { Thrown } from "./thrown.ts";

/** The state of a child when its parent reads it. */
export type ChildState = { readonly taskId: string; readonly name: string } & (
  | { readonly status: "open" }
  | { readonly status: "completed"; readonly result: Json }
  | { readonly status: "failed"; readonly error: RunError }
  | { readonly status: "cancelled" }
  /** Its row was deleted. */
  | { readonly status: "gone" }
);

/** An event of a run on the pod that has claimed it. */
export type RunEvent =
  /** `output` belongs to the last transition of a flow whose output has a schema. */
  | { readonly type: "returned"; readonly set: State | null; readonly output?: Json }
  | { readonly type: "handed_off"; readonly output: Json }
  | { readonly type: "sleep_requested"; readonly ms: number }
  /** `startedBy`: in a run that is started over, the transition's name when it first started them. */
  | {
      readonly type: "children_requested";
      readonly children: readonly NewChild[];
      readonly startedBy?: string;
    }
  /** `startedBy`: the transition's name when it started them. */
  | {
      readonly type: "children_seen";
      readonly children: readonly ChildState[];
      readonly startedBy: string;
    }
  | {
      readonly type: "signal_seen";
      readonly signal: { readonly signalId: string; readonly payload: Json } | null;
    }
  /** The schema refuses a signal. It is dropped, and the run keeps waiting. */
  | { readonly type: "signal_refused"; readonly signalId: string; readonly message: string }
  /** The run was claimed during a sleep. */
  | { readonly type: "woken" }
  /** A finalizer returned. */
  | { readonly type: "finalized" }
  /** No transition is left, and the state was checked: this is the output. */
  | { readonly type: "concluded"; readonly output?: Json }
  | { readonly type: "threw"; readonly thrown: Thrown }
  | { readonly type: "timed_out"; readonly timeoutMs: number }
  | { readonly type: "cancel_requested"; readonly reason: string | null }
  /** The pod stops, has lost the claim, or couldn't read the store: not the run's fault. */
  | { readonly type: "interrupted" }
  /** A stored step of the transition can't answer. */
  | { readonly type: "step_changed"; readonly message: string }
  /** A dependency didn't complete. */
  | { readonly type: "unmet"; readonly error: RunError }
  /** Too many pods have died while they ran the part at the cursor. */
  | { readonly type: "poisoned" };

export type Now = {
  /** The store's time: the claim's time plus what has passed on this pod's monotonic clock. */
  readonly nowMs: number;
  /** When the attempt began, in the store's time. */
  readonly startedAtMs: number;
  readonly random: Random;
  /** Whether a caller has requested to cancel the run. */
  readonly cancelRequested: boolean;
};

/** A run that another run starts. */
export type NewChild = {
  readonly flow: { readonly name: string };
  readonly input: unknown;
  readonly options: Readonly<Record<string, unknown>>;
};

/** Effects that are stored in the same transaction as the decision. */
export type RunEffect =
  /** Keys are made of positions in the list, so that the same write again starts no more runs. */
  | {
      readonly type: "start_children";
      readonly transition: string;
      readonly children: readonly NewChild[];
    }
  /** Requests to cancel the children that haven't ended. */
  | { readonly type: "cancel_children"; readonly transition: string }
  /** A signal is used once. */
  | { readonly type: "take_signal"; readonly signalId: string };

type StoredDecision = {
  /** The run as stored from now on. Fields that didn't change are the same objects as before. */
  readonly run: Run;
  readonly events: readonly HistoryEvent[];
  readonly effects: readonly RunEffect[];
};

/** A run that can't be read is left unchanged, isn't claimed, and is listed. A higher version retries it. */
export type SetAside = Extract<HistoryEvent, { type: "set_aside" }>;

/** A decision about a run. All but `ignore` and `refuse` are one write, fenced by the claim. */
export type RunDecision =
  /** Stored, and the claim continues with the next step. */
  | ({ readonly type: "commit" } & StoredDecision)
  /**
   * Released until then, or until it is woken where there is no time. As with `retry`, it is stored only
   * if the row's `wake` hasn't changed since it was read; else the driver reads and decides again.
   */
  | ({ readonly type: "park"; readonly untilMs: number | null } & StoredDecision)
  /** Released, with one more failed attempt. */
  | ({ readonly type: "retry"; readonly untilMs: number } & StoredDecision)
  | ({
      readonly type: "finish";
      readonly status: Intent["type"];
      readonly result: Json;
      readonly error: RunError | null;
    } & StoredDecision)
  /** Released unchanged, without counting an attempt. */
  | { readonly type: "release" }
  /** The run isn't changed, but no pod claims it any more. The decision is its own event. */
  | SetAside
  /** A later version has advanced the run: this one mustn't. */
  | { readonly type: "refuse"; readonly version: number }
  /** Nothing changes: the run has ended, or is ending already. */
  | { readonly type: "ignore"; readonly why: "ended" | "ending" };

/** The unique key of a child, by which it is started once however often the write is sent. */
export function childKey(runId: string, transition: string, place: number): string {
  return `${childKeyPrefix(runId, transition)}${place}`;
}

/** The common prefix of the keys of a transition's children. */
export function childKeyPrefix(runId: string, transition: string): string {
  return `${runId}/${transition}/`;
}
