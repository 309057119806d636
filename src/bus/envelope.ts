import { errorCodes, FlotillaError, messageOf } from "../base/errors.ts";
import type { Json } from "../base/json.ts";

/** A message between two processes, as one JSON text. */
export type Envelope =
  /** A message without an answer. */
  | { readonly topic: string; readonly body: Json }
  /** A request; the answer carries its number. */
  | { readonly topic: string; readonly body: Json; readonly ask: number }
  | { readonly answers: number; readonly body: Json }
  | { readonly answers: number; readonly error: SentError };

type SentError = {
  readonly code: string;
  readonly message: string;
  readonly details?: Json;
  /** Absent in envelopes from earlier releases. */
  readonly retryAfterMs?: number;
};

/** Envelopes of one sender to one address, in one row. */
export type EnvelopeRow = {
  readonly address: string;
  readonly sender: string;
  /** Grows with every row of a sender. */
  readonly seq: number;
  /** A JSON array of envelopes, in order. */
  readonly body: string;
};

/**
 * A row as the payload of a notification, with the `seq` of the sender's previous row for that
 * address.
 */
type NotifiedRow = Pick<EnvelopeRow, "sender" | "seq" | "body"> & { readonly after: number };

const form = /^(\d+) (\d+) ("[^\n]*")\n/;

export function encodeEnvelope(envelope: Envelope): string {
  try {
    // An undefined body would be left out, and the envelope would be invalid.
    const sent = "body" in envelope ? { ...envelope, body: envelope.body ?? null } : envelope;
    return JSON.stringify(sent);
  } catch (error) {
    throw new FlotillaError("payload_not_storable", `a message isn't JSON: ${messageOf(error)}`);
  }
}

/**
 * Decodes one envelope, or several in an array. Any program that reaches the store can insert rows,
 * so an invalid envelope is undefined.
 */
export function decodeEnvelopes(text: string): (Envelope | undefined)[] {
  try {
    return [JSON.parse(text) as unknown].flat().map(asEnvelope);
  } catch {
    return [undefined];
  }
}

/**
 * An error in its wire form. An unexpected error is a bug on the other side, and only its message
 * is sent.
 */
export function sentError(thrown: unknown): SentError {
  const message = messageOf(thrown);
  if (!(thrown instanceof FlotillaError)) return { code: "internal", message };
  const { code, details, retryAfterMs } = thrown;
  const sent = { code, message, ...(retryAfterMs !== undefined && { retryAfterMs }) };
  try {
    const plain = details && (JSON.parse(JSON.stringify(details)) as Json);
    return { ...sent, ...(plain !== undefined && { details: plain }) };
  } catch {
    // Details are optional, and the error matters more.
    return sent;
  }
}

/** Restores an error. A newer release may send codes that this one does not know. */
export function receivedError({ code, message, details, retryAfterMs }: SentError): FlotillaError {
  const known = errorCodes.find((each) => each === code) ?? "internal";
  const facts = details as Readonly<Record<string, unknown>> | undefined;
  return new FlotillaError(known, message, {
    ...(facts && { details: facts }),
    ...(typeof retryAfterMs === "number" && { retryAfterMs }),
  });
}

export function encodeNotification({ sender, seq, after, body }: NotifiedRow): string {
  return `${seq} ${after} ${JSON.stringify(sender)}\n${body}`;
}

/** Undefined if it cannot be decoded: then the receiver reads the rows. */
export function decodeNotification(text: string): NotifiedRow | undefined {
  const found = form.exec(text);
  if (!found) return undefined;
  const [head, seq, after, sender] = found;
  try {
    return {
      seq: Number(seq),
      after: Number(after),
      sender: String(JSON.parse(sender!)),
      body: text.slice(head.length),
    };
  } catch {
    return undefined;
  }
}

function asEnvelope(found: unknown): Envelope | undefined {
  if (typeof found !== "object" || found === null) return undefined;
  const { topic, ask, answers, error } = found as Record<string, unknown>;
  if (typeof answers === "number") {
    if ("body" in found || isSentError(error)) return found as Envelope;
    return undefined;
  }
  if (typeof topic !== "string" || !("body" in found)) return undefined;
  return ask === undefined || typeof ask === "number" ? (found as Envelope) : undefined;
}

function isSentError(error: unknown): error is SentError {
  if (typeof error !== "object" || error === null) return false;
  const { code, message } = error as Record<string, unknown>;
  return typeof code === "string" && typeof message === "string";
}
