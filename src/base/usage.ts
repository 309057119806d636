import { FlotillaError } from "./errors.ts";
import { isJsonObject } from "./json.ts";
import { checkNumber, checkOptions, checkText } from "./options.ts";

/** The tokens of a call to a model. */
export type ModelUsage = {
  /** The model's name, as `prices` of the config has it. */
  readonly model?: string | undefined;
  /** All tokens of the input, those from a cache too. */
  readonly input: number;
  readonly output: number;
  /** How many of the input's tokens came from the provider's cache. Default 0. */
  readonly cached?: number | undefined;
};

/**
 * Where the tokens of a call are known from: the journal of its steps, the middleware of a throttle, or a
 * report of the agent's own code.
 */
export type UsageSource = "journal" | "middleware" | "report";

/** The tokens of all calls of one model. */
export type ModelTotal = {
  /** Empty where it was not named. */
  readonly model: string;
  readonly input: number;
  readonly output: number;
  readonly cached: number;
};

/** Counts the tokens of one attempt. */
export type UsageLedger = {
  /** With `again`, an earlier attempt has made the call and stored it. */
  count(usage: ModelUsage, source: UsageSource, options?: { readonly again?: boolean }): void;
  /**
   * The tokens of each model, the one with the most first. Empty if nothing was counted. `fresh` leaves
   * out calls of earlier attempts, and `again` are those alone.
   */
  totals(which?: "all" | "fresh" | "again"): ModelTotal[];
  /** Whether calls were counted from the journal: a later attempt counts them again. */
  readonly hasStored: boolean;
};

/** Prices by model, in any one currency, for a million tokens. */
export type Prices = Readonly<Record<string, ModelPrice>>;

export type ModelPrice = {
  readonly input: number;
  readonly output: number;
  /** Default: as other input. */
  readonly cached?: number;
};

/** What calls to models may use, in all. */
export type Budget = {
  readonly calls?: number;
  /** Tokens in and out. */
  readonly tokens?: number;
  /** In the currency of the config's `prices`, without which it is refused. */
  readonly cost?: number;
  /** How long models may take to answer, in milliseconds. */
  readonly ms?: number;
};

/** An attempt calls a few models. More names than this are a mistake, and are counted together. */
const maxModels = 20;
const otherModels = "other";
const maxModelChars = 200;
const maxTokens = 1e12;
const priceRange = { min: 0, max: 1e6, whole: false };
const bySource: readonly UsageSource[] = ["journal", "middleware", "report"];

/**
 * Creates a ledger in which a call counts once, though several places may know its tokens. Of each model
 * only the best source counts: the journal before the middleware, and that before reports. A report that
 * names no model counts only if there is nothing else.
 */
export function createUsageLedger(): UsageLedger {
  const sums = { all: new Map(), fresh: new Map(), again: new Map() } satisfies Record<
    string,
    Sums
  >;
  return {
    get hasStored() {
      return sums.all.has("journal");
    },
    count(usage, source, { again = false } = {}) {
      addTo(sums.all, usage, source);
      addTo(again ? sums.again : sums.fresh, usage, source);
    },
    totals: (which = "all") => totalsOf(sums[which]),
  };
}

/** The name that a model is counted under beside these. */
export function countedAs(model: string, beside: ReadonlyMap<string, unknown>): string {
  return beside.has(model) || beside.size < maxModels ? model : otherModels;
}

type Sums = Map<UsageSource, Map<string, ModelTotal>>;

function addTo(sums: Sums, usage: ModelUsage, source: UsageSource): void {
  const byModel = sums.get(source) ?? new Map<string, ModelTotal>();
  sums.set(source, byModel);
  const named = (usage.model ?? "").slice(0, maxModelChars);
  const model = countedAs(named, byModel);
  const before = byModel.get(model) ?? { model, input: 0, output: 0, cached: 0 };
  const input = wholeTokens(usage.input);
  byModel.set(model, {
    model,
    input: before.input + input,
    output: before.output + wholeTokens(usage.output),
    cached: before.cached + Math.min(wholeTokens(usage.cached ?? 0), input),
  });
}

function totalsOf(sums: Sums): ModelTotal[] {
  const counted = new Map<string, ModelTotal>();
  for (const source of bySource) {
    const isFirst = counted.size === 0;
    for (const [model, total] of sums.get(source) ?? []) {
      const isUnnamedReport = source === "report" && model === "";
      if (counted.has(model) || (isUnnamedReport && !isFirst)) continue;
      counted.set(model, total);
    }
  }
  return [...counted.values()].toSorted(
    (one, other) => other.input + other.output - one.input - one.output,
  );
}

/** The tokens that a model reports of a call, in any version of its interface. Undefined if it reports none. */
export function reportedTokens(usage: unknown): Omit<ModelTotal, "model"> | undefined {
  if (!isJsonObject(usage)) return undefined;
  const { inputTokens, tokens, cachedInputTokens } = usage;
  const input = tokenCount(inputTokens) ?? tokenCount(tokens);
  const output = tokenCount(usage["outputTokens"]);
  if (input === undefined && output === undefined) return undefined;
  const ofInput = isJsonObject(inputTokens) ? inputTokens["cacheRead"] : undefined;
  const cached = tokenCount(ofInput) ?? tokenCount(cachedInputTokens) ?? 0;
  return { input: input ?? 0, output: output ?? 0, cached };
}

/** Either a number, or an object with details and a total. */
export function tokenCount(value: unknown): number | undefined {
  const found = isJsonObject(value) ? value["total"] : value;
  return typeof found === "number" && Number.isFinite(found) ? found : undefined;
}

/** Providers report what they like, and only whole numbers are stored. */
function wholeTokens(tokens: number): number {
  return Math.min(Math.max(Math.round(tokens), 0), maxTokens);
}

/**
 * The cost of these tokens in millionths of the currency, which are whole where prices are for a million.
 * Undefined if there are no tokens, or the price of one of the models isn't known.
 */
export function costMillionths(
  totals: readonly ModelTotal[],
  prices: Prices | undefined,
): number | undefined {
  if (totals.length === 0 || prices === undefined) return undefined;
  let sum = 0;
  for (const { model, input, output, cached } of totals) {
    if (!Object.hasOwn(prices, model)) return undefined;
    const price = prices[model]!;
    sum += (input - cached) * price.input + cached * (price.cached ?? price.input);
    sum += output * price.output;
  }
  return Math.round(sum);
}

/** Throws unless these are tokens that can be counted. */
export function checkUsage(usage: ModelUsage): ModelUsage {
  checkOptions("usage", usage, ["model", "input", "output", "cached"]);
  const { model, input, output, cached } = usage;
  const range = { min: 0, max: maxTokens };
  if (model !== undefined) checkText("usage: model", model, { max: maxModelChars });
  checkNumber("usage: input", input, range);
  checkNumber("usage: output", output, range);
  if (cached !== undefined) checkNumber("usage: cached", cached, { min: 0, max: input });
  return usage;
}

/** Throws unless these are prices. */
export function checkPrices(prices: unknown): asserts prices is Prices {
  if (typeof prices !== "object" || prices === null || Array.isArray(prices)) {
    throw new FlotillaError(
      "invalid_option",
      'prices must be an object, such as { "model": { input: 1.25, output: 10 } }, for a million tokens',
    );
  }
  for (const [model, price] of Object.entries(prices)) {
    checkText("prices: a model's name", model, { max: maxModelChars });
    const what = `prices["${model}"]`;
    checkOptions(what, price as Record<string, unknown>, ["input", "output", "cached"]);
    const { input, output, cached } = price as ModelPrice;
    checkNumber(`${what}.input`, input, priceRange);
    checkNumber(`${what}.output`, output, priceRange);
    if (cached !== undefined) checkNumber(`${what}.cached`, cached, priceRange);
  }
}

/** Throws unless this is a budget. */
export function checkBudget(what: string, budget: Budget): Budget {
  const names = ["calls", "tokens", "cost", "ms"] as const;
  checkOptions(`${what}: budget`, budget, names);
  for (const name of names) {
    const most = budget[name];
    if (most === undefined || (Number.isFinite(most) && most > 0)) continue;
    throw new FlotillaError("invalid_option", `${what}: budget.${name} must be a number above 0`);
  }
  return budget;
}
