import { yearMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { encodeJson, isJsonObject, type Json, type Jsonify } from "../base/json.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { check, checkSchema, jsonSchemaOf, type Schema } from "../base/schema.ts";
import { checkStepName } from "../steps/key.ts";
import { laterHostOf, type LaterHost, type LaterWait, schemaOf } from "../steps/later.ts";
import type { ChildContract, Step, StepContext } from "../steps/model.ts";
import type { StoredCall } from "./content.ts";

type ChildOptions<Input> = {
  readonly input: NoInfer<Input>;
  /** How long to wait for its end. Then the tool fails with `timeout`, and the task or run goes on. */
  readonly timeoutMs?: number;
};

type LaterTask<Input, Output> = ChildOptions<Input> & {
  readonly task: ChildContract<Input, Output> | string;
};

type LaterFlow<Input, Output> = ChildOptions<Input> & {
  readonly flow: ChildContract<Input, Output> | string;
};

type LaterTime<Output> = {
  readonly afterMs: number;
  /** Default null. */
  readonly output?: Output;
};

type LaterSignal<Payload> = {
  readonly signal: string;
  /** How long to wait for it. Then the tool fails with `timeout`. Default: without a limit. */
  readonly timeoutMs?: number;
  /** What its payload must be. It is kept as JSON Schema. */
  readonly schema?: Schema<any, Payload>;
};

/**
 * What a tool of a durable agent returns whose output comes later: at the end of a task or of a run of a
 * flow, after a time, or with a signal. In a session the answer ends, once the other tools of that call
 * have, and goes on when the output has come. In a task the task waits, without a pod or a slot.
 */
export function later<Input, Output>(what: LaterTask<Input, Output>): Jsonify<Output>;
export function later<Input, Output>(what: LaterFlow<Input, Output>): Jsonify<Output>;
export function later<Payload = Json>(what: LaterSignal<Payload>): Payload;
export function later<Output = null>(what: LaterTime<Output>): Jsonify<Output>;
export function later(what: object): unknown {
  return new Later(checkedLater(what));
}

type AnyLater =
  | (LaterTask<any, any> & { readonly isFlow: boolean })
  | LaterTime<unknown>
  | LaterSignal<any>;

/** Only `durable` can make anything of it. */
class Later {
  readonly what: AnyLater;
  constructor(what: AnyLater) {
    this.what = what;
  }
  toJSON(): never {
    throw new FlotillaError(
      "invalid_option",
      "later: the tool that returns it must be among the settings that go through durable()",
    );
  }
}

export function isLaterOutput(value: unknown): value is Later {
  return value instanceof Later;
}

const optionsOf: Readonly<Record<string, readonly string[]>> = {
  task: ["task", "input", "timeoutMs"],
  flow: ["flow", "input", "timeoutMs"],
  afterMs: ["afterMs", "output"],
  signal: ["signal", "timeoutMs", "schema"],
};

function checkedLater(given: object): AnyLater {
  const what = (given ?? {}) as Record<string, unknown>;
  const [kind, ...others] = Object.keys(optionsOf).filter((name) => what[name] !== undefined);
  if (kind === undefined || others.length > 0) {
    throw new FlotillaError(
      "invalid_option",
      "later: give it one of `task`, `flow`, `afterMs` and `signal`",
    );
  }
  checkOptions("later", what, optionsOf[kind]!);
  const { timeoutMs, afterMs, schema } = what;
  if (timeoutMs !== undefined) {
    checkNumber("later: timeoutMs", timeoutMs, { min: 1, max: yearMs });
  }
  if (kind === "afterMs") {
    checkNumber("later: afterMs", afterMs, { min: 0, max: yearMs, whole: false });
  }
  if (kind === "signal") {
    checkSignal(what["signal"]);
    checkSchema("later: schema", schema);
  }
  if (kind !== "task" && kind !== "flow") return what as AnyLater;
  const contract = what[kind];
  const name = isJsonObject(contract) ? contract["name"] : contract;
  if (typeof name !== "string") {
    throw new FlotillaError(
      "invalid_option",
      `later: \`${kind}\` must be a ${kind}, as \`${kind}("name", …)\` returns it, or its name`,
    );
  }
  const isFlow = kind === "flow" || (isJsonObject(contract) && contract["isFlow"] === true);
  return { ...what, task: contract, isFlow } as AnyLater;
}

/** In a task it is the name of a step. */
function checkSignal(signal: unknown): void {
  try {
    checkStepName(signal);
  } catch {
    throw new FlotillaError(
      "invalid_option",
      "later: `signal` must be a text of 1 to 200 characters without # @ / [ and ], such as approve:42",
    );
  }
}

const maxSchemaBytes = 16 * 1024;

/** What a tool waits for, as it is stored. */
async function waitOf(what: AnyLater): Promise<LaterWait> {
  if ("afterMs" in what) {
    const { afterMs, output = null } = what;
    return { type: "time", afterMs: Math.ceil(afterMs), output: jsonOf("later: output", output) };
  }
  const timeout = what.timeoutMs === undefined ? {} : { timeoutMs: what.timeoutMs };
  if ("signal" in what) {
    const { signal, schema } = what;
    if (schema === undefined) return { type: "signal", signal, ...timeout };
    const written = jsonSchemaOf("later: schema", schema);
    const text = encodeJson("later: schema", written, { maxBytes: maxSchemaBytes });
    const json = JSON.parse(text) as Json;
    // It throws now and not with the first signal if it can't be checked.
    await schemaOf(json)["~standard"].validate(null);
    return { type: "signal", signal, schema: json, ...timeout };
  }
  return childWait(what, timeout);
}

async function childWait(
  { task, input, isFlow }: LaterTask<any, any> & { readonly isFlow: boolean },
  timeout: { timeoutMs?: number },
): Promise<LaterWait> {
  const contract = typeof task === "string" ? undefined : (task as LimitedContract);
  const name = contract?.name ?? (task as string);
  const what = `later: the input of "${name}"`;
  await check(contract?.input, input, what, "invalid_input");
  const { concurrency, queue } = contract ?? {};
  const key = concurrency?.key?.(input);
  return {
    type: "child",
    name,
    isFlow,
    input: jsonOf(what, input),
    ...(concurrency && {
      concurrency: { limit: concurrency.limit, ...(key !== undefined && { key }) },
    }),
    ...(queue && { queue: { name: queue.name, limit: queue.limit } }),
    ...timeout,
  };
}

/** What a contract may have besides. */
type LimitedContract = ChildContract & {
  readonly concurrency?: { readonly limit: number; readonly key?: (input: unknown) => string };
  readonly queue?: { readonly name: string; readonly limit: number };
};

function jsonOf(what: string, value: unknown): Json {
  return JSON.parse(encodeJson(what, value)) as Json;
}

/** Makes what a tool waits for. Called within the step of its call. */
export async function beginLater(
  step: Step,
  { what }: Later,
  { key, log }: Pick<StepContext, "key" | "log">,
  toolCallId: string,
): Promise<Json> {
  const host = laterHostOf(step);
  if (host === undefined) {
    const error = cannotWait();
    // The error goes to the model, and only the program's author can do anything about it.
    log.error({ error: error.message }, "a tool's output can't come later");
    throw error;
  }
  const wait = await waitOf(what);
  await host.begin({ toolCallId, key }, wait);
  return wait;
}

/** The output of a tool that has waited. If the answer ends without it, the model isn't asked again. */
export async function laterOutput(
  { step, calls }: { readonly step: Step; readonly calls: { waits: boolean } },
  call: Parameters<LaterHost["output"]>[0],
  wait: Json,
): Promise<unknown> {
  const host = laterHostOf(step);
  if (host === undefined) throw cannotWait();
  const came = await host.output(call, wait as LaterWait);
  if (came) return came.output;
  calls.waits = true;
  return unanswered;
}

/** What the SDK gets as the output of a tool whose output comes later. */
const unanswered: object = Object.freeze({ later: true });

/** A tool that runs this. Its own form of an output for the model isn't asked for one that it hasn't made. */
export function withExecute(tool: object, execute: Function): object {
  const { toModelOutput } = tool as { toModelOutput?: Function };
  if (typeof toModelOutput !== "function") return { ...tool, execute };
  const wrapped = (given: unknown, ...more: unknown[]): unknown => {
    const output = isJsonObject(given) && "output" in given ? given["output"] : given;
    if (output === unanswered) return { type: "text", value: "its output comes later" };
    return toModelOutput(given, ...more) as unknown;
  };
  return { ...tool, execute, toModelOutput: wrapped };
}

/**
 * What a model is taken to have said when it is asked though a tool's output is still to come: nothing, so
 * that the SDK's loop ends.
 */
export function emptyCall(model: { readonly specificationVersion?: unknown }): StoredCall {
  const none = { total: 0, noCache: 0, cacheRead: 0, cacheWrite: 0 };
  const isFlat = model.specificationVersion === "v2";
  const finish = isFlat
    ? { finishReason: "tool-calls", usage: { inputTokens: 0, outputTokens: 0, totalTokens: 0 } }
    : {
        finishReason: { unified: "tool-calls", raw: undefined },
        usage: { inputTokens: none, outputTokens: { total: 0, text: 0, reasoning: 0 } },
      };
  return { content: [], finish, warnings: [], response: undefined };
}

function cannotWait(): FlotillaError {
  return new FlotillaError(
    "invalid_option",
    "later: an agent within a step or a tool can't wait. Return `later` from a tool of the agent that the task or the answer itself runs, or make the inner agent a task and return `later({ task, input })` for it",
  );
}
