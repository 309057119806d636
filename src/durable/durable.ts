import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import { checkOptions, nearest } from "../base/options.ts";
import type { Budget } from "../base/usage.ts";
import type { StepContext } from "../steps/model.ts";
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
import { type Words, wordsOf } from "./continue.ts";
import { withBytes, withReferences } from "./files.ts";
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
import { emptyCall } from "./later.ts";
import { checkPriced, type Meter, spentPart, storedUsage } from "./meter.ts";
import {
  countStored,
  createScope,
  type DurableContext,
  type DurableOptions,
  type DurableScope,
} from "./scope.ts";
import { type Steered, steeredBy } from "./steering.ts";
import { refuseInTool, wrapTools } from "./tools.ts";

const optionNames = ["name", "once", "interrupted", "budget", "onSpent", "toolTimeoutMs"];

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
  refuseInTool(scope.step);
  const { model, tools, prepareStep, prepareCall } = settings as Record<string, unknown>;
  const steered = steeredBy(context.step);
  // A call may be prepared with other tools.
  if (isJsonObject(tools) && prepareCall === undefined) checkOnce(options, Object.keys(tools));
  return {
    ...settings,
    ...(model !== undefined && { model: wrapModel(scope, model) }),
    ...(isJsonObject(tools) && { tools: wrapTools(scope, tools) }),
    ...prepared(scope, prepareStep, steered),
    ...(typeof prepareCall === "function" && {
      prepareCall: wrapPrepare(scope, prepareCall, steered),
    }),
  };
}

/** Throws if a tool that must run once is misspelt, since it would run as often as others. */
function checkOnce({ once = [] }: DurableOptions, tools: readonly string[]): void {
  for (const name of once) {
    if (tools.includes(name)) continue;
    const meant = nearest(name, tools);
    const hint = meant === undefined ? `they are ${tools.join(", ")}` : `did you mean "${meant}"?`;
    throw new FlotillaError(
      "invalid_option",
      `durable: \`once\` has "${name}", and no tool has that name${tools.length === 0 ? "" : `, ${hint}`}`,
    );
  }
}

/** Stores one call of a model, or gives the stored one. `run` is not called then. */
async function callOnce(
  scope: DurableScope,
  model: ModelLike,
  params: Params,
  run: (params: Params, context: StepContext, words: Words) => Promise<TimedCall>,
): Promise<StoredCall> {
  const { step, name, interrupted, calls, meter } = scope;
  refuseInTool(step);
  if (calls.waits) return emptyCall(model);
  if (calls.underWay) {
    throw new FlotillaError(
      "step_ambiguous",
      `durable: two calls of "${name}" at the same time can't be told apart later: give each agent a name, durable(context, settings, { name })`,
    );
  }
  const nth = calls.ended + 1;
  const place = { step, name, key: String(nth) };
  const path = `${name}[${nth}]`;
  calls.underWay = true;
  let end: (() => void) | undefined;
  try {
    const spent = spentBudgets(scope, model, { allUsage: meter.allUsage, underWay: 0 });
    const words = wordsOf(step, path, interrupted);
    let fresh: Json | undefined;
    const callModel = () =>
      step(name, { key: place.key }, async (context): Promise<Json> => {
        const asked = withinBudget(scope, nth, model, params);
        end = meter.begin();
        const { ms, ...call } = await run(asked, context, words);
        fresh = encodeCall(call);
        const usage = usageOfCall(model.modelId, call, { ...asked, before: words.used, ms });
        return { ...(await storeLarge(place, fresh)), usage: [usage] };
      });
    let counts = true;
    const stored = await countingUsage(async (ledger) => {
      const value = await callModel();
      counts = fresh !== undefined || meter.isFirst(path);
      if (counts) countStored(scope, ledger, storedUsage(value), { again: fresh === undefined });
      return value;
    });
    // The permit of the task or the answer was for a call that it makes first.
    if (fresh === undefined) releaseUnused();
    const call = decodeCall(fresh ?? (await loadLarge(place, stored))) as StoredCall;
    if (counts) meter.add(storedUsage(stored));
    // It was the last one in the attempt that has made it.
    if (fresh === undefined && spent.length > 0) noteLast(scope, nth);
    for (const part of call.content) {
      if (part.type === "tool-call") calls.askedBy.set(String(part["toolCallId"]), nth);
    }
    calls.ended = nth;
    words.end();
    scope.owner.onEnded?.();
    return call;
  } catch (error) {
    scope.owner.onEnded?.(error);
    throw error;
  } finally {
    calls.underWay = false;
    end?.();
  }
}

type Spent = { readonly budget: Budget; readonly part: string };

function spentBudgets(
  { budgets, owner: { prices, before } }: DurableScope,
  { modelId }: ModelLike,
  meter: Pick<Meter, "allUsage" | "underWay">,
): Spent[] {
  return budgets.flatMap((budget) => {
    checkPriced(budget, prices, modelId);
    const part = spentPart(budget, meter, prices, before);
    return part === undefined ? [] : [{ budget, part }];
  });
}

function noteLast({ meter: { lastCalls }, name, calls }: DurableScope, nth: number): void {
  if (!lastCalls.has(name)) lastCalls.set(name, { of: calls, nth });
}

/**
 * The call's parameters, without tools if it is the last one that the budget allows. An agent within a tool
 * has a last one of its own budget alone: the agent that has called the tool is to answer.
 */
function withinBudget(scope: DurableScope, nth: number, model: ModelLike, params: Params): Params {
  const spent = spentBudgets(scope, model, scope.meter);
  if (spent.length === 0) return params;
  const { meter, name, calls, onSpent, budget: own } = scope;
  const last = meter.lastCalls.get(name);
  const mayAnswer = !meter.isInTool || spent.every(({ budget }) => budget === own);
  const isLast = last === undefined || (last.of === calls && last.nth === nth);
  if (onSpent === "stop" || !mayAnswer || !isLast) {
    throw new FlotillaError("budget_spent", `the budget is spent: ${spent[0]!.part}`);
  }
  noteLast(scope, nth);
  return { ...params, tools: undefined, toolChoice: undefined } as Params;
}

function wrapModel(scope: DurableScope, model: unknown): unknown {
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
      const { files } = scope.owner;
      if (name === "supportedUrls" && files) return withReferences(value, files);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

async function generate(
  scope: DurableScope,
  model: ModelLike,
  params: Params,
): Promise<ModelResult> {
  return resultOfCall(
    await callOnce(scope, model, params, async (asked, context) => {
      const throttled = underThrottle(scope.owner, model);
      const whole = await withBytes(asked, scope.owner.files);
      const result = await throttled.generate(withSignal(whole, context.signal));
      return { ...callOfResult(result), ms: throttled.tookMs() };
    }),
  );
}

/**
 * Words go through as they come. From the first tool call on, everything is held until the call is
 * stored: no tool may begin for an answer that could be asked for again.
 */
async function stream(scope: DurableScope, model: ModelLike, params: Params): Promise<ModelResult> {
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
    const { stream: parts, ...result } = await throttled.stream(
      withSignal(await withBytes(asked, scope.owner.files), signal),
    );
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

function prepared(scope: DurableScope, prepareStep: unknown, steered: Steered | undefined) {
  const own =
    typeof prepareStep === "function" ? wrapPrepare(scope, prepareStep, steered) : undefined;
  if (!steered) return own && { prepareStep: own };
  return { prepareStep: steered(own) };
}

/** Models and tools may also be chosen for each step or call. */
function wrapPrepare(scope: DurableScope, prepare: Function, steered: Steered | undefined) {
  return async (...given: unknown[]): Promise<unknown> => {
    const chosen: unknown = await prepare(...given);
    if (!isJsonObject(chosen)) return chosen;
    const { model, tools, prepareStep } = chosen as Record<string, unknown>;
    return {
      ...chosen,
      ...(model !== undefined && { model: wrapModel(scope, model) }),
      ...(isJsonObject(tools) && { tools: wrapTools(scope, tools) }),
      // Only a call has steps of its own, and those that it is prepared with are in place of the others.
      ...(typeof prepareStep === "function" && prepared(scope, prepareStep, steered)),
    };
  };
}
