import { defaultMaxDepth } from "../base/json.ts";
import type { Chunk } from "./chunk.ts";

/** How deep a chunk may nest, so that the entry that its values end up in can be stored. */
export const chunkDepth = defaultMaxDepth - 8;

/** What stands where something nested deeper than can be stored. */
export const cutMark = "[cut: nested too deeply]";

/**
 * A value as every database stores it: U+0000 and halves of surrogate pairs become U+FFFD, and what
 * nests too deeply is cut, visibly. What agents say is kept this way rather than refused, because there
 * is nobody to send it again. Gives the same value where there was nothing to repair.
 */
export function storable<Value>(value: Value, maxDepth: number = defaultMaxDepth): Value {
  return repaired(value, maxDepth) as Value;
}

function repaired(value: unknown, depth: number): unknown {
  if (typeof value === "string") return storableText(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth === 0) return cutMark;
  if (Array.isArray(value)) {
    const items = value.map((item) => repaired(item, depth - 1));
    return items.some((item, index) => item !== value[index]) ? items : value;
  }
  const entries = Object.entries(value);
  let same = true;
  const fields = entries.map(([key, field]): [string, unknown] => {
    const fixed: [string, unknown] = [storableText(key), repaired(field, depth - 1)];
    same &&= fixed[0] === key && fixed[1] === field;
    return fixed;
  });
  // `fromEntries` defines fields, so that not even one called `__proto__` changes anything else.
  return same ? value : Object.fromEntries(fields);
}

export function storableText(text: string): string {
  return (text.includes("\0") ? text.replaceAll("\0", "\ufffd") : text).toWellFormed();
}

/**
 * Repairs the chunks of one answer. A pair whose halves come in two deltas is put together: agents
 * that cut their text anywhere send such, and each half alone would be lost.
 */
export function createRepair(): (chunk: Chunk) => Chunk {
  const halves = new Map<string, string>();
  return (chunk) => {
    const field = deltaFields.get(chunk.type);
    const delta = field === undefined ? undefined : chunk[field];
    if (field === undefined || typeof delta !== "string") return storable(chunk, chunkDepth);
    const key = `${chunk.type} ${String(chunk["id"] ?? chunk["toolCallId"])}`;
    const text = (halves.get(key) ?? "") + delta;
    const last = text.charCodeAt(text.length - 1);
    const isHalf = last >= 0xd800 && last <= 0xdbff;
    if (isHalf) halves.set(key, text.slice(-1));
    else if (halves.size > 0) halves.delete(key);
    const whole = storableText(isHalf ? text.slice(0, -1) : text);
    return storable(whole === delta ? chunk : { ...chunk, [field]: whole }, chunkDepth);
  };
}

const deltaFields = new Map([
  ["text-delta", "delta"],
  ["reasoning-delta", "delta"],
  ["tool-input-delta", "inputTextDelta"],
]);
