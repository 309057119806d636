import type { Json } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import type { RunError } from "../decide/run.ts";

/** What every function of a flow gets. */
export type RunContext<Input, Env> = {
  readonly input: Input;
  /** What the initializers returned, merged. It is made anew wherever the run goes on. */
  readonly env: Env;
  readonly runId: string;
  readonly flow: string;
  readonly version: number;
  /** The name of the transition or finalizer. */
  readonly transition: string;
  /** 1 on the first try of this transition. */
  readonly attempt: number;
  /** Rises with every claim; give it to systems that can refuse an older one. */
  readonly token: number;
  /** Fires on timeout, cancel, shutdown, and when another pod has the run. */
  readonly signal: AbortSignal;
  /** Shows others how far it is. The newest value wins. */
  readonly progress: (value: Json) => void;
  /** What was saved last, by this attempt or one before it; null where nothing was. */
  readonly lastProgress: () => Promise<Json>;
  readonly log: Logger;
};

/** What a transition gets. */
export type TransitionContext<Input, Env, State, Handoff> = RunContext<Input, Env> & {
  /** What earlier transitions returned, as it comes from the store. */
  readonly state: State;
  /** `return handoff(output)` ends the run here, successfully. */
  readonly handoff: Handoff;
};

/** What a function gets that only works something out: how long to sleep, which children to start. */
export type PlanContext<Input, Env, State> = RunContext<Input, Env> & { readonly state: State };

/** What an initializer gets. */
export type InitContext<Input> = Pick<
  RunContext<Input, never>,
  "input" | "runId" | "flow" | "version" | "signal" | "log"
>;

/** How a run is about to end, for its finalizers. */
export type Outcome<Output> =
  | { readonly type: "completed"; readonly output: Output }
  | { readonly type: "failed"; readonly error: RunError }
  | { readonly type: "cancelled"; readonly reason: string | null };

/** What a finalizer gets. The run may have ended before all of the state was there. */
export type FinalizerContext<Input, Env, State, Output> = RunContext<Input, Env> & {
  readonly state: Partial<State>;
  readonly outcome: Outcome<Output>;
};
