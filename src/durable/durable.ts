import { FlotillaError, messageOf } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import { checkOptions } from "../base/options.ts";
import { type Budget, checkBudget, type UsageLedger } from "../base/usage.ts";
import { type ModelCallOwner, modelCallsOf } from "../steps/model-calls.ts";
import type { Step, StepContext } from "../steps/model.ts";
import { countingUsage, releaseUnused } from "../throttles/scope.ts";
import {
  callCollector,
  callOfResult,
  decodeCall,
  encodeCall,
  type ModelPart,
  partsOfCall,
  resultOfCall,
  startsTool,
  type StoredCall,
  usageOfCall,
} from "./content.ts";
import { checkInterrupted, type Interrupted, type Words, wordsOf } from "./continue.ts";
import {
  isModel,
  type ModelLike,
  type ModelResult,
  type Params,
  type TimedCall,
  underThrottle,
  withSignal,
} from "./model.ts";
import { loadLarge, storeLarge } from "./large.ts";
import { beginLater, emptyCall, isLaterOutput, laterOutput, withExecute } from "./later.ts";
import {
  checkPriced,
  type Meter,
  meterOf,
  setMeter,
  spentPart,
  storedUsage,
  type CallUsage,
} from "./meter.ts";

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
  /** What this context may use, agents within its tools included. */
  readonly budget?: Budget;
  /**
   * When the budget is spent: `answer` makes one more call without tools, `stop` throws
   * `budget_spent`. Default `answer`.
   */
  readonly onSpent?: "answer" | "stop";
};

type ToolOptions = { readonly toolCallId?: string; readonly abortSignal?: AbortSignal };
type Execute = (input: unknown, options: ToolOptions) => unknown;

const optionNames = ["name", "once", "interrupted", "budget", "onSpent"];
const stepInOptions = Symbol("flotilla.step");

/**
 * Makes a call of the AI SDK durable: what models answer and what tools return is stored, and a later
 * attempt gets it from the store. Give it the settings of `streamText`, `generateText` or
 * `ToolLoopAgent`, and it returns them with the model and the tools wrapped.
 */
export function durable<Settings extends object>(
  context: DurableContext,
  settings: Settings,
  options: DurableOptions = {},
): Settings {
  checkOptions("durable", options as Readonly<Record<string, unknown>>, optionNames);
  const scope = createScope(context, options);
  const { model, tools, prepareStep, prepareCall } = settings as Record<string, unknown>;
  return {
    ...settings,
    ...(model !== undefined && { model: wrapModel(scope, model) }),
    ...(isJsonObject(tools) && { tools: wrapTools(scope, tools) }),
    ...(typeof prepareStep === "function" && { prepareStep: wrapPrepare(scope, prepareStep) }),
    ...(typeof prepareCall === "function" && { prepareCall: wrapPrepare(scope, prepareCall) }),
  };
}

/**
 * The step that a tool of a durable agent runs in: its `key` is the same in every attempt, its `step`
 * stores steps within, and it is the context for an agent within the tool.
 */
export function stepOf(options: object): StepContext {
  const found = (options as { [stepInOptions]?: StepContext })[stepInOptions];
  if (found) return found;
  throw new FlotillaError(
    "invalid_option",
    "stepOf: give it the second argument of a tool's execute, of an agent whose settings went through durable()",
  );
}

/** The model calls and tools of one `durable()`. */
type Scope = {
  readonly step: Step;
  readonly name: string;
  readonly once: ReadonlySet<string>;
  readonly interrupted: Interrupted | undefined;
  readonly meter: Meter;
  /** Its own, and that of its agent in a session. */
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
  /** The last call that was made without tools, since the budget was spent. */
  last: number | undefined;
  /** True once the output of a tool is to come later: the model isn't asked without it. */
  waits: boolean;
  /** The number of the call that has asked for a tool, by the id of the tool's call. */
  readonly askedBy: Map<string, number>;
};

const counters = new WeakMap<Step, Map<string, CallCounter>>();

function createScope(context: DurableContext, options: DurableOptions): Scope {
  const { step } = context;
  const owner = typeof step === "function" ? modelCallsOf(step) : undefined;
  if (!owner) {
    throw new FlotillaError(
      "invalid_option",
      "durable: its first argument is the context of a task, a turn or a step, or stepOf(options) in a tool",
    );
  }
  const { name = "model", once = [], interrupted, budget, onSpent = "answer" } = options;
  if (budget) checkBudget("durable", budget);
  const budgets = [budget, owner.budget].filter((each) => each !== undefined);
  for (const each of budgets) checkPriced(each, owner.prices, undefined);
  checkInterrupted(interrupted);
  const ofStep = counters.get(step) ?? new Map<string, CallCounter>();
  counters.set(step, ofStep);
  const calls = ofStep.get(name) ?? {
    ended: 0,
    underWay: false,
    last: undefined,
    waits: false,
    askedBy: new Map<string, number>(),
  };
  ofStep.set(name, calls);
  const meter = meterOf(step);
  return { step, name, once: new Set(once), interrupted, meter, budgets, onSpent, calls, owner };
}

/** Stores one call of a model, or gives the stored one. `run` is not called then. */
async function callOnce(
  scope: Scope,
  model: ModelLike,
  params: Params,
  run: (params: Params, context: StepContext, words: Words) => Promise<TimedCall>,
): Promise<StoredCall> {
  const { step, name, interrupted, calls, meter } = scope;
  if (calls.waits) return emptyCall(model);
  if (calls.underWay) {
    throw new FlotillaError(
      "step_ambiguous",
      `durable: two calls of "${name}" at the same time can't be told apart later: give each agent a name, durable(context, settings, { name })`,
    );
  }
  const nth = calls.ended + 1;
  const place = { step, name, key: String(nth) };
  const asked = withinBudget(scope, nth, model, params);
  const words = wordsOf(step, `${name}[${nth}]`, interrupted);
  calls.underWay = true;
  try {
    let fresh: Json | undefined;
    const callModel = () =>
      step(name, { key: place.key }, async (context): Promise<Json> => {
        const { ms, ...call } = await run(asked, context, words);
        fresh = encodeCall(call);
        const usage = usageOfCall(model.modelId, call, { ...asked, before: words.used, ms });
        return { ...(await storeLarge(place, fresh)), usage: [usage] };
      });
    const stored = await countingUsage(async (ledger) => {
      const value = await callModel();
      countStored(scope, ledger, storedUsage(value), { again: fresh === undefined });
      return value;
    });
    // The permit of the task or the answer was for a call that it makes first.
    if (fresh === undefined) releaseUnused();
    const call = decodeCall(fresh ?? (await loadLarge(place, stored))) as StoredCall;
    meter.add(storedUsage(stored));
    for (const part of call.content) {
      if (part.type === "tool-call") calls.askedBy.set(String(part["toolCallId"]), nth);
    }
    calls.ended = nth;
    words.end();
    return call;
  } finally {
    calls.underWay = false;
  }
}

/** Counts stored calls for the answer that they are a part of, or for the task or run. */
function countStored(
  { owner: { onTokens } }: Scope,
  ledger: UsageLedger | undefined,
  usage: readonly CallUsage[],
  { again }: { again: boolean },
): void {
  for (const { model, inputTokens, outputTokens, cachedTokens } of usage) {
    const tokens = { model, input: inputTokens, output: outputTokens, cached: cachedTokens };
    ledger?.count(tokens, "journal", { again });
    onTokens?.(tokens, { again });
  }
}

/** The call's parameters, without tools if it is the last one that the budget allows. */
function withinBudget(
  { budgets, meter, onSpent, calls, owner: { prices } }: Scope,
  nth: number,
  { modelId }: ModelLike,
  params: Params,
): Params {
  let spent: string | undefined;
  for (const budget of budgets) {
    checkPriced(budget, prices, modelId);
    spent ??= spentPart(budget, meter.allUsage, prices);
  }
  if (spent === undefined) return params;
  const isLast = onSpent === "answer" && (calls.last === undefined || calls.last === nth);
  if (!isLast) {
    throw new FlotillaError("budget_spent", `the budget is spent: ${spent}`);
  }
  calls.last = nth;
  return { ...params, tools: undefined, toolChoice: undefined } as Params;
}

function wrapModel(scope: Scope, model: unknown): unknown {
  if (!isModel(model)) {
    throw new FlotillaError(
      "invalid_option",
      `durable: \`model\` must be a model object, such as openai("…") or gateway("…")${typeof model === "string" ? `, not the text "${model.slice(0, 100)}"` : ""}`,
    );
  }
  // A proxy, because models are instances of classes with private fields.
  return new Proxy(model, {
    get(target, name) {
      if (name === "doGenerate") return (params: Params) => generate(scope, target, params);
      if (name === "doStream") return (params: Params) => stream(scope, target, params);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

async function generate(scope: Scope, model: ModelLike, params: Params): Promise<ModelResult> {
  return resultOfCall(
    await callOnce(scope, model, params, async (asked, context) => {
      const throttled = underThrottle(scope.owner, model);
      const result = await throttled.generate(withSignal(asked, context.signal));
      return { ...callOfResult(result), ms: throttled.tookMs() };
    }),
  );
}

/**
 * Words go through as they come. From the first tool call on, everything is held until the call is
 * stored: no tool may begin for an answer that could be asked for again.
 */
async function stream(scope: Scope, model: ModelLike, params: Params): Promise<ModelResult> {
  const gone = new AbortController();
  const opened = Promise.withResolvers<ModelResult>();
  let controller!: ReadableStreamDefaultController<ModelPart>;
  const out = new ReadableStream<ModelPart>({
    start(its) {
      controller = its;
    },
    cancel: (reason) => gone.abort(reason),
  });
  const put = (part: ModelPart) => {
    if (!gone.signal.aborted) controller.enqueue(part);
  };
  let held: ModelPart[] | undefined;

  const run = async (given: Params, context: StepContext, words: Words): Promise<TimedCall> => {
    const signal = AbortSignal.any([context.signal, gone.signal]);
    const collector = callCollector();
    const { asked, join } = words.begin(given, () => collector.content);
    const throttled = underThrottle(scope.owner, model);
    const { stream: parts, ...result } = await throttled.stream(withSignal(asked, signal));
    opened.resolve(result);
    held = [];
    let holding = false;
    for await (const each of parts) {
      if (each.type === "error") throw each["error"];
      for (const part of join(each)) {
        collector.add(part);
        holding ||= startsTool(part) || part.type === "finish";
        if (holding) held.push(part);
        else put(part);
      }
    }
    signal.throwIfAborted();
    const { call } = collector;
    if (!call)
      throw new Error("the model's stream ended without a finish: its answer is not whole");
    return { ...call, ms: throttled.tookMs() };
  };

  const ended = callOnce(scope, model, params, run).then(
    (call) => {
      for (const part of held ?? partsOfCall(call)) put(part);
      opened.resolve({});
    },
    (error: unknown) => {
      // Before the first part the SDK may try again; after it, the error is a part.
      opened.reject(error);
      put({ type: "error", error });
    },
  );
  void ended.then(() => !gone.signal.aborted && controller.close());
  return { ...(await opened.promise), stream: out };
}

function wrapTools(scope: Scope, tools: Readonly<Record<string, unknown>>): object {
  return Object.fromEntries(
    Object.entries(tools).map(([name, tool]) => {
      const execute = isJsonObject(tool) ? tool["execute"] : undefined;
      if (typeof execute !== "function") return [name, tool];
      return [name, withExecute(tool as object, wrapExecute(scope, name, execute as Execute))];
    }),
  );
}

/** What a tool has returned or thrown, as it is stored. Both are ends: neither is done again. */
type ToolEnd = { readonly output?: Json; readonly error?: string; readonly later?: Json };

function wrapExecute(scope: Scope, toolName: string, execute: Execute): Execute {
  const runTool = async (
    input: unknown,
    options: ToolOptions,
    call: (input: unknown, options: ToolOptions) => Promise<unknown>,
  ): Promise<unknown> => {
    const { step, once, calls, meter } = scope;
    const id = String(options.toolCallId ?? "");
    // Providers may use an id again in their next answer.
    const key = keyWithin(`${calls.askedBy.get(id) ?? 0}.${id}`);
    const place = { step, name: stepName(toolName), key };
    const stepOptions = { key, ...(once.has(toolName) && { once: true as const }) };
    let fresh: Json | undefined;
    const stored = await step(place.name, stepOptions, async (context): Promise<Json> => {
      const inner = meter.open();
      setMeter(context.step, inner);
      try {
        fresh = await endOf(context.signal, async () => {
          const output = await call(input, {
            ...options,
            abortSignal: withSignal(options, context.signal).abortSignal!,
            [stepInOptions]: context,
          } as ToolOptions);
          if (isLaterOutput(output)) return { later: await beginLater(step, output, context, id) };
          return { output: encodeCall(output) };
        });
        return { ...(await storeLarge(place, fresh)), usage: inner.usage };
      } finally {
        inner.close();
      }
    });
    const used = storedUsage(stored);
    meter.add(used);
    // Agents within have counted for themselves, unless the whole tool is answered from the journal.
    if (fresh === undefined) {
      countingUsage((ledger) => countStored(scope, ledger, used, { again: true }));
    }
    const end = (fresh ?? (await loadLarge(place, stored))) as ToolEnd;
    if (end.error !== undefined) throw new Error(end.error);
    if (end.later === undefined) return decodeCall(end.output ?? null);
    return laterOutput(scope, { toolCallId: id, name: `${toolName}.${key}` }, end.later);
  };

  if (!isGenerator(execute)) {
    return (input, options) =>
      runTool(input, options, async (given, within) => lastOf(await execute(given, within)));
  }
  return async function* (input, options) {
    const passed = passing();
    const ended = runTool(input, options, async (given, within) =>
      lastOf(await execute(given, within), passed.put),
    ).finally(passed.end);
    ended.catch(() => {});
    yield* passed.values;
    yield await ended;
  };
}

/** A tool that was told to stop, or whose attempt is over, has not ended. */
async function endOf(signal: AbortSignal, run: () => Promise<Json>): Promise<Json> {
  try {
    return await run();
  } catch (error) {
    if (signal.aborted || isOver(error)) throw error;
    return { error: messageOf(error).slice(0, 4_000) };
  }
}

/** Errors that say that this attempt may do nothing more, or that people have to decide. */
function isOver(error: unknown): boolean {
  return error instanceof FlotillaError && over.has(error.code);
}

const over: ReadonlySet<string> = new Set([
  "claim_lost",
  "cancelled",
  "shutdown",
  "step_ambiguous",
  "step_changed",
  "steps_full",
  "unknown_outcome",
]);

/** The last value of a tool that returns several, each of which is shown as it comes. */
async function lastOf(returned: unknown, show?: (value: unknown) => void): Promise<unknown> {
  if (!isAsyncIterable(returned)) return returned;
  let last: unknown;
  for await (const value of returned) {
    last = value;
    if (!isLaterOutput(value)) show?.(value);
  }
  return last;
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof Object(value)[Symbol.asyncIterator] === "function";
}

const generatorPrototype: unknown = Object.getPrototypeOf(async function* () {});

function isGenerator(execute: Execute): boolean {
  return Object.getPrototypeOf(execute) === generatorPrototype;
}

/** Values that are put here come out as they are put, until the end. */
function passing() {
  let controller!: ReadableStreamDefaultController<unknown>;
  const values = new ReadableStream<unknown>({
    start(its) {
      controller = its;
    },
  });
  return {
    values,
    put: (value: unknown) => controller.enqueue(value),
    end: () => controller.close(),
  };
}

const namePattern = /^[^#@/[\]]{1,200}$/;

function stepName(toolName: string): string {
  return namePattern.test(toolName) ? toolName : "tool";
}

const maxKeyChars = 900;

/** Ids come from models. */
function keyWithin(key: string): string {
  return key.toWellFormed().replaceAll("\0", "\uFFFD").slice(0, maxKeyChars);
}

/** Models and tools may also be chosen for each step or call. */
function wrapPrepare(scope: Scope, prepare: Function) {
  return async (...given: unknown[]) => {
    const prepared: unknown = await prepare(...given);
    if (!isJsonObject(prepared)) return prepared;
    const { model, tools } = prepared;
    return {
      ...prepared,
      ...(model !== undefined && { model: wrapModel(scope, model) }),
      ...(isJsonObject(tools) && { tools: wrapTools(scope, tools) }),
    };
  };
}
