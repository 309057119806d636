import { yearMs } from "../../base/durations.ts";
import { abort } from "../../base/errors.ts";
import { defaultMaxBytes, encodeJson, type Json } from "../../base/json.ts";
import { check } from "../../base/schema.ts";
import { thrownText } from "../../tasks/finish/outcome.ts";
import { type CallablePart, type Machine, partAfter, type SignalPart } from "../machine.ts";
import type { RunEvent, NewChild } from "./event.ts";
import { atEnd, type State } from "./run.ts";
import { classifyThrown } from "./thrown.ts";

/** More would make the write that starts them too large. */
const maxChildren = 1_000;

// In the global symbol registry, so that it works where a program has two copies of this package.
const handedOff: unique symbol = Symbol.for("flotilla.handed_off") as never;

/** What `handoff` returns. A transition that returns it ends the run successfully. */
export type HandedOff<Output = unknown> = {
  readonly [handedOff]: true;
  readonly output: Output;
};

export type Handoff = {
  readonly handoff: (output: unknown) => HandedOff;
  /** Whether it was called. Calling it without returning its result is a mistake, and refused. */
  readonly called: () => boolean;
};

type Returned = {
  readonly part: CallablePart;
  readonly state: State;
  readonly value: unknown;
  /** Whether `handoff` was called in this attempt. */
  readonly handoffCalled: boolean;
  readonly maxStateBytes?: number;
};

/**
 * The event of a function that has returned. Never throws or rejects: an invalid value counts as thrown.
 * A promise only where the output's schema is asynchronous.
 */
export function readReturned(machine: Machine, returned: Returned): RunEvent | Promise<RunEvent> {
  return catchThrown(() => {
    const { part, value } = returned;
    switch (part.kind) {
      case "work":
        return workReturned(machine, returned);
      case "sleep":
        return { type: "sleep_requested", ms: msOf(part.name, value) };
      case "children":
        return { type: "children_requested", children: childrenOf(part.name, value) };
      case "finally":
        return { type: "finalized" };
    }
  });
}

/** Checks the final state of a run against the output's schema. */
export function readOutput(machine: Machine, state: State): RunEvent | Promise<RunEvent> {
  return catchThrown(() =>
    machine.output
      ? whenChecked(outputOf(machine, state, "the state at the end"), (output) => ({
          type: "concluded",
          output,
        }))
      : { type: "concluded" },
  );
}

/** Checks a signal against its schema. */
export function readSignal(
  part: SignalPart,
  signal: { readonly signalId: string; readonly payload: Json },
): RunEvent | Promise<RunEvent> {
  const { signalId } = signal;
  const refused = (thrown: unknown): RunEvent => ({
    type: "signal_refused",
    signalId,
    message: thrownText(thrown),
  });
  const what = `the signal "${part.name}"`;
  const seen = (payload: unknown): RunEvent => ({
    type: "signal_seen",
    signal: { signalId, payload: asJson(what, payload) },
  });
  try {
    const checked = check(part.schema, signal.payload, what, "invalid_input");
    return checked instanceof Promise ? checked.then(seen).catch(refused) : seen(checked);
  } catch (thrown) {
    return refused(thrown);
  }
}

function workReturned(machine: Machine, returned: Returned): RunEvent | Promise<RunEvent> {
  const { part, value, maxStateBytes: maxBytes = defaultMaxBytes } = returned;
  const what = `what "${part.name}" returned`;
  if (isHandedOff(value)) {
    const output = outputOf(machine, value.output, `what "${part.name}" handed off`);
    return whenChecked(output, (checked) => ({ type: "handed_off", output: checked }));
  }
  if (returned.handoffCalled) {
    throw abort(`"${part.name}" called handoff but didn't return it: write \`return handoff(…)\``);
  }
  const set = setOf(what, value);
  const state = set === null ? returned.state : { ...returned.state, ...set };
  if (set !== null) encodeJson(`the state after "${part.name}"`, state, { maxBytes });
  const isLast = partAfter(machine, part.name) === atEnd;
  if (!isLast || !machine.output) return { type: "returned", set };
  const output = outputOf(machine, state, `the state after "${part.name}", which is the last,`);
  return whenChecked(output, (checked) => ({ type: "returned", set, output: checked }));
}

function setOf(what: string, value: unknown): State | null {
  if (value === undefined || value === null) return null;
  // As JSON a Map or a Set is an empty object, and its content would be lost silently.
  const isObject = typeof value === "object" && !(Symbol.iterator in value);
  const set = isObject ? asJson(what, value) : undefined;
  if (typeof set !== "object" || set === null || Array.isArray(set)) {
    throw abort(`${what} can't be merged into the state: it must be an object or nothing`);
  }
  return set as State;
}

function outputOf(machine: Machine, value: unknown, what: string): Json | Promise<Json> {
  const checked = check<unknown>(machine.output, value, what, "invalid_output");
  return checked instanceof Promise
    ? checked.then((output) => asJson(what, output))
    : asJson(what, checked);
}

/** The value as it will come from the store. */
function asJson(what: string, value: unknown): Json {
  return JSON.parse(encodeJson(what, value)) as Json;
}

function msOf(name: string, value: unknown): number {
  if (typeof value === "number" && value <= yearMs) return Math.max(0, Math.ceil(value));
  throw abort(`"${name}" must sleep for a number of milliseconds up to ${yearMs}`);
}

function childrenOf(name: string, value: unknown): NewChild[] {
  if (!Array.isArray(value) || value.length > maxChildren) {
    throw abort(`"${name}" must return a list of at most ${maxChildren} [flow, input, options]`);
  }
  return value.map((row: unknown, place): NewChild => {
    const [flow, input, options = {}] = Array.isArray(row) ? (row as unknown[]) : [];
    if (typeof (flow as { name?: unknown } | undefined)?.name === "string") {
      checkChildOptions(`"${name}": child ${place}`, options);
      const made = { flow: flow as NewChild["flow"], input };
      return { ...made, options: options as NewChild["options"] };
    }
    throw abort(`"${name}": child ${place} isn't [flow, input, options]`);
  });
}

function checkChildOptions(what: string, options: unknown): void {
  if (typeof options !== "object" || options === null)
    throw abort(`${what}: its options must be an object`);
  const unknown = Object.keys(options).find((key) => key !== "priority" && key !== "tenant");
  if (unknown === undefined) return;
  throw abort(`${what} has the unknown option "${unknown}": use priority or tenant`);
}

function whenChecked(
  value: Json | Promise<Json>,
  toEvent: (value: Json) => RunEvent,
): RunEvent | Promise<RunEvent> {
  return value instanceof Promise ? value.then(toEvent) : toEvent(value);
}

function catchThrown(read: () => RunEvent | Promise<RunEvent>): RunEvent | Promise<RunEvent> {
  const threw = (thrown: unknown): RunEvent => ({ type: "threw", thrown: classifyThrown(thrown) });
  try {
    const event = read();
    return event instanceof Promise ? event.catch(threw) : event;
  } catch (thrown) {
    return threw(thrown);
  }
}

/** The `handoff` of one attempt. */
export function createHandoff(): Handoff {
  let called = false;
  return {
    handoff(output) {
      called = true;
      return { [handedOff]: true, output };
    },
    called: () => called,
  };
}

function isHandedOff(value: unknown): value is HandedOff {
  return typeof value === "object" && value !== null && handedOff in value;
}
