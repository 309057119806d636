import { FlotillaError } from "../../base/errors.ts";
import type { ShareEntry } from "./lease.ts";
import type { CallConstraints } from "./sql.ts";

/** The document of a throttle: the part of its row that pods need, as the row has it. */
export type ShareDocument = {
  readonly bound: number;
  readonly epoch: number;
  /** What limits calls besides the bound, as JSON. */
  readonly gate: string;
  readonly pass: number;
  /** The revision of the row that the limit is from; 0 where it is none that was learned. */
  readonly of: number;
  /** Which pod has which share, as JSON. */
  readonly shares: string;
};

const version = 1;
/** Far more than the shares of a thousand pods take. */
const maxDocumentChars = 1_024 * 1_024;
const breakers = ["closed", "open", "half_open"] as const;

export function documentOf(row: {
  readonly bound: number;
  readonly epoch?: number;
  readonly pass?: number;
  readonly constraints?: CallConstraints;
  readonly rev?: number;
  readonly shares: string;
}): ShareDocument {
  const { bound, epoch = 0, pass = 0, constraints, rev = 0, shares } = row;
  return { bound, epoch, pass, gate: JSON.stringify(constraints ?? {}), of: rev, shares };
}

export function encodeDocument(document: ShareDocument): string {
  const { bound, epoch, gate, pass, of, shares } = document;
  return JSON.stringify({ v: version, bound, epoch, gate, pass, of, shares });
}

/**
 * Throws if the text is no document of this release. Then no permit is granted by it, because nothing else
 * says what other pods have.
 */
export function decodeDocument(text: string): ShareDocument {
  const found = text.length <= maxDocumentChars ? fieldsOf(text) : undefined;
  const { v, bound, epoch, gate, pass, of, shares } = found ?? {};
  const constraints = fieldsOf(gate);
  const entries = fieldsOf(shares);
  const isKnown =
    v === version &&
    [bound, epoch, pass, of].every(isCount) &&
    constraints !== undefined &&
    isGate(constraints) &&
    entries !== undefined &&
    Object.values(entries).every(isEntry);
  if (isKnown) return { bound, epoch, gate, pass, of, shares } as ShareDocument;
  throw new FlotillaError(
    "store_unavailable",
    "the shares of a throttle were written by a later release, or by another program: upgrade this pod",
  );
}

function isGate({ breaker = "closed", holdMs = 0, refillPerS, silent = {} }: Fields): boolean {
  return (
    breakers.some((each) => each === breaker) &&
    isAmount(holdMs) &&
    (refillPerS === undefined || isAmount(refillPerS)) &&
    isFields(silent) &&
    Object.values(silent).every(isCount)
  );
}

function isEntry(found: unknown): found is ShareEntry {
  if (!isFields(found)) return false;
  const { share, renewal, leaseMs, longestMs, host } = found;
  const isHost = host === undefined || typeof host === "string";
  return isHost && isCount(share) && isCount(renewal) && isAmount(leaseMs) && isAmount(longestMs);
}

type Fields = Record<string, unknown>;

/** Undefined if this is no JSON of an object. */
function fieldsOf(text: unknown): Fields | undefined {
  if (typeof text !== "string") return undefined;
  try {
    const found: unknown = JSON.parse(text);
    return isFields(found) ? found : undefined;
  } catch {
    return undefined;
  }
}

function isFields(found: unknown): found is Fields {
  return typeof found === "object" && found !== null && !Array.isArray(found);
}

function isCount(found: unknown): found is number {
  return Number.isSafeInteger(found) && (found as number) >= 0;
}

function isAmount(found: unknown): found is number {
  return typeof found === "number" && Number.isFinite(found) && found >= 0;
}
