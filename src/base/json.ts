import { FlotillaError, messageOf } from "./errors.ts";

/** Any value that JSON can carry. */
export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json | undefined };

/** A type after a round trip through JSON: a `Date` comes back as a string. */
export type Jsonify<T> = [Json] extends [T]
  ? Json
  : T extends string | number | boolean | null
    ? T
    : T extends { toJSON(): infer Written }
      ? Jsonify<Written>
      : T extends undefined | void
        ? null
        : T extends (...args: never[]) => unknown
          ? never
          : T extends readonly unknown[]
            ? { [Index in keyof T]: Jsonify<T[Index]> }
            : T extends object
              ? { [Key in keyof T as T[Key] extends Dropped ? never : Key]: JsonifyField<T[Key]> }
              : never;

type Dropped = symbol | ((...args: never[]) => unknown);

// A missing field stays missing, while a bare `undefined` becomes null.
type JsonifyField<T> = T extends undefined ? undefined : Jsonify<T>;

type JsonLimits = {
  /** The largest text as UTF-8. Default 256 KiB. */
  maxBytes?: number;
  /** The deepest nesting of arrays and objects. Default 64. */
  maxDepth?: number;
};

export const defaultMaxBytes = 256 * 1024;
export const defaultMaxDepth = 64;

// `JSON.stringify` writes exactly these characters as escapes; an even run of backslashes before
// the `u` is an escaped backslash followed by a plain `u`.
const unstorable = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f][0-9a-f]{2})/;

/** A value as users type it: text that is a number, true, false, null or a quoted text, or text as it is. */
export function scalarOf(text: string): string | number | boolean | null {
  try {
    const value: unknown = JSON.parse(text);
    if (value === null || typeof value !== "object")
      return value as string | number | boolean | null;
  } catch {
    // It is no JSON.
  }
  return text;
}

/** True for what JSON writes in braces: neither null nor an array. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// Integers of fewer digits are exact.
const manyDigits = /\d{16}/;
// No number has more, and to compare longer ones takes more than linear time.
const maxDigits = 320;

/**
 * The first integer in JSON text that numbers can't hold: parsed, it would be another one without notice.
 * Undefined if there is none, also in text that isn't JSON.
 */
export function inexactInteger(json: string): string | undefined {
  if (!manyDigits.test(json)) return undefined;
  for (let at = 0; at < json.length;) {
    if (json[at] === '"') {
      at = endOfText(json, at + 1);
      continue;
    }
    const number = numberAt(json, at);
    if (isInexact(number)) return number;
    at += Math.max(1, number.length);
  }
  return undefined;
}

/** The index behind the quote that ends a text. */
function endOfText(json: string, from: number): number {
  let at = from;
  while (at < json.length && json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at + 1;
}

const inNumber = "+-.eE0123456789";

function numberAt(json: string, from: number): string {
  let end = from;
  while (end < json.length && inNumber.includes(json[end]!)) end++;
  return json.slice(from, end);
}

function isInexact(number: string): boolean {
  const isLong = number.length > maxDigits;
  if (number.length < 16 || /[^0-9-]/.test(number)) return false;
  const parsed = Number(number);
  if (Number.isNaN(parsed)) return false;
  return isLong || !Number.isFinite(parsed) || BigInt(parsed) !== BigInt(number);
}

/** Throws if a number of JSON text that was parsed has lost digits. */
export function checkIntegers(what: string, json: string): void {
  const lost = inexactInteger(json);
  if (lost === undefined) return;
  throw new FlotillaError(
    "invalid_input",
    `${what} has the number ${lost.slice(0, 40)}, of which JSON numbers keep only some digits: send it as text`,
  );
}

/**
 * A value as JSON text that every database stores and returns unchanged. Values over the limits are
 * refused, and so is text with U+0000 or a lone surrogate, which Postgres rejects: one such value
 * in a batch would make the whole batch fail, forever.
 */
export function encodeJson(what: string, value: unknown, limits: JsonLimits = {}): string {
  const { maxBytes = defaultMaxBytes, maxDepth = defaultMaxDepth } = limits;
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) throw tooDeep(what, maxDepth);
    throw new FlotillaError("payload_not_storable", `${what} isn't JSON: ${messageOf(error)}`);
  }
  text ??= "null";
  if (text.length * 3 > maxBytes) checkSize(what, text, maxBytes);
  // A level takes two characters at least, so short texts cannot be deep.
  if (text.length > maxDepth * 2 && depthOf(text) > maxDepth) throw tooDeep(what, maxDepth);
  // After `JSON.stringify` has proved that there is no cycle, and the size check has bounded the
  // walk.
  const lost = whatIsLost(value);
  if (lost !== undefined) throw notStorable(what, lost);
  if (text.includes("\\u") && unstorable.test(text)) {
    throw new FlotillaError(
      "payload_not_storable",
      `${what} holds U+0000 or half a surrogate pair, which databases refuse: remove it`,
    );
  }
  return text;
}

function checkSize(what: string, text: string, maxBytes: number): void {
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= maxBytes) return;
  throw new FlotillaError(
    "payload_too_large",
    `${what} takes ${bytes} bytes as JSON, the limit is ${maxBytes}: store it elsewhere and pass a reference`,
    { details: { bytes, maxBytes } },
  );
}

type Lost = { readonly kind: string; readonly path: string };

function notStorable(what: string, { kind, path }: Lost): FlotillaError {
  const where = path === "" ? `is ${kind}` : `has ${kind} at ${path}`;
  return new FlotillaError(
    "payload_not_storable",
    `${what} ${where}, which JSON can't hold: give plain objects, arrays, texts and numbers, such as \`Object.fromEntries(map)\` or \`[...set]\`, and await promises`,
  );
}

/** The first value that JSON would drop silently. */
function whatIsLost(value: unknown, path = ""): Lost | undefined {
  if (typeof value === "function") return { kind: "a function", path };
  if (typeof value !== "object" || value === null) return undefined;
  if ("toJSON" in value && typeof value.toJSON === "function") return undefined;
  if (value instanceof Map || value instanceof WeakMap) return { kind: "a Map", path };
  if (value instanceof Set || value instanceof WeakSet) return { kind: "a Set", path };
  if (value instanceof Promise) return { kind: "a promise", path };
  for (const name of Object.keys(value)) {
    const inner = (value as Record<string, unknown>)[name];
    if (typeof inner !== "object" && typeof inner !== "function") continue;
    const lost = whatIsLost(inner, path === "" ? name : `${path}.${name}`);
    if (lost !== undefined) return lost;
  }
  return undefined;
}

function tooDeep(what: string, maxDepth: number): FlotillaError {
  return new FlotillaError("payload_too_deep", `${what} nests deeper than ${maxDepth} levels`, {
    details: { maxDepth },
  });
}

function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let quoted = false;
  for (let index = 0; index < text.length; index++) {
    const char = text.charCodeAt(index);
    if (quoted) {
      if (char === 0x5c) index++;
      else if (char === 0x22) quoted = false;
    } else if (char === 0x22) quoted = true;
    else if (char === 0x5b || char === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (char === 0x5d || char === 0x7d) depth--;
  }
  return deepest;
}

/** The text as every database takes it: without U+0000, and without halves of surrogate pairs. */
export function storableText(text: string): string {
  return text.toWellFormed().replaceAll("\u0000", "\uFFFD");
}
