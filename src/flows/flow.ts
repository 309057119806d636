import type { Json, Jsonify } from "../base/json.ts";
import type { InputOf, ResultOf } from "../tasks/task.ts";
import type { HandedOff } from "./decide/returned.ts";
import type { RunError } from "./decide/run.ts";
import {
  type SignalOptions,
  type TriesOptions,
  checkFlow,
  checkFunction,
  checkMachine,
  childrenPart,
  type FlowOptions,
  invalidOption,
  checkPartName,
  signalPart,
  sleepPart,
  resolveTries,
} from "./declare.ts";
import type {
  FinalizerContext,
  InitContext,
  PlanContext,
  TransitionContext,
} from "./drive/attempt.ts";
import type { PartFunction, Machine, FlowPart } from "./machine.ts";
import type { FlowContract, TaskContract } from "../tasks/model.ts";

/** Declares a flow. Its transitions follow in their order, and then `.end()`. */
export function flow<Input = Json, Parsed = Input, Accepts = StateIsOutput, Output = StateIsOutput>(
  name: string,
  options: FlowOptions<Input, Parsed, Accepts, Output>,
): FlowStart<Declared<Input, Parsed, Accepts, Output>> {
  const machine = checkFlow(name, options as FlowOptions<any, any, any, any>);
  return chain(machine) as unknown as FlowStart<Declared<Input, Parsed, Accepts, Output>>;
}

type Named = readonly [name: string, options: object, run: unknown];

/** Each call returns a new chain and leaves this one unchanged, so that flows can share a beginning. */
function chain(machine: Machine): object {
  const { name: flowName, input, output } = machine;
  const add = (part: FlowPart) => {
    const what = `flow "${flowName}"`;
    if (machine.finalizers.length > 0) {
      throw invalidOption(
        `${what}: "${part.name}" comes after a finalizer: declare finalizers last`,
      );
    }
    return chain({ ...machine, parts: [...machine.parts, part] });
  };
  const named = (name: unknown) => checkPartName(machine, name);
  const of = (name: string) => `flow "${flowName}": "${name}"`;
  return {
    name: flowName,
    input,
    output,
    isFlow: true,
    queue: machine.queue,
    ...(machine.concurrency && { concurrency: machine.concurrency }),
    init(make: PartFunction) {
      if (machine.parts.length > 0) {
        throw invalidOption(`flow "${flowName}": initializers come before transitions`);
      }
      checkFunction(`flow "${flowName}": an initializer`, make);
      return chain({ ...machine, initializers: [...machine.initializers, make] });
    },
    to(partName: unknown, ...rest: unknown[]) {
      const [name, options, run] = withOptions(flowName, named(partName), rest);
      checkFunction(of(name), run);
      return add({
        kind: "work",
        name,
        tries: resolveTries(of(name), options, machine.tries),
        run,
      });
    },
    sleep(partName: unknown, ms: unknown) {
      const name = named(partName);
      return add(sleepPart(of(name), name, ms, machine.tries));
    },
    signal(partName: unknown, options: object = {}) {
      const name = named(partName);
      return add(signalPart(of(name), name, options));
    },
    children(partName: unknown, ...rest: unknown[]) {
      const [name, options, run] = withOptions(flowName, named(partName), rest);
      checkFunction(of(name), run);
      return add(childrenPart(of(name), name, options, run, machine.tries));
    },
    finally(...args: unknown[]) {
      const isNamed = typeof args[0] !== "function";
      const count = machine.finalizers.length;
      const own = count === 0 ? "finally" : `finally-${count + 1}`;
      const [name, options, run] = isNamed
        ? withOptions(flowName, named(args[0]), args.slice(1))
        : ([own, {}, args[0]] as Named);
      checkFunction(of(name), run);
      const tries = resolveTries(of(name), options, machine.tries);
      const finalizer = { kind: "finally", name, tries, run } as const;
      return chain({ ...machine, finalizers: [...machine.finalizers, finalizer] });
    },
    end: () => checkMachine(machine),
  };
}

function withOptions(flowName: string, name: string, rest: readonly unknown[]): Named {
  if (rest.length < 2) return [name, {}, rest[0]];
  if (typeof rest[0] === "object" && rest[0] !== null) return [name, rest[0], rest[1]];
  throw invalidOption(
    `flow "${flowName}": "${name}": expected (name, options, function), and options must be an object`,
  );
}

/** A complete flow. Pass it to `use`, and start runs with it. */
export type Flow<Input = any, Parsed = any, Output = any> = TaskContract<Input, Parsed, Output> &
  Omit<Machine, "name" | "input" | "output">;

type ChildrenOptions<Failures> = TriesOptions & {
  /**
   * If a child fails or is cancelled. `fail`: this run fails when all have ended. `keep`: the state
   * contains how each child ended. Default `fail`.
   */
  failures?: Failures;
};

/** The types that never change along the chain. */
export type Declared<Input = any, Parsed = any, Accepts = any, Output = any> = {
  readonly input: Input;
  readonly parsed: Parsed;
  /** The input type of the output's schema. */
  readonly accepts: Accepts;
  readonly output: Output;
};

/** Where no output is declared, the result is the state. */
export interface StateIsOutput {
  readonly "the result is the state": true;
}

/** The start of the chain. It has the flow's name and types, so producers can start runs with it. */
export type FlowStart<D extends Declared> = FlowContract<
  D["input"],
  D["parsed"],
  D["output"] extends StateIsOutput ? Json : D["output"]
> &
  Initializing<D, {}>;

/** Initializers come first. */
export type Initializing<D extends Declared, Env> = Adding<D, Env, {}, never, never> & {
  /** Creates what transitions need and can't be stored: `env`. Runs on every pod that continues the run. */
  readonly init: <Made extends object | void>(
    make: (context: InitContext<D["parsed"]>) => Made | Promise<Made>,
  ) => Initializing<D, Flat<Env & (Made extends object ? Made : {})>>;
};

/** Transitions come next. Their order is the order in which they are executed. */
export type Transitions<D extends Declared, Env, State, Names, Handed> = Adding<
  D,
  Env,
  State,
  Names,
  Handed
> &
  Finalizing<D, Env, State, Names, Handed>;

type Adding<D extends Declared, Env, State, Names, Handed> = {
  readonly to: {
    <const Name extends string, Returned extends ObjectOrNothing>(
      name: Unused<Name, Names>,
      run: Work<D, Env, State, Returned>,
    ): Transitions<D, Env, Merged<State, Returned>, Names | Name, Handed | HandedBy<Returned>>;
    <const Name extends string, Returned extends ObjectOrNothing>(
      name: Unused<Name, Names>,
      options: TriesOptions,
      run: Work<D, Env, State, Returned>,
    ): Transitions<D, Env, Merged<State, Returned>, Names | Name, Handed | HandedBy<Returned>>;
  };
  /** Waits for a time. The wait is stored, and survives restarts. */
  readonly sleep: <const Name extends string>(
    name: Unused<Name, Names>,
    ms: number | ((context: PlanContext<D["parsed"], Env, State>) => number | Promise<number>),
  ) => Transitions<D, Env, State, Names | Name, Handed>;
  /** Waits for a signal of this name. Its payload goes into the state under the name. */
  readonly signal: <const Name extends string, Payload = Json, Checked = Payload, Value = never>(
    name: Unused<Name, Names>,
    options?: SignalOptions<Payload, Checked, Value>,
  ) => Transitions<D, Env, Merged<State, { [Key in Name]: Checked | Value }>, Names | Name, Handed>;
  /** Starts runs of other flows and waits for all of them. */
  readonly children: {
    <const Name extends string, const Rows extends readonly ChildRow[]>(
      name: Unused<Name, Names>,
      make: Plan<D, Env, State, Rows>,
    ): Transitions<D, Env, WithChildren<State, Name, Rows, "fail">, Names | Name, Handed>;
    <
      const Name extends string,
      const Rows extends readonly ChildRow[],
      Failures extends "fail" | "keep" = "fail",
    >(
      name: Unused<Name, Names>,
      options: ChildrenOptions<Failures>,
      make: Plan<D, Env, State, Rows>,
    ): Transitions<D, Env, WithChildren<State, Name, Rows, Failures>, Names | Name, Handed>;
  };
};

/** Finalizers come last, and always run. */
export type Finalizing<D extends Declared, Env, State, Names, Handed> = {
  readonly finally: {
    (run: Final<D, Env, State, Handed>): Finalizing<D, Env, State, Names, Handed>;
    <const Name extends string>(
      name: Unused<Name, Names>,
      run: Final<D, Env, State, Handed>,
    ): Finalizing<D, Env, State, Names | Name, Handed>;
    <const Name extends string>(
      name: Unused<Name, Names>,
      options: TriesOptions,
      run: Final<D, Env, State, Handed>,
    ): Finalizing<D, Env, State, Names | Name, Handed>;
  };
  readonly end: End<D, State, Handed>;
};

type End<D extends Declared, State, Handed> = [D["accepts"]] extends [StateIsOutput]
  ? () => Flow<D["input"], D["parsed"], State | Handed>
  : [State] extends [D["accepts"]]
    ? () => Flow<D["input"], D["parsed"], D["output"]>
    : StateIsNotTheOutput<keyof Wrong<State, D["accepts"]>>;

/** The type of `end` where the state is no valid output, so that compiler errors name the wrong fields. */
export interface StateIsNotTheOutput<Fields> {
  readonly "the state at the end doesn't fit the declared output": Fields;
}

type Wrong<State, Accepts> = {
  [Key in keyof Accepts as Has<State, Pick<Accepts, Key>> extends true ? never : Key]: never;
};

type Has<State, Field> = [State] extends [Field] ? true : false;

type Reserved = "end" | "start" | "finally";

type Unused<Name extends string, Names> = Name extends Names
  ? `this flow has a "${Name}" already`
  : Name extends Reserved
    ? `"${Name}" is a reserved name`
    : Name;

// Iterables can't be merged into the state, and a thenable would be awaited.
type ObjectOrNothing =
  | (object & { readonly [Symbol.iterator]?: never; readonly then?: never })
  | void
  | undefined
  | null;

type Work<D extends Declared, Env, State, Returned> = (
  context: TransitionContext<D["parsed"], Env, State, HandoffOf<D>>,
) => Returned | Promise<Returned>;

type HandoffOf<D extends Declared> = [D["accepts"]] extends [StateIsOutput]
  ? <Output>(output: Output) => HandedOff<Output>
  : (output: D["accepts"]) => HandedOff<never>;

type Final<D extends Declared, Env, State, Handed> = (
  context: FinalizerContext<D["parsed"], Env, State, OutcomeOf<D, State, Handed>>,
) => unknown;

type OutcomeOf<D extends Declared, State, Handed> = [D["accepts"]] extends [StateIsOutput]
  ? State | Handed
  : Jsonify<D["output"]>;

type ChildOptions = {
  priority?: number;
  tenant?: string;
};

/** A child: the flow, its input, and options. */
export type ChildRow = readonly [flow: TaskContract, input: unknown, options?: ChildOptions];

export type ChildOutcome<Output> =
  | { readonly status: "completed"; readonly output: Output }
  | { readonly status: "failed"; readonly error: RunError }
  | { readonly status: "cancelled" };

type Plan<D extends Declared, Env, State, Rows extends readonly ChildRow[]> = (
  context: PlanContext<D["parsed"], Env, State>,
) => Fitting<Rows> | Promise<Fitting<Rows>>;

/** Rows whose inputs match their flows. */
type Fitting<Rows extends readonly ChildRow[]> = Rows & {
  readonly [At in keyof Rows]: readonly [
    flow: Rows[At][0],
    input: InputOf<Rows[At][0]>,
    options?: ChildOptions,
  ];
};

type WithChildren<State, Name extends string, Rows extends readonly ChildRow[], Failures> = Merged<
  State,
  {
    [Key in Name]: {
      -readonly [At in keyof Rows]: Failures extends "keep"
        ? ChildOutcome<ResultOf<Rows[At][0]>>
        : ResultOf<Rows[At][0]>;
    };
  }
>;

/** The state after a transition: its result, as JSON, merged over the state before. */
type Merged<State, Returned> = [Kept<Returned>] extends [never]
  ? State
  : Over<State, Returns<Returned> extends true ? Jsonify<Kept<Returned>> : Maybe<Kept<Returned>>>;

/** The outputs that transitions hand off, for flows without a declared output. */
type HandedBy<Returned> = Returned extends HandedOff<infer Output> ? Jsonify<Output> : never;

type Nothing = void | undefined | null;
type Kept<Returned> = Exclude<Returned, Nothing | HandedOff<any>>;
type Returns<Returned> = [Extract<Returned, Nothing>] extends [never] ? true : false;
// It may return nothing, so all fields are optional.
type Maybe<Each> = Each extends unknown ? Partial<Jsonify<Each>> : never;

type Over<State, Added> = Added extends unknown
  ? State extends unknown
    ? Flat<{ [Key in Exclude<keyof State, keyof Added>]: State[Key] } & Replaced<State, Added>>
    : never
  : never;

/** An undefined field isn't stored, and the earlier value stays. */
type Replaced<State, Added> = {
  [Key in keyof Added]: undefined extends Added[Key]
    ? Key extends keyof State
      ? State[Key] | Exclude<Added[Key], undefined>
      : Added[Key]
    : Added[Key];
};

/** Flattens an intersection, so that editors and compiler errors show one object. */
export type Flat<Each> = { [Key in keyof Each]: Each[Key] };
