import { FlotillaError } from "../base/errors.ts";
import { checkOptions } from "../base/options.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Step } from "../steps/model.ts";

/** What one or more calls to models have used. */
export type CallUsage = {
  readonly calls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Of the input tokens, those that the provider had cached. */
  readonly cachedTokens: number;
};

export type Budget = {
  /** How many calls to models. */
  readonly calls?: number;
  /** Tokens in and out. */
  readonly tokens?: number;
};

export const noUsage: CallUsage = {
  calls: 0,
  inputTokens: 0,
  outputTokens: 0,
  cachedTokens: 0,
};

export function addUsage(one: CallUsage, other: CallUsage): CallUsage {
  return {
    calls: one.calls + other.calls,
    inputTokens: one.inputTokens + other.inputTokens,
    outputTokens: one.outputTokens + other.outputTokens,
    cachedTokens: one.cachedTokens + other.cachedTokens,
  };
}

/**
 * Counts what is stored. All stored calls are answered again before the next one is made, so that the
 * count of a new attempt goes on where that of the last one stopped.
 */
export type Meter = {
  /** What was used here and in agents within. */
  readonly usage: CallUsage;
  /** What was used by all that share a budget with this one. */
  readonly allUsage: CallUsage;
  add(usage: CallUsage): void;
  /** A meter of an agent within a tool. Its usage counts here until the tool's own is added. */
  open(): Meter & { close(): void };
};

function createMeter(parent?: Meter): Meter {
  let own = noUsage;
  const open = new Set<Meter>();
  const meter: Meter = {
    get usage() {
      return [...open].reduce((sum, each) => addUsage(sum, each.usage), own);
    },
    get allUsage() {
      return parent ? parent.allUsage : meter.usage;
    },
    add(usage) {
      own = addUsage(own, usage);
    },
    open() {
      const inner = createMeter(meter);
      open.add(inner);
      return Object.assign(Object.create(inner) as Meter, {
        close: () => void open.delete(inner),
      });
    },
  };
  return meter;
}

const meters = new WeakMap<Step, Meter>();

/** The meter of all durable calls in one context. */
export function meterOf(step: Step): Meter {
  const known = meters.get(step);
  if (known) return known;
  const made = createMeter();
  meters.set(step, made);
  return made;
}

export function setMeter(step: Step, meter: Meter): void {
  meters.set(step, meter);
}

const budgetNames = ["calls", "tokens"] as const;

export function checkBudget(budget: Budget): void {
  checkOptions("durable: budget", budget, budgetNames);
  for (const name of budgetNames) {
    const most = budget[name];
    if (most === undefined || (Number.isFinite(most) && most > 0)) continue;
    throw new FlotillaError("invalid_option", `durable: budget.${name} must be a number above 0`);
  }
}

/** The part of a budget that is spent, as text; undefined if there is some left. */
export function spentPart(budget: Budget, usage: CallUsage): string | undefined {
  const { calls = Infinity, tokens = Infinity } = budget;
  const used = usage.inputTokens + usage.outputTokens;
  if (usage.calls >= calls) return `${usage.calls} of ${calls} calls`;
  if (used >= tokens) return `${used} of ${tokens} tokens`;
  return undefined;
}

/** The usage of one call as its provider has reported it; undefined if it has reported none. */
export function reportedUsage(reported: unknown): CallUsage | undefined {
  if (!isJsonObject(reported)) return undefined;
  const { inputTokens, outputTokens } = reported;
  const input = countOf(inputTokens);
  const output = countOf(outputTokens);
  if (input === undefined && output === undefined) return undefined;
  const cached = isJsonObject(inputTokens)
    ? inputTokens["cacheRead"]
    : reported["cachedInputTokens"];
  return {
    calls: 1,
    inputTokens: input ?? 0,
    outputTokens: output ?? 0,
    cachedTokens: countOf(cached) ?? 0,
  };
}

/** Either a number, or an object with details and a total. */
function countOf(value: unknown): number | undefined {
  const found = isJsonObject(value) ? value["total"] : value;
  return typeof found === "number" && Number.isFinite(found) && found >= 0 ? found : undefined;
}

/** Usage as it was stored. */
export function storedUsage(value: Json | undefined): CallUsage {
  if (!isJsonObject(value)) return noUsage;
  const read = (name: keyof CallUsage): number => countOf(value[name]) ?? 0;
  return {
    calls: read("calls"),
    inputTokens: read("inputTokens"),
    outputTokens: read("outputTokens"),
    cachedTokens: read("cachedTokens"),
  };
}
