import { createHash } from "node:crypto";
import type { Json } from "../base/json.ts";
import type { Schema } from "../base/schema.ts";
import type { ChildContract, Step, StepSignalOptions, TaskSteps } from "./model.ts";

/** What a tool's output waits for, as the step of its call stores it. */
export type LaterWait =
  | {
      readonly type: "child";
      readonly name: string;
      readonly isFlow: boolean;
      readonly input: Json;
      /** Its limits, as its contract has them, with the key that is made of the input. */
      readonly concurrency?: { readonly limit: number; readonly key?: string };
      readonly queue?: { readonly name: string; readonly limit: number };
      readonly timeoutMs?: number;
    }
  | { readonly type: "time"; readonly afterMs: number; readonly output: Json }
  | {
      readonly type: "signal";
      readonly signal: string;
      readonly timeoutMs?: number;
      /** What the payload must be, as JSON Schema. */
      readonly schema?: Json;
    };

/** A tool call whose output comes later. */
export type LaterCall = {
  readonly toolCallId: string;
  /** The key of the call's step, which no other call has. */
  readonly key: string;
};

/** What lets the tools of a context have outputs that come later. */
export type LaterHost = {
  /** Makes what a call waits for, which starts when its step is stored. Called within that step. */
  begin(call: LaterCall, wait: LaterWait): Promise<void>;
  /**
   * The output of a call. Undefined if the work ends without it, and another begins when it has come. The
   * name is the same in every attempt, and no other call of the context has it.
   */
  output(
    call: Pick<LaterCall, "toolCallId"> & { readonly name: string },
    wait: LaterWait,
  ): Promise<{ readonly output: Json } | undefined>;
};

const hosts = new WeakMap<Step, LaterHost>();

export function laterHostOf(step: Step): LaterHost | undefined {
  return hosts.get(step);
}

export function setLaterHost<S extends Step>(step: S, host: LaterHost): S {
  hosts.set(step, host);
  return step;
}

/** Waits for a signal in a step that has a key besides: several calls may wait for one signal. */
export type KeyedSignal = (
  name: string,
  key: string,
  options: StepSignalOptions<Json>,
) => Promise<unknown>;

/** For steps that can wait: they are parked until the output is there. */
export function laterByWaits(step: TaskSteps, signalOf: KeyedSignal): LaterHost {
  return {
    async begin() {},
    async output({ name }, wait) {
      switch (wait.type) {
        case "child": {
          const { timeoutMs, input } = wait;
          const child = [contractOf(wait), input] as const;
          const limit = timeoutMs === undefined ? {} : { timeoutMs };
          const [output] = await step.children(waitName(name), [child], limit);
          return { output: output as Json };
        }
        case "time":
          await step.sleep(waitName(name), wait.afterMs);
          return { output: wait.output };
        case "signal": {
          const { signal, timeoutMs, schema } = wait;
          const output = await signalOf(signal, waitName(name), {
            ...(timeoutMs !== undefined && { timeoutMs }),
            ...(schema !== undefined && { schema: schemaOf(schema) }),
          });
          return { output: output as Json };
        }
      }
    },
  };
}

/** The contract of a child, whose input was checked when it was stored. */
export function contractOf(wait: Extract<LaterWait, { type: "child" }>): ChildContract {
  const { name, isFlow, concurrency, queue } = wait;
  const { limit, key } = concurrency ?? {};
  return {
    name,
    input: undefined,
    output: undefined,
    ...(isFlow && { isFlow }),
    ...(queue && { queue }),
    ...(concurrency && { concurrency: { limit, ...(key !== undefined && { key: () => key }) } }),
  } as ChildContract;
}

const plainName = /^[\w.:-]{1,150}$/;

/** Ids of calls come from models, and names of steps can't be all texts. */
function waitName(name: string): string {
  if (plainName.test(name)) return `later ${name}`;
  return `later ${createHash("sha256").update(name).digest("base64url").slice(0, 27)}`;
}

/** Long enough for what is large, and short enough for all else that the process does. */
const maxCheckMs = 500;

/**
 * The schema that a JSON Schema stands for. It is made when the first value is checked, because few
 * programs need it: then a JSON Schema that can't be checked throws. A value that takes too long is refused:
 * others send it, and a regular expression may take years for a few characters.
 */
export function schemaOf(schema: Json): Schema<unknown, Json> {
  const validate: Schema<unknown, Json>["~standard"]["validate"] = async (value) => {
    const [{ z }, { runInNewContext }] = await Promise.all([import("zod"), import("node:vm")]);
    const made = z.fromJSONSchema(schema as never) as unknown as Schema<unknown, Json>;
    const run = () => made["~standard"].validate(value);
    try {
      return runInNewContext("run()", { run }, { timeout: maxCheckMs }) as ReturnType<typeof run>;
    } catch (error) {
      if ((error as { code?: unknown }).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
      const message = `it takes too long to check, over ${maxCheckMs} ms: make the schema's regular expressions simpler`;
      return { issues: [{ message }] };
    }
  };
  return { "~standard": { version: 1, vendor: "flotilla", validate } };
}
