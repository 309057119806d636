import { AsyncLocalStorage } from "node:async_hooks";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { isJsonObject, type Json, storableText } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { defaultTimeoutMs, isTimedOut, setLateResult } from "../steps/call.ts";
import type { Step, StepContext } from "../steps/model.ts";
import { countingUsage } from "../throttles/scope.ts";
import { decodeCall, encodeOutput } from "./content.ts";
import { loadLarge, storeLarge } from "./large.ts";
import { beginLater, isLaterOutput, laterOutput, withExecute } from "./later.ts";
import { setMeter, storedUsage } from "./meter.ts";
import { withSignal } from "./model.ts";
import { countStored, type DurableScope } from "./scope.ts";

type ToolOptions = { readonly toolCallId?: string; readonly abortSignal?: AbortSignal };
type Execute = (input: unknown, options: ToolOptions) => unknown;

const stepInOptions = Symbol("flotilla.step");

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

/** A tool that runs, with the steps of the agent that has called it. */
type RunningTool = {
  readonly name: string;
  readonly step: Step;
  readonly log: Logger;
  /** The tool that this one's agent is within. */
  readonly outer: RunningTool | undefined;
};

const running = new AsyncLocalStorage<RunningTool>();

/**
 * Throws if an agent within a tool asks in the context around the tool. Its calls would be numbered among
 * those of the agent there, and when the tool answers from the journal, all after it get answers of others.
 */
export function refuseInTool(step: Step): void {
  for (let tool = running.getStore(); tool; tool = tool.outer) {
    if (tool.step !== step) continue;
    const error = new FlotillaError(
      "step_ambiguous",
      `durable: an agent within the tool "${tool.name}" needs the context of the tool: give it durable(stepOf(options), …), with the second argument of the tool's execute`,
    );
    // The error goes to the model, and only the program's author can do anything about it.
    tool.log.error({ error: error.message }, "an agent within a tool has the wrong context");
    throw error;
  }
}

export function wrapTools(scope: DurableScope, tools: Readonly<Record<string, unknown>>): object {
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

function wrapExecute(scope: DurableScope, toolName: string, execute: Execute): Execute {
  const runTool = async (
    input: unknown,
    options: ToolOptions,
    call: (input: unknown, options: ToolOptions) => Promise<unknown>,
  ): Promise<unknown> => {
    const { step, calls, meter, toolTimeoutMs: timeoutMs } = scope;
    const id = String(options.toolCallId ?? "");
    // Providers may use an id again in their next answer.
    const key = keyWithin(`${calls.askedBy.get(id) ?? 0}.${id}`);
    const place = { step, name: stepName(toolName), key };
    const once = scope.once.has(toolName) && { once: true as const };
    const time = timeoutMs !== undefined && { timeoutMs };
    const inner = meter.open(scope.budgets);
    const late = {
      error: `the tool "${toolName}" took longer than ${timeoutMs ?? defaultTimeoutMs} ms`,
    };
    let fresh: Json | undefined;
    const run = async (context: StepContext): Promise<Json> => {
      setMeter(context.step, inner);
      setLateResult(context.signal, () => {
        fresh = late;
        // Read when what runs within has ended.
        return {
          value: late,
          get usage() {
            return inner.usage;
          },
        };
      });
      const end = await endOf(context.signal, late, async () => {
        const { log } = context;
        const within = { name: toolName, step, log, outer: running.getStore() };
        const abortSignal = withSignal(options, context.signal).abortSignal!;
        const given = { ...options, abortSignal, [stepInOptions]: context } as ToolOptions;
        const output = await running.run(within, () => call(input, given));
        if (isLaterOutput(output)) return { later: await beginLater(step, output, context, id) };
        return { output: encodeOutput(toolName, output) };
      });
      const value = await storeLarge(place, end);
      fresh ??= end;
      return { ...value, usage: inner.usage };
    };
    let stored: Json;
    try {
      stored = await step(place.name, { key, ...time, ...once }, run);
    } finally {
      inner.close();
    }
    const used = storedUsage(stored);
    if (fresh !== undefined) meter.add(used);
    else if (meter.isFirst(`${place.name}[${key}]`)) {
      meter.add(used);
      // Agents within have counted for themselves, unless the whole tool is answered from the journal.
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

/** A tool that was told to stop, or whose attempt is over, has not ended, unless its time was over. */
async function endOf(signal: AbortSignal, late: ToolEnd, run: () => Promise<Json>): Promise<Json> {
  try {
    return await run();
  } catch (error) {
    if (isOver(error)) throw error;
    if (isTimedOut(signal)) return late;
    if (signal.aborted) throw error;
    return { error: storableText(messageOf(error).slice(0, maxErrorChars)) };
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
const maxErrorChars = 4_000;

/** Ids come from models. */
function keyWithin(key: string): string {
  return storableText(key.slice(0, maxKeyChars));
}
