import { systemClock } from "../base/clock.ts";
import { type ErrorCode, FlotillaError } from "../base/errors.ts";
import { defaultMaxBytes, encodeJson, type Json } from "../base/json.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { checkOptions, nearest } from "../base/options.ts";
import { check } from "../base/schema.ts";
import type { Flow } from "../flows/flow.ts";
import type { Outcome } from "../flows/drive/attempt.ts";
import type { NewChild } from "../flows/decide/event.ts";
import { createHandoff, readReturned, readSignal } from "../flows/decide/returned.ts";
import {
  type CallablePart,
  finalizerAt,
  type Machine,
  partAt,
  type SignalPart,
} from "../flows/machine.ts";
import type { State } from "../flows/decide/run.ts";
import { type Steps, taskStepLimits } from "../steps/model.ts";
import { createSteps } from "../steps/steps.ts";
import { runAround } from "../tasks/run/middleware.ts";
import type { InputOf } from "../tasks/task.ts";

export type TransitionOptions<F extends Flow> = {
  input: InputOf<F>;
  /** What earlier transitions would have returned. Default: nothing. */
  state?: Readonly<Record<string, unknown>>;
  /** What the initializers would have returned. Default: they are run. */
  env?: object;
  /** Default 1. */
  attempt?: number;
  /** For a transition that waits for a signal: its payload. */
  signal?: unknown;
  /** For a finalizer: how the run is about to end. Default: completed, with the state. */
  outcome?: Outcome<Json>;
  /** Stands for the signal of a timeout, a cancel or a shutdown. */
  abort?: AbortSignal;
  /** The progress that an earlier attempt saved. */
  lastProgress?: Json;
  log?: Logger;
};

/** The result of one transition. */
export type TransitionResult = {
  /** What it adds to the state; empty where it adds nothing. */
  readonly set: State;
  /** The state after it, as the next transition would get it. */
  readonly state: State;
  /** The output, where it ends the run by `handoff`. */
  readonly handedOff?: Json;
  /** For a sleep: how long. */
  readonly sleepsMs?: number;
  /** For children: the runs that it starts. */
  readonly children?: readonly NewChild[];
  /** All progress that it saved. */
  readonly progress: readonly Json[];
};

/**
 * Runs one transition or finalizer of a flow alone: without a pod, a store or a clock. It rethrows errors,
 * and converts the returned value to JSON and back, as the store would.
 */
export async function runTransition<F extends Flow>(
  flow: F,
  name: string,
  options: TransitionOptions<F>,
): Promise<TransitionResult> {
  checkOptions("runTransition", options, [
    "input",
    "state",
    "env",
    "attempt",
    "signal",
    "outcome",
    "abort",
    "lastProgress",
    "log",
  ]);
  const machine: Machine = flow;
  const part = partAt(machine, name) ?? finalizerAt(machine, name);
  if (!part) throw unknownPart(machine, name);
  const state = JSON.parse(encodeJson("state", options.state ?? {})) as State;
  if (part.kind === "signal") return signalResult(part, state, options.signal);
  const input = await check(machine.input, throughJson(options.input), "input", "invalid_input");
  const { abort = new AbortController().signal, log = silentLogger } = options;
  const run = { runId: "test", flow: machine.name, version: machine.version, signal: abort, log };
  const env = options.env ?? (await initialized(machine, { ...run, input }));
  const progress: Json[] = [];
  const handoff = createHandoff();
  const context = {
    ...run,
    input,
    env,
    state,
    transition: name,
    attempt: options.attempt ?? 1,
    token: 1,
    outcome: options.outcome ?? { type: "completed", output: state },
    handoff: handoff.handoff,
    progress: (value: Json) => void progress.push(throughJson(value)),
    lastProgress: async () => progress.at(-1) ?? options.lastProgress ?? null,
  };
  const hasSteps = part.kind === "work" || part.kind === "finally";
  const steps = hasSteps ? stepsOf(name, { signal: abort, log }) : undefined;
  const called = steps ? { ...context, step: steps.step } : context;
  const value = await runAround(machine.interceptors, called, part.run);
  await steps?.settle(true);
  return resultOf(machine, part, { state, value, handoffCalled: handoff.called(), progress });
}

/** Steps that all run, as in a first attempt, and are kept nowhere. */
function stepsOf(name: string, { signal, log }: { signal: AbortSignal; log: Logger }): Steps {
  return createSteps({
    ownerId: `test/${name}`,
    journal: {
      read: undefined,
      readValue: () => Promise.reject(new FlotillaError("internal", "nothing is stored")),
      store: async () => {},
      storeWithin: async () => {},
      isStored: async () => true,
    },
    limits: { ...taskStepLimits, maxValueBytes: defaultMaxBytes },
    clock: systemClock,
    log: () => log,
    signal: () => signal,
    refusal: () => undefined,
    graceMs: 0,
  });
}

type Ran = {
  readonly state: State;
  readonly value: unknown;
  readonly handoffCalled: boolean;
  readonly progress: readonly Json[];
};

async function resultOf(machine: Machine, part: CallablePart, ran: Ran): Promise<TransitionResult> {
  const { state, progress } = ran;
  const event = await readReturned(machine, { part, ...ran });
  const nothing = { set: {}, state, progress };
  if (event.type === "returned") {
    return { set: event.set ?? {}, state: { ...state, ...event.set }, progress };
  }
  if (event.type === "handed_off") return { ...nothing, handedOff: event.output };
  if (event.type === "sleep_requested") return { ...nothing, sleepsMs: event.ms };
  if (event.type === "children_requested") return { ...nothing, children: event.children };
  if (event.type !== "threw" || !("error" in event.thrown)) return nothing;
  const { code, message } = event.thrown.error;
  throw new FlotillaError(code as ErrorCode, message);
}

async function signalResult(
  part: SignalPart,
  state: State,
  payload: unknown,
): Promise<TransitionResult> {
  if (payload === undefined) {
    throw new FlotillaError(
      "invalid_option",
      `"${part.name}" waits for a signal: pass the option \`signal\``,
    );
  }
  const event = await readSignal(part, { signalId: "test", payload: throughJson(payload) });
  if (event.type !== "signal_seen") {
    const message = event.type === "signal_refused" ? event.message : "no signal";
    throw new FlotillaError("invalid_input", message);
  }
  const set = { [part.name]: event.signal!.payload };
  return { set, state: { ...state, ...set }, progress: [] };
}

async function initialized(machine: Machine, context: object): Promise<object> {
  const env = {};
  for (const make of machine.initializers) Object.assign(env, await make(context));
  return env;
}

function throughJson(value: unknown): Json {
  return value === undefined ? null : (JSON.parse(encodeJson("a value", value)) as Json);
}

function unknownPart({ name: flow, parts, finalizers }: Machine, name: string): FlotillaError {
  const meant = nearest(
    name,
    [...parts, ...finalizers].map((part) => part.name),
  );
  const hint = meant ? `, did you mean "${meant}"?` : "";
  return new FlotillaError("invalid_option", `flow "${flow}" has no "${name}"${hint}`);
}
