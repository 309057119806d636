import type { Part } from "../message.ts";
import { jsonBytes, textBytes } from "../limits.ts";

/** A part in progress. Only copies of it are handed out. */
export type OpenPart = { type: string; [field: string]: unknown };

/** A part with its position, and the size of each field, so that a field can be replaced. */
export type DraftPart = {
  readonly part: OpenPart;
  /** Rises with the position in the message. */
  readonly order: number;
  /** The position itself. Only the last parts are ever removed. */
  readonly at: number;
  readonly sizes: Map<string, number>;
};

export type MessageDraft = ReturnType<typeof createMessageDraft>;

/**
 * The parts of a message in progress, with indexes to find a part by its id. It enforces its limits: a
 * change that does not fit is refused and changes nothing. `anyway` skips the limits, because the message
 * must be ended, or was stored before.
 */
export function createMessageDraft(limits: {
  readonly maxParts: number;
  readonly maxBytes: number;
}) {
  const items: DraftPart[] = [];
  /** What was handed out of each part, and the parts that have changed since. */
  let copies: readonly Part[] = [];
  const changed = new Set<DraftPart>();
  let stepStart = 0;
  let orders = 0;
  let bytes = 0;
  // The first call of each kind in the current step; below, all calls of all steps in order.
  const staticTools = new Map<string, DraftPart>();
  const dynamicTools = new Map<string, DraftPart>();
  const tools = new Map<string, DraftPart[]>();
  const approvals = new Map<string, DraftPart[]>();
  const data = new Map<string, DraftPart>();

  function charge(sizes: Map<string, number>, changed: Sizes, anyway: boolean): boolean {
    let more = 0;
    for (const [field, size] of changed) more += size - (sizes.get(field) ?? 0);
    if (!anyway && more > 0 && bytes + more > limits.maxBytes) return false;
    bytes += more;
    for (const [field, size] of changed) sizes.set(field, size);
    return true;
  }

  function add(part: OpenPart, { anyway = false } = {}): DraftPart | undefined {
    if (!anyway && items.length >= limits.maxParts) return undefined;
    const item: DraftPart = { part, order: orders++, at: items.length, sizes: new Map() };
    // The part itself takes two braces and a comma.
    if (!charge(item.sizes, [["", 3], ...sizesOf(part)], anyway)) return undefined;
    items.push(item);
    changed.add(item);
    index(item);
    return item;
  }

  function index(item: DraftPart): void {
    const { part } = item;
    if (part.type === "step-start") {
      stepStart = items.length;
      staticTools.clear();
      dynamicTools.clear();
    } else if (isTool(part)) {
      const id = part["toolCallId"] as string;
      const kind = part.type === "dynamic-tool" ? dynamicTools : staticTools;
      if (!kind.has(id)) kind.set(id, item);
      pushTo(tools, id, item);
      const approvalId = approvalIdOf(part);
      if (approvalId !== undefined) pushTo(approvals, approvalId, item);
    } else if (isData(part)) {
      const key = dataKey(part.type, part["id"] as string);
      if (!data.has(key)) data.set(key, item);
    }
  }

  function approve(item: DraftPart, approvalId: string): void {
    const before = approvalIdOf(item.part);
    if (before === approvalId) return;
    if (before !== undefined) removeFrom(approvals, before, item);
    pushTo(approvals, approvalId, item);
  }

  return {
    /** Adds a part to the current step. Undefined if it does not fit. */
    add,
    /** Replaces fields, or clears those that are undefined. False if that does not fit. */
    set(
      item: DraftPart,
      fields: { readonly [field: string]: unknown },
      { anyway = false } = {},
    ): boolean {
      if (!charge(item.sizes, sizesOf(fields), anyway)) return false;
      const approval = fields["approval"] as { readonly id: string } | undefined;
      if (approval !== undefined) approve(item, approval.id);
      changed.add(item);
      Object.assign(item.part, fields);
      return true;
    },
    /** Reserves the size of fields that the caller then sets. False if that does not fit. */
    grow(item: DraftPart, sizes: Sizes): boolean {
      changed.add(item);
      return charge(item.sizes, sizes, false);
    },
    /** The same for fields outside the parts. */
    charge(sizes: Map<string, number>, field: string, size: number, anyway = false): boolean {
      return charge(sizes, [[field, size]], anyway);
    },
    /** Removes the parts of the current step. */
    reset(): void {
      for (const item of items.splice(stepStart)) {
        const { part } = item;
        for (const size of item.sizes.values()) bytes -= size;
        if (isTool(part)) removeFrom(tools, part["toolCallId"] as string, item);
        else if (isData(part)) data.delete(dataKey(part.type, part["id"] as string));
        const approvalId = approvalIdOf(part);
        if (approvalId !== undefined) removeFrom(approvals, approvalId, item);
      }
      staticTools.clear();
      dynamicTools.clear();
    },
    /** The call in the current step that a chunk of this kind refers to. */
    toolInStep(id: string, { dynamic }: { readonly dynamic: boolean }): DraftPart | undefined {
      return (dynamic ? dynamicTools : staticTools).get(id);
    },
    /** The first call of either kind in the current step. */
    anyToolInStep(id: string): DraftPart | undefined {
      return earlier(staticTools.get(id), dynamicTools.get(id));
    },
    /** The call that an output belongs to: in the current step, else the last one before. */
    tool(id: string): DraftPart | undefined {
      return earlier(staticTools.get(id), dynamicTools.get(id)) ?? tools.get(id)?.at(-1);
    },
    approved: (approvalId: string): DraftPart | undefined =>
      approvals.get(approvalId)?.reduce((one, other) => earlier(one, other) ?? one),
    data: (type: string, id: string): DraftPart | undefined => data.get(dataKey(type, id)),
    items: (): readonly DraftPart[] => items,
    /** Copies of all parts. Those that haven't changed since the last call are the same. */
    copies(): readonly Part[] {
      if (changed.size === 0 && copies.length === items.length) return copies;
      const next = copies.slice(0, items.length);
      for (const item of changed) if (items[item.at] === item) next[item.at] = copyOf(item.part);
      changed.clear();
      return (copies = next);
    },
    /** The parts of the current step. */
    itemsInStep: (): readonly DraftPart[] => items.slice(stepStart),
    bytes: (): number => bytes,
  };
}

type Sizes = readonly (readonly [field: string, size: number])[];

function sizesOf(fields: { readonly [field: string]: unknown }): Sizes {
  return Object.entries(fields).map(([field, value]) => [field, fieldBytes(field, value)]);
}

export function fieldBytes(field: string, value: unknown): number {
  return value === undefined ? 0 : textBytes(field) + 4 + jsonBytes(value);
}

export function isTool(part: Part): boolean {
  if (!part.type.startsWith("tool-") && part.type !== "dynamic-tool") return false;
  return typeof part["toolCallId"] === "string";
}

function isData(part: Part): boolean {
  return part.type.startsWith("data-") && typeof part["id"] === "string";
}

function approvalIdOf(part: Part): string | undefined {
  const approval = part["approval"] as { readonly id?: unknown } | null | undefined;
  return isTool(part) && typeof approval?.id === "string" ? approval.id : undefined;
}

function dataKey(type: string, id: string): string {
  return JSON.stringify([type, id]);
}

function earlier(one: DraftPart | undefined, other: DraftPart | undefined): DraftPart | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return one.order < other.order ? one : other;
}

function pushTo(lists: Map<string, DraftPart[]>, key: string, item: DraftPart): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [item]);
  else list.push(item);
}

function removeFrom(lists: Map<string, DraftPart[]>, key: string, item: DraftPart): void {
  const list = lists.get(key);
  // The last item is the most likely one to be removed.
  const at = list?.lastIndexOf(item) ?? -1;
  if (list === undefined || at === -1) return;
  list.splice(at, 1);
  if (list.length === 0) lists.delete(key);
}

function copyOf(part: OpenPart): Part {
  const copy: OpenPart = { type: part.type };
  for (const field in part) {
    // Assigning this key would set the copy's prototype.
    if (part[field] !== undefined && field !== "__proto__") copy[field] = part[field];
  }
  return copy;
}
