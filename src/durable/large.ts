import { createHash } from "node:crypto";
import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Step } from "../steps/model.ts";

// Each character takes at most six bytes as JSON within JSON, and a step takes 256 KiB.
const pieceChars = 40_000;
const maxPieces = 64;

/** Where a value is stored: in the step itself, or in steps of their own beside it. */
export type Stored = { readonly value: Json } | { readonly pieces: number; readonly hash: string };

type Place = { readonly step: Step; readonly name: string; readonly key: string };

/**
 * Stores a value that is too large for one step in pieces, before the step that refers to them. They are
 * found by the value's hash: if a pod dies before that step is stored, another value may come instead.
 */
export async function storeLarge({ step, name, key }: Place, value: Json): Promise<Stored> {
  const text = JSON.stringify(value);
  if (text.length <= pieceChars) return { value };
  const pieces = Math.ceil(text.length / pieceChars);
  if (pieces > maxPieces) {
    throw new FlotillaError(
      "payload_too_large",
      `step "${name}[${key}]": its value has ${text.length} characters, and ${maxPieces * pieceChars} can be stored`,
    );
  }
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 32);
  for (let at = 0; at < pieces; at++) {
    const piece = text.slice(at * pieceChars, (at + 1) * pieceChars);
    await step(name, { key: pieceKey(key, hash, at) }, () => encodePiece(piece));
  }
  return { pieces, hash };
}

export async function loadLarge({ step, name, key }: Place, stored: Json): Promise<Json> {
  if (!isJsonObject(stored)) throw unreadable(name, key);
  if (stored["value"] !== undefined) return stored["value"] as Json;
  const { pieces, hash } = stored;
  if (typeof pieces !== "number" || typeof hash !== "string") throw unreadable(name, key);
  let text = "";
  for (let at = 0; at < pieces; at++) {
    const missing = () => {
      throw unreadable(name, key);
    };
    text += decodePiece(await step(name, { key: pieceKey(key, hash, at) }, missing));
  }
  return JSON.parse(text) as Json;
}

/** A piece may end within a pair of surrogates, which no store takes alone. */
function encodePiece(piece: string): Json {
  return piece.isWellFormed()
    ? piece
    : [...Array(piece.length).keys()].map((at) => piece.charCodeAt(at));
}

function decodePiece(piece: Json): string {
  return typeof piece === "string" ? piece : String.fromCharCode(...(piece as number[]));
}

function pieceKey(key: string, hash: string, at: number): string {
  return `${key}.${hash}.${at + 1}`;
}

function unreadable(name: string, key: string): FlotillaError {
  return new FlotillaError(
    "step_changed",
    `step "${name}[${key}]": what is stored was not written by durable(), or pieces of it are missing`,
  );
}
