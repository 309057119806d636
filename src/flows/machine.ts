import type { Backoff } from "../base/backoff.ts";
import type { Json } from "../base/json.ts";
import type { Schema } from "../base/schema.ts";
import type { Concurrency, NamedQueue } from "../tasks/concurrency/limits.ts";
import { atEnd, type HistoryEvent } from "./decide/run.ts";

/** How many attempts a part has, and how long one may take. */
export type Tries = {
  readonly attempts: number;
  readonly timeoutMs: number;
  readonly backoff: Backoff;
};

/** A user's function. Its types were checked by the chain, and are erased here. */
export type PartFunction = (context: any) => unknown;

type WorkPart = {
  readonly kind: "work";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
};
/** Its function returns how long to sleep. */
export type SleepPart = {
  readonly kind: "sleep";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
  /** Set where it is the same for every run. */
  readonly ms: number | undefined;
};
export type SignalPart = {
  readonly kind: "signal";
  readonly name: string;
  readonly schema: Schema | undefined;
  /** Null: without a timeout. */
  readonly timeoutMs: number | null;
  readonly onTimeout: "fail" | { readonly value: Json };
};
/** Its function returns the runs to start. */
export type ChildrenPart = {
  readonly kind: "children";
  readonly name: string;
  readonly tries: Tries;
  readonly run: PartFunction;
  /** `fail`: a child that doesn't complete fails this run. `keep`: the state contains how each ended. */
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

/** Wraps every transition and finalizer. It calls `next` once and awaits it. */
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
  /** The defaults of its parts. */
  readonly tries: Tries;
  readonly initializers: readonly PartFunction[];
  readonly interceptors: readonly Interceptor[];
  readonly parts: readonly FlowPart[];
  readonly finalizers: readonly Finalizer[];
  /** Where runs continue whose cursor is a removed transition. */
  readonly removed: Readonly<Record<string, string>>;
  readonly renamed: Readonly<Record<string, string>>;
};

/** The target in `removed` for runs that continue with the finalizers. */
export const removedAtEnd = "end";

export function partAt(machine: Machine, cursor: string | null): FlowPart | undefined {
  return machine.parts.find(({ name }) => name === cursor);
}

export function finalizerAt(machine: Machine, cursor: string | null): Finalizer | undefined {
  return machine.finalizers.find(({ name }) => name === cursor);
}

/** The name of the transition after this one, or `atEnd`. */
export function partAfter(machine: Machine, name: string): string {
  return nameAfter(machine.parts, name);
}

export function finalizerAfter(machine: Machine, name: string): string {
  return nameAfter(machine.finalizers, name);
}

/** The cursor of a run that begins to end: the first finalizer, or `atEnd`. */
export function firstFinalizer(machine: Machine): string {
  return machine.finalizers[0]?.name ?? atEnd;
}

function nameAfter(named: readonly { readonly name: string }[], name: string): string {
  const at = named.findIndex((each) => each.name === name);
  return (at === -1 ? undefined : named[at + 1]?.name) ?? atEnd;
}

/**
 * Maps a stored cursor to this version of the flow. Undefined where the flow neither has the name nor
 * declares it as removed or renamed.
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
    // A transition that has become a finalizer runs as one, after the finalizers before it.
    if (isFinalizer) return { cursor: atEnd, why: "removed" };
    // A run that is ending can't go back to transitions.
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

/** All names that a part has had, the newest first. */
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
