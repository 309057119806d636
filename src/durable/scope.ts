import { FlotillaError } from "../base/errors.ts";
import { checkNumber } from "../base/options.ts";
import { type Budget, checkBudget, type UsageLedger } from "../base/usage.ts";
import { type ModelCallOwner, modelCallsOf } from "../steps/model-calls.ts";
import type { Step } from "../steps/model.ts";
import { timeoutRange } from "../steps/refusals.ts";
import { checkInterrupted, type Interrupted } from "./continue.ts";
import { type CallUsage, checkPriced, type Meter, meterOf } from "./meter.ts";

/** A context with steps: of a task, a turn, a step, or of a tool by `stepOf`. */
export type DurableContext = { readonly step: Step };

export type DurableOptions = {
  /** Tells agents apart that run in one context at the same time. Default "model". */
  readonly name?: string;
  /** Tools that must not be called twice, whatever happens. */
  readonly once?: readonly string[];
  /**
   * When the process dies in a call of an answer: `continue` keeps what the page has of it and asks for
   * the rest, `again` makes the call again. Default `continue` from 200 characters on.
   */
  readonly interrupted?: Interrupted;
  /** How long a tool may take, with all that agents within it do. Default 15 minutes. */
  readonly toolTimeoutMs?: number;
  /** What this context may use, agents within its tools included. */
  readonly budget?: Budget;
  /**
   * When the budget is spent: `answer` makes one more call without tools, `stop` throws
   * `budget_spent`. Default `answer`.
   */
  readonly onSpent?: "answer" | "stop";
};

/** The model calls and tools of one `durable()`. */
export type DurableScope = {
  readonly step: Step;
  readonly name: string;
  readonly once: ReadonlySet<string>;
  readonly toolTimeoutMs: number | undefined;
  readonly interrupted: Interrupted | undefined;
  readonly meter: Meter;
  readonly budget: Budget | undefined;
  /** Its own, those of the agents that it is within a tool of, and that of its agent in a session. */
  readonly budgets: readonly Budget[];
  readonly onSpent: "answer" | "stop";
  readonly calls: CallCounter;
  readonly owner: ModelCallOwner;
};

/**
 * Numbers the calls of one name in a context. A call that failed is made again under its number, as the
 * AI SDK does by itself.
 */
type CallCounter = {
  ended: number;
  underWay: boolean;
  /** True once the output of a tool is to come later: the model isn't asked without it. */
  waits: boolean;
  /** The number of the call that has asked for a tool, by the id of the tool's call. */
  readonly askedBy: Map<string, number>;
};

const counters = new WeakMap<Step, Map<string, CallCounter>>();

export function createScope(context: DurableContext, options: DurableOptions): DurableScope {
  const { step } = context;
  const owner = typeof step === "function" ? modelCallsOf(step) : undefined;
  if (!owner) {
    throw new FlotillaError(
      "invalid_option",
      "durable: its first argument is the context of a task, a turn or a step, or stepOf(options) in a tool",
    );
  }
  const { name = "model", once = [], interrupted, budget, onSpent = "answer" } = options;
  const { toolTimeoutMs } = options;
  if (toolTimeoutMs !== undefined) {
    checkNumber("durable: toolTimeoutMs", toolTimeoutMs, timeoutRange);
  }
  if (budget) checkBudget("durable", budget);
  const meter = meterOf(step);
  const all = [budget, ...meter.budgets, owner.budget].filter((each) => each !== undefined);
  const budgets = [...new Set(all)];
  for (const each of budgets) checkPriced(each, owner.prices, undefined);
  checkInterrupted(interrupted);
  const ofStep = counters.get(step) ?? new Map<string, CallCounter>();
  counters.set(step, ofStep);
  const calls = ofStep.get(name) ?? {
    ended: 0,
    underWay: false,
    waits: false,
    askedBy: new Map<string, number>(),
  };
  ofStep.set(name, calls);
  return {
    step,
    name,
    once: new Set(once),
    toolTimeoutMs,
    interrupted,
    meter,
    budget,
    budgets,
    onSpent,
    calls,
    owner,
  };
}

/** Counts stored calls for the answer that they are a part of, or for the task or run. */
export function countStored(
  { owner: { onTokens } }: DurableScope,
  ledger: UsageLedger | undefined,
  usage: readonly CallUsage[],
  { again }: { again: boolean },
): void {
  for (const { model, inputTokens, outputTokens, cachedTokens, calls, ms } of usage) {
    const tokens = { model, input: inputTokens, output: outputTokens, cached: cachedTokens };
    ledger?.count(tokens, "journal", { again });
    onTokens?.(tokens, { again, calls, ms });
  }
}
