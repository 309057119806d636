import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import { type Budget, costMillionths, countedAs, type Prices, tokenCount } from "../base/usage.ts";
import { type StepLevel, levelOf } from "../steps/model-calls.ts";
import type { Step } from "../steps/model.ts";

/** What calls to one model have used. */
export type CallUsage = {
  readonly model: string;
  readonly calls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Of the input tokens, those that the provider had cached. */
  readonly cachedTokens: number;
  /** How long they took. */
  readonly ms: number;
};

/** The usage of each model, in the order in which the models were first called. */
function addUsage(one: readonly CallUsage[], other: readonly CallUsage[]): readonly CallUsage[] {
  const byModel = new Map(one.map((each) => [each.model, each]));
  for (const usage of other) {
    const name = countedAs(usage.model, byModel);
    const before = byModel.get(name);
    byModel.set(name, {
      model: name,
      calls: usage.calls + (before?.calls ?? 0),
      inputTokens: usage.inputTokens + (before?.inputTokens ?? 0),
      outputTokens: usage.outputTokens + (before?.outputTokens ?? 0),
      cachedTokens: usage.cachedTokens + (before?.cachedTokens ?? 0),
      ms: usage.ms + (before?.ms ?? 0),
    });
  }
  return [...byModel.values()];
}

/**
 * Counts what is stored. All stored calls are answered again before the next one is made, so that the
 * count of a new attempt goes on where that of the last one stopped.
 */
export type Meter = {
  /** What was used here, in agents within tools, and in steps and rounds within. */
  readonly usage: readonly CallUsage[];
  /** What was used by all that share a budget with this one. */
  readonly allUsage: readonly CallUsage[];
  /** How many calls are under way among these. */
  readonly underWay: number;
  /** The budgets of the agents that this is within a tool of. */
  readonly budgets: readonly Budget[];
  readonly isInTool: boolean;
  /** The last call that agents of a name have made without tools, since a budget was spent. */
  readonly lastCalls: Map<string, LastCall>;
  add(usage: readonly CallUsage[]): void;
  /** Counts a call as under way until the function is called that it returns. */
  begin(): () => void;
  /** A meter of an agent within a tool. Its usage counts here until the tool's own is added. */
  open(budgets: readonly Budget[]): Meter & { close(): void };
  /** The meter of a step or a round within, which goes on if that is called again. */
  within(prefix: string): Meter;
  /** Whether the journal answers for this step for the first time: code may call the step around it again. */
  isFirst(step: string): boolean;
};

/** A call: the counter that has numbered it, and its number. */
export type LastCall = { readonly of: object; readonly nth: number };

type Inherited = Pick<Meter, "budgets" | "isInTool" | "lastCalls">;

function createMeter(parent?: Meter, inherited: Partial<Inherited> = {}): Meter {
  let own: readonly CallUsage[] = [];
  let begun = 0;
  const open = new Set<Meter>();
  const levels = new Map<string, Meter>();
  const answered = new Set<string>();
  const { budgets = [], isInTool = false, lastCalls = new Map<string, LastCall>() } = inherited;
  const meter: Meter = {
    budgets,
    isInTool,
    lastCalls,
    get usage() {
      return [...open, ...levels.values()].reduce((sum, each) => addUsage(sum, each.usage), own);
    },
    get allUsage() {
      return parent ? parent.allUsage : meter.usage;
    },
    get underWay() {
      return parent ? parent.underWay : begun;
    },
    add(usage) {
      own = addUsage(own, usage);
    },
    begin() {
      if (parent) return parent.begin();
      begun++;
      return () => void begun--;
    },
    open(ofAgent) {
      const inner = createMeter(meter, { budgets: ofAgent, isInTool: true });
      open.add(inner);
      return Object.assign(Object.create(inner) as Meter, {
        close: () => void open.delete(inner),
      });
    },
    within(prefix) {
      const known = levels.get(prefix);
      if (known) return known;
      const inner = createMeter(meter, { budgets, isInTool, lastCalls });
      levels.set(prefix, inner);
      return inner;
    },
    isFirst(step) {
      const { size } = answered;
      return answered.add(step).size > size;
    },
  };
  return meter;
}

const meters = new WeakMap<StepLevel, Meter>();

/** The meter of all durable calls in one context. */
export function meterOf(step: Step): Meter {
  return meterIn(levelOf(step));
}

function meterIn(level: StepLevel): Meter {
  const known = meters.get(level);
  if (known) return known;
  const made = level.outer ? meterIn(level.outer).within(level.prefix) : createMeter();
  meters.set(level, made);
  return made;
}

export function setMeter(step: Step, meter: Meter): void {
  meters.set(levelOf(step), meter);
}

/** The part of a budget that is spent, as text; undefined if there is some left. */
export function spentPart(
  budget: Budget,
  { allUsage: usage, underWay }: Pick<Meter, "allUsage" | "underWay">,
  prices: Prices | undefined,
  before: Required<Budget> = { calls: 0, tokens: 0, cost: 0, ms: 0 },
): string | undefined {
  const sum = (pick: (each: CallUsage) => number) =>
    usage.reduce((all, each) => all + pick(each), 0);
  const spent = {
    calls: before.calls + sum((each) => each.calls) + underWay,
    tokens: before.tokens + sum((each) => each.inputTokens + each.outputTokens),
    ms: before.ms + sum((each) => each.ms),
    cost: budget.cost === undefined ? 0 : before.cost + costOf(usage, prices),
  };
  for (const name of ["calls", "tokens", "cost", "ms"] as const) {
    const most = budget[name];
    if (most !== undefined && spent[name] >= most) {
      return name === "cost"
        ? `a cost of ${spent.cost} of ${most}`
        : `${spent[name]} of ${most} ${name}`;
    }
  }
  return undefined;
}

/** A model whose price isn't known may have cost anything. */
function costOf(usage: readonly CallUsage[], prices: Prices | undefined): number {
  const totals = usage.map(({ model, inputTokens, outputTokens, cachedTokens }) => ({
    model,
    input: inputTokens,
    output: outputTokens,
    cached: cachedTokens,
  }));
  return totals.length === 0 ? 0 : (costMillionths(totals, prices) ?? Infinity) / 1e6;
}

/** Throws if a budget limits the cost of a model that has no price. */
export function checkPriced(
  { cost }: Budget,
  prices: Prices | undefined,
  model: string | undefined,
): void {
  if (cost === undefined) return;
  if (prices !== undefined && (model === undefined || Object.hasOwn(prices, model))) return;
  const what = model === undefined ? "models" : `"${model}"`;
  throw new FlotillaError(
    "invalid_option",
    `durable: budget.cost needs what ${what} cost: set \`prices\` in the config`,
  );
}

/** Usage as a step has stored it. */
export function storedUsage(step: Json): readonly CallUsage[] {
  const found = isJsonObject(step) ? step["usage"] : undefined;
  if (!Array.isArray(found)) return [];
  return found.filter(isJsonObject).map((each): CallUsage => {
    const read = (name: keyof CallUsage): number => Math.max(0, tokenCount(each[name]) ?? 0);
    return {
      model: typeof each["model"] === "string" ? each["model"] : "",
      calls: read("calls"),
      inputTokens: read("inputTokens"),
      outputTokens: read("outputTokens"),
      cachedTokens: read("cachedTokens"),
      ms: read("ms"),
    };
  });
}
