import type { RunEventFacts } from "../../asks/flows.ts";

/** A value that isn't among the events that were read. */
export const notRead = Symbol("not read");
/** No value: the state hadn't this field. */
export const notSet = Symbol("not set");

/** What a transition changed in the state of its run. */
export type StateChange = {
  readonly seq: number;
  readonly atMs: number;
  readonly transition: string;
  /** By field. */
  readonly fields: readonly FieldChange[];
  /** What stands in place of the fields for a caller that may not see them. */
  readonly shape?: string;
};

export type FieldChange = {
  readonly name: string;
  readonly before: unknown;
  readonly after: unknown;
};

/**
 * The state before and after each transition that added to it, by folding events in their order. Where they
 * don't begin with the first one, what earlier ones have set isn't known.
 */
export function stateChangesOf(
  history: readonly RunEventFacts[],
  isFromStart: boolean,
): StateChange[] {
  const state = new Map<string, unknown>();
  return history.flatMap(({ seq, atMs, type, transition, detail }) => {
    if (type !== "complete" || transition === null) return [];
    const set =
      typeof detail === "object" && detail !== null && "set" in detail ? detail.set : null;
    if (typeof set === "string") return [{ seq, atMs, transition, fields: [], shape: set }];
    if (typeof set !== "object" || set === null) return [];
    const fields = Object.entries(set).map(([name, after]) => {
      const before = state.has(name) ? state.get(name) : isFromStart ? notSet : notRead;
      state.set(name, after);
      return { name, before, after };
    });
    return fields.length === 0 ? [] : [{ seq, atMs, transition, fields }];
  });
}
