import type { Json } from "../base/json.ts";
import type { Declared, FlowStart, StateIsOutput } from "./builder.ts";
import { checkFlow, checkMachine, type FlowOptions, nameOf } from "./declare.ts";
import type { Call, Machine, Part } from "./machine.ts";
import { checkFunction, childrenPart, invalid, signalPart, sleepPart, triesOf } from "./parts.ts";

/** Declares a flow: its transitions follow, in their order, and then `.end()`. */
export function flow<Input = Json, Parsed = Input, Accepts = StateIsOutput, Output = StateIsOutput>(
  name: string,
  options: FlowOptions<Input, Parsed, Accepts, Output>,
): FlowStart<Declared<Input, Parsed, Accepts, Output>> {
  const machine = checkFlow(name, options as FlowOptions<any, any, any, any>);
  return chain(machine) as unknown as FlowStart<Declared<Input, Parsed, Accepts, Output>>;
}

type Named = readonly [name: string, options: object, run: unknown];

/** Each call gives another chain and leaves this one as it was, so that a beginning can be shared. */
function chain(machine: Machine): object {
  const { name: flowName, input, output } = machine;
  const add = (part: Part) => {
    const what = `flow "${flowName}"`;
    if (machine.finalizers.length > 0) {
      throw invalid(`${what}: "${part.name}" comes after a finalizer, and finalizers come last`);
    }
    return chain({ ...machine, parts: [...machine.parts, part] });
  };
  const named = (name: unknown) => nameOf(machine, name);
  const of = (name: string) => `flow "${flowName}": "${name}"`;
  return {
    name: flowName,
    input,
    output,
    isFlow: true,
    queue: machine.queue,
    ...(machine.concurrency && { concurrency: machine.concurrency }),
    init(make: Call) {
      if (machine.parts.length > 0) {
        throw invalid(`flow "${flowName}": initializers come before transitions`);
      }
      checkFunction(`flow "${flowName}": an initializer`, make);
      return chain({ ...machine, initializers: [...machine.initializers, make] });
    },
    to(given: unknown, ...rest: unknown[]) {
      const [name, options, run] = withOptions(flowName, named(given), rest);
      checkFunction(of(name), run);
      return add({ kind: "work", name, tries: triesOf(of(name), options, machine.tries), run });
    },
    sleep(given: unknown, ms: unknown) {
      const name = named(given);
      return add(sleepPart(of(name), name, ms, machine.tries));
    },
    signal(given: unknown, options: object = {}) {
      const name = named(given);
      return add(signalPart(of(name), name, options));
    },
    children(given: unknown, ...rest: unknown[]) {
      const [name, options, run] = withOptions(flowName, named(given), rest);
      checkFunction(of(name), run);
      return add(childrenPart(of(name), name, options, run, machine.tries));
    },
    finally(...given: unknown[]) {
      const isNamed = typeof given[0] !== "function";
      const count = machine.finalizers.length;
      const own = count === 0 ? "finally" : `finally-${count + 1}`;
      const [name, options, run] = isNamed
        ? withOptions(flowName, named(given[0]), given.slice(1))
        : ([own, {}, given[0]] as Named);
      checkFunction(of(name), run);
      const tries = triesOf(of(name), options, machine.tries);
      const finalizer = { kind: "finally", name, tries, run } as const;
      return chain({ ...machine, finalizers: [...machine.finalizers, finalizer] });
    },
    end: () => checkMachine(machine),
  };
}

function withOptions(flowName: string, name: string, rest: readonly unknown[]): Named {
  if (rest.length < 2) return [name, {}, rest[0]];
  if (typeof rest[0] === "object" && rest[0] !== null) return [name, rest[0], rest[1]];
  throw invalid(`flow "${flowName}": "${name}": its options, an object, come before the function`);
}
