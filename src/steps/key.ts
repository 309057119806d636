import crypto from "node:crypto";
import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import { isStorable } from "../base/options.ts";

/**
 * The keys of steps are paths of names: `read`, `read#2` for the second of its name, `read[a]` with
 * a key, `write@3/model` within the third round of a loop, `outer/inner` within a step. No two paths
 * have the same text, because names hold none of these signs, and `]` is doubled within a key.
 */

const maxNameChars = 200;
const maxKeyChars = 1_000;
const nameSigns = /[#@/[\]]/;

// A Postgres index holds 2,700 bytes of a row, and a path has up to eight segments.
const maxSegmentBytes = 250;
const cutChars = 40;

// Many downstreams take keys of 255 characters.
const maxContextKeyChars = 255;
const printable = /^[\x20-\x7e]*$/;

/** Throws unless it can be the name of a step. */
export function checkStepName(name: unknown): asserts name is string {
  const isName =
    typeof name === "string" &&
    name !== "" &&
    name.length <= maxNameChars &&
    !nameSigns.test(name) &&
    isStorable(name);
  if (isName) return;
  throw new FlotillaError(
    "invalid_option",
    `a step's name is a text of 1 to ${maxNameChars} characters without # @ / [ and ], not ${shown(name)}: give what tells steps of one name apart as \`key\``,
  );
}

/** Throws unless it can be the key of a step. */
export function checkStepKey(name: string, key: unknown): asserts key is string {
  const isKey =
    typeof key === "string" && key !== "" && key.length <= maxKeyChars && isStorable(key);
  if (isKey) return;
  throw new FlotillaError(
    "invalid_option",
    `step "${name}": its key must be a text of 1 to ${maxKeyChars} characters, not ${shown(key)}`,
  );
}

/** The segment of the n-th step of a name without a key. */
export function ordinalSegment(name: string, ordinal: number): string {
  return shortened(ordinal === 1 ? name : `${name}#${ordinal}`);
}

export function keyedSegment(name: string, key: string): string {
  return shortened(`${name}[${key.replaceAll("]", "]]")}]`);
}

/** What the keys of steps within a step begin with. */
export function innerPrefix(path: string): string {
  return `${path}/`;
}

/** What the keys of steps in a round of a loop begin with. */
export function roundPrefix(path: string, round: number): string {
  return `${path}@${round}/`;
}

/** The key of what an attempt has taken the n-th time. No step's key begins like it. */
export function takenKey(nth: number): string {
  return `@taken[${nth}]`;
}

/**
 * The ranges of keys, from the first to before the second, that hold all steps within this one and
 * nothing else: `0` follows `/` in the order of bytes, and `A` follows `@`.
 */
export function innerRanges(path: string): readonly (readonly [from: string, before: string])[] {
  return [
    [`${path}/`, `${path}0`],
    [`${path}@`, `${path}A`],
  ];
}

/** The key that a step's function gets, which downstreams may compare. */
export function contextKey(ownerId: string, path: string): string {
  const key = `${ownerId}/${path}`;
  if (key.length <= maxContextKeyChars && printable.test(key)) return key;
  return `${ownerId}/#${hashOf(path)}`;
}

/** The hash of a step's input, whatever the order of its fields. */
export function inputHash(input: Json): string {
  return hashOf(JSON.stringify(sorted(input)));
}

/** A long segment is cut and ends in its hash, which no name and no key can look like. */
function shortened(segment: string): string {
  if (segment.length * 3 <= maxSegmentBytes) return segment;
  if (Buffer.byteLength(segment) <= maxSegmentBytes) return segment;
  return `${segment.slice(0, cutChars).toWellFormed()}#h${hashOf(segment)}`;
}

function hashOf(text: string): string {
  return crypto.hash("sha256", text, "base64url").slice(0, 27);
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isJsonObject(value)) return value;
  const names = Object.keys(value).toSorted();
  return Object.fromEntries(names.map((name) => [name, sorted(value[name])]));
}

function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
