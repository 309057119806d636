import { errorCodes, FlotillaError, messageOf } from "../base/errors.ts";
import type { Json } from "../base/json.ts";

/** What travels between two processes, as one JSON text. */
export type Envelope =
  /** Nobody answers it. */
  | { readonly topic: string; readonly body: Json }
  /** Whoever asked knows the answer by the number. */
  | { readonly topic: string; readonly body: Json; readonly ask: number }
  | { readonly answers: number; readonly body: Json }
  | { readonly answers: number; readonly error: SentError };

type SentError = {
  readonly code: string;
  readonly message: string;
  readonly details?: Json;
};

export function encodeEnvelope(envelope: Envelope): string {
  try {
    // A body that is undefined would be left out, and its reader would take that for none.
    const sent = "body" in envelope ? { ...envelope, body: envelope.body ?? null } : envelope;
    return JSON.stringify(sent);
  } catch (error) {
    throw new FlotillaError("payload_not_storable", `a letter isn't JSON: ${messageOf(error)}`);
  }
}

/**
 * One letter, or several in an array. Anybody who reaches the store can leave something there; what is
 * no letter is undefined.
 */
export function decodeEnvelopes(text: string): (Envelope | undefined)[] {
  try {
    return [JSON.parse(text) as unknown].flat().map(asEnvelope);
  } catch {
    return [undefined];
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

/** What was thrown as it travels. What isn't ours is a bug over there, and only its message is told. */
export function sentError(thrown: unknown): SentError {
  const message = messageOf(thrown);
  if (!(thrown instanceof FlotillaError)) return { code: "internal", message };
  const { code, details } = thrown;
  try {
    const plain = details && (JSON.parse(JSON.stringify(details)) as Json);
    return { code, message, ...(plain !== undefined && { details: plain }) };
  } catch {
    // Details are for programs, and the error is worth more than they are.
    return { code, message };
  }
}

/** The same error on this side. A newer release may know codes that this one doesn't. */
export function receivedError({ code, message, details }: SentError): FlotillaError {
  const known = errorCodes.find((each) => each === code) ?? "internal";
  const facts = details as Readonly<Record<string, unknown>> | undefined;
  return new FlotillaError(known, message, facts && { details: facts });
}

/** Letters of one sender to one address, in one row. */
export type EnvelopeRow = {
  readonly address: string;
  readonly sender: string;
  /** Rises with every row of a sender. */
  readonly seq: number;
  /** A JSON array of letters, in order. */
  readonly body: string;
};

/** A row as it comes along with a hint, and the number of the row that its sender left there before it. */
type NotifiedRow = Pick<EnvelopeRow, "sender" | "seq" | "body"> & { readonly after: number };

export function encodeNotification({ sender, seq, after, body }: NotifiedRow): string {
  return `${seq} ${after} ${JSON.stringify(sender)}\n${body}`;
}

const form = /^(\d+) (\d+) ("[^\n]*")\n/;

/** Undefined where it can't be read: then there is something to look for. */
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
