import type { Backoff } from "../base/backoff.ts";
import type { Json } from "../base/json.ts";
import type { Schema } from "../base/schema.ts";
import type { Concurrency, NamedQueue } from "../tasks/concurrency/limits.ts";
import { atEnd, type HistoryEvent } from "./decide/run.ts";

/** How often something is tried, and how long one attempt may take. */
export type Tries = {
  readonly attempts: number;
  readonly timeoutMs: number;
  readonly backoff: Backoff;
};

/** A user's function, with its types checked where it was declared and forgotten here. */
export type PartFunction = (context: any) => unknown;

type WorkPart = {
  readonly kind: "work";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
};
/** Its function says for how long. */
export type SleepPart = {
  readonly kind: "sleep";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
  /** Where it is the same for every run. */
  readonly ms: number | undefined;
};
export type SignalPart = {
  readonly kind: "signal";
  readonly name: string;
  readonly schema: Schema | undefined;
  /** Null where it waits for as long as it takes. */
  readonly timeoutMs: number | null;
  readonly onTimeout: "fail" | { readonly value: Json };
};
/** Its function says which runs to start. */
export type ChildrenPart = {
  readonly kind: "children";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
  /** `fail`: one that doesn't complete fails this run. `keep`: the state tells how each ended. */
  readonly failures: "fail" | "keep";
};
export type Finalizer = {
  readonly kind: "finally";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
};

export type FlowPart = WorkPart | SleepPart | SignalPart | ChildrenPart;
export type CallablePart = WorkPart | SleepPart | ChildrenPart | Finalizer;

/** Runs around every transition and finalizer. It calls `next` once and waits for it. */
export type Interceptor = (context: any, next: () => Promise<unknown>) => unknown;

/** A flow as plain data: its parts in the order in which they are executed. */
export type Machine = {
  readonly name: string;
  readonly version: number;
  readonly input: Schema<any, any> | undefined;
  readonly output: Schema<any, any> | undefined;
  readonly isFlow: true;
  /** The named queue whose limit its runs count against. */
  readonly queue: NamedQueue | undefined;
  /** How many of its runs may be claimed at once, by a key. */
  readonly concurrency?: Concurrency<any>;
  /** What holds where a part says nothing else. */
  readonly tries: Tries;
  readonly initializers: readonly PartFunction[];
  readonly interceptors: readonly Interceptor[];
  readonly parts: readonly FlowPart[];
  readonly finalizers: readonly Finalizer[];
  /** Where a run goes on that stands at a name which is no more. */
  readonly removed: Readonly<Record<string, string>>;
  readonly renamed: Readonly<Record<string, string>>;
};

export function partAt(machine: Machine, cursor: string | null): FlowPart | undefined {
  return machine.parts.find(({ name }) => name === cursor);
}

export function finalizerAt(machine: Machine, cursor: string | null): Finalizer | undefined {
  return machine.finalizers.find(({ name }) => name === cursor);
}

/** The name of the transition behind this one, or `atEnd`. */
export function partAfter(machine: Machine, name: string): string {
  return nameAfter(machine.parts, name);
}

export function finalizerAfter(machine: Machine, name: string): string {
  return nameAfter(machine.finalizers, name);
}

/** Where every ending leads: the first finalizer, or `atEnd`. */
export function firstFinalizer(machine: Machine): string {
  return machine.finalizers[0]?.name ?? atEnd;
}

function nameAfter(named: readonly { readonly name: string }[], name: string): string {
  const at = named.findIndex((each) => each.name === name);
  return (at === -1 ? undefined : named[at + 1]?.name) ?? atEnd;
}

/** What `removed` says where nothing is left to go on with. */
export const removedAtEnd = "end";

/**
 * Where a run goes on in this version of its flow, by the name of what it stood at. Undefined where
 * the flow doesn't know that name, nor says what became of it.
 */
export function findCursor(
  machine: Machine,
  cursor: string,
  isEnding: boolean,
): { cursor: string; why: "renamed" | "removed" | null } | undefined {
  let name = cursor;
  let why: "renamed" | "removed" | null = null;
  const seen = new Set<string>();
  for (;;) {
    if (name === atEnd) return { cursor: atEnd, why };
    const isPart = partAt(machine, name) !== undefined;
    const isFinalizer = finalizerAt(machine, name) !== undefined;
    if (isEnding ? isFinalizer : isPart) return { cursor: name, why };
    // A transition that has become a finalizer runs as one, once those before it are done.
    if (isFinalizer) return { cursor: atEnd, why: "removed" };
    // A run that ends can't go back to transitions.
    if (isPart || seen.has(name)) return undefined;
    seen.add(name);
    if (Object.hasOwn(machine.renamed, name)) {
      name = machine.renamed[name]!;
      why ??= "renamed";
    } else if (Object.hasOwn(machine.removed, name)) {
      const target = machine.removed[name]!;
      name = target === removedAtEnd ? atEnd : target;
      why = "removed";
    } else return undefined;
  }
}

/** All names that what is called so now has had, the newest first. */
export function allNamesOf({ renamed }: Machine, name: string): readonly string[] {
  const names = new Set([name]);
  for (const known of names) {
    for (const [old, target] of Object.entries(renamed)) if (target === known) names.add(old);
  }
  return [...names];
}

export function moveEvent(
  { version }: Machine,
  from: string,
  found: { cursor: string; why: "renamed" | "removed" },
): HistoryEvent {
  return { type: "move", version, why: found.why, from, next: found.cursor };
}
