import { defaultMaxDepth } from "../base/json.ts";
import type { Chunk } from "./chunk.ts";
import type { EntryError } from "./message.ts";

/** How deep a chunk may nest, so that the entry that contains its values can be stored. */
export const chunkDepth = defaultMaxDepth - 8;
/** Replaces a value that nests deeper than can be stored. */
export const cutMark = "[cut: nested too deeply]";

const deltaFields = new Map([
  ["text-delta", "delta"],
  ["reasoning-delta", "delta"],
  ["tool-input-delta", "inputTextDelta"],
]);

/** The size of a text as UTF-8 within JSON, without its quotes. */
export function textBytes(text: string): number {
  let bytes = text.length;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code < 0x20) bytes += 5;
    else if (code === 0x22 || code === 0x5c) bytes += 1;
    else if (code >= 0x800) {
      // Each half of a surrogate pair counts as two bytes. A lone half is written as an escape of six.
      if (code < 0xd800 || code > 0xdfff) bytes += 2;
      else if (isPair(text, index)) {
        bytes += 2;
        index++;
      } else bytes += 5;
    } else if (code >= 0x80) bytes += 1;
  }
  return bytes;
}

/** An upper bound for the size of a JSON value as UTF-8. Not recursive, so deep values are safe. */
export function jsonBytes(value: unknown): number {
  let bytes = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next === "string") bytes += textBytes(next) + 2;
    else if (typeof next === "number") bytes += 24;
    else if (typeof next === "object" && next !== null) {
      bytes += 2;
      if (Array.isArray(next)) {
        bytes += next.length;
        for (const item of next) left.push(item);
      } else {
        for (const [key, field] of Object.entries(next)) {
          if (field === undefined) continue;
          bytes += textBytes(key) + 4;
          left.push(field);
        }
      }
    } else bytes += 5;
  }
  return bytes;
}

/**
 * A value as every database can store it: U+0000 and lone surrogates become U+FFFD, and what nests too
 * deeply is visibly cut. Agents' output is repaired rather than refused, because it cannot be sent again.
 * Returns the same value if there is nothing to repair.
 */
export function storable<Value>(value: Value, maxDepth: number = defaultMaxDepth): Value {
  return repaired(value, maxDepth) as Value;
}

/**
 * Repairs the chunks of one answer. A surrogate pair that is split between two deltas is joined: agents
 * that cut text anywhere send such deltas, and each half alone would be lost.
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

/** Why a chunk was refused; undefined if it was accepted. */
export type ChunkRefusal = EntryError | undefined;

export const messageTooLarge: EntryError = {
  code: "payload_too_large",
  message: "the answer is larger than a message may be: send large content by reference",
};

export function invalidChunk(message: string): EntryError {
  return { code: "invalid_output", message };
}

/** For a chunk that refers to something that has not begun. */
export function orphan(chunk: { readonly type: string }, id: string, before: string): EntryError {
  return invalidChunk(`${chunk.type} for ${JSON.stringify(id)} without a ${before} before it`);
}

function isPair(text: string, index: number): boolean {
  const low = text.charCodeAt(index + 1);
  return text.charCodeAt(index) <= 0xdbff && low >= 0xdc00 && low <= 0xdfff;
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
  // `fromEntries` defines fields, so that even a key `__proto__` changes nothing else.
  return same ? value : Object.fromEntries(fields);
}

function storableText(text: string): string {
  return (text.includes("\0") ? text.replaceAll("\0", "\ufffd") : text).toWellFormed();
}
