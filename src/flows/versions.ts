import type { HistoryEvent } from "./decide/history.ts";
import { finalizerAt, type Machine, partAt } from "./machine.ts";
import { atEnd } from "./decide/run.ts";

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
export function namesOf({ renamed }: Machine, name: string): readonly string[] {
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
