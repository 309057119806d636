import { FlotillaError, messageOf } from "../base/errors.ts";
import { trimEnd } from "../base/trim-end.ts";
import type { Chunk } from "./chunk.ts";
import type { UIMessage } from "./message.ts";
import { messageToChunks } from "./to-chunks.ts";

/** What an agent may answer with. Strings are text; all other forms are the AI SDK's. */
export type AgentAnswer =
  | string
  | UIMessage
  | Response
  | ReadableStream<unknown>
  | AsyncIterable<Chunk | string>
  | Iterable<Chunk | string>
  /** The return value of `streamText`. */
  | { toUIMessageStream(options?: never): unknown };

/** The request to an agent at a URL: what the AI SDK's own transport sends, and `flotilla`. */
export type AgentRequest = {
  readonly id: string;
  readonly messages: readonly UIMessage[];
  readonly trigger: "submit-message" | "regenerate-message" | "compact";
  readonly messageId?: string;
  readonly flotilla: Envelope;
};

type Envelope = {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agent: string;
  readonly epoch: number;
  readonly attempt: number;
  /** The author of the message that is answered. */
  readonly user?: string;
  readonly summary?: string;
  /** The last entry that the messages cover. */
  readonly seq: number;
};

/** An answer in one of two forms. */
type ReadAnswer =
  | {
      readonly type: "chunks";
      /** Not validated yet. The end of the stream is a good end. */
      readonly chunks: AsyncGenerator<unknown>;
      /** The error behind an `error` chunk, if known. */
      readonly cause?: () => unknown;
    }
  | { readonly type: "response"; readonly response: Response };

const prefix = "whsec_";
const keyBytes = { min: 24, max: 64 };
const deltas = new Set(["text-delta", "reasoning-delta", "tool-input-delta"]);

/** Classifies the return value of an agent's function. `invalid` makes the error for an unknown form. */
export function readAgentAnswer(
  returned: unknown,
  invalid: (message: string) => Error,
): ReadAnswer {
  const fromPieces = (pieces: Pieces) =>
    ({ type: "chunks", chunks: asChunks(pieces, invalid) }) as const;
  if (typeof returned === "string") return fromPieces([returned]);
  if (isResponse(returned)) return { type: "response", response: returned };
  if (isObject(returned)) {
    if (typeof returned["toUIMessageStream"] === "function") {
      const { stream, cause } = modelStream(returned as Streamed);
      if (isObject(stream) && isIterable(stream)) return { ...fromPieces(stream), cause };
      throw invalid("`toUIMessageStream` returned no stream");
    }
    if (isIterable(returned)) return fromPieces(returned);
    if (Array.isArray(returned["parts"]))
      return fromPieces(messageToChunks(returned as UIMessage, { live: false }));
  }
  throw invalid(
    "an agent must return text, chunks, a message, a Response, or the result of `streamText`",
  );
}

/** Decodes a secret in the form of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64. */
export function secretKey(what: string, secret: unknown): Uint8Array<ArrayBuffer> {
  const text = typeof secret === "string" && secret.startsWith(prefix) ? secret : "";
  const key = fromBase64(text.slice(prefix.length));
  if (key && key.length >= keyBytes.min && key.length <= keyBytes.max) return key;
  throw new FlotillaError(
    "invalid_option",
    `${what}: a secret must be \`whsec_\` and ${keyBytes.min} to ${keyBytes.max} bytes in base64`,
  );
}

/** Decodes base64, with or without padding. Undefined if the text is not base64. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  // Decoders skip white space, but a secret that was altered on its way must not pass.
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  let bytes: string;
  try {
    bytes = atob(text);
  } catch {
    return undefined;
  }
  if (withoutPadding(btoa(bytes)) !== withoutPadding(text)) return undefined;
  return Uint8Array.from(bytes, (byte) => byte.charCodeAt(0));
}

type Pieces = AsyncIterable<unknown> | Iterable<unknown>;

/** Strings among the chunks become text parts of their own. */
async function* asChunks(
  pieces: Pieces,
  invalid: (message: string) => Error,
): AsyncGenerator<unknown> {
  let texts = 0;
  let open: string | undefined;
  for await (const piece of pieces) {
    if (typeof piece === "string") {
      if (open === undefined) {
        open = `text-${++texts}`;
        yield { type: "text-start", id: open };
      }
      yield { type: "text-delta", id: open, delta: piece };
      continue;
    }
    if (open !== undefined) yield { type: "text-end", id: open };
    open = undefined;
    yield plain(piece, invalid);
  }
  if (open !== undefined) yield { type: "text-end", id: open };
}

/** The value after a round trip through JSON, as it is stored and sent: a `Date` becomes a string. */
function plain(piece: unknown, invalid: (message: string) => Error): unknown {
  if (piece instanceof Uint8Array) {
    throw invalid("the agent's stream contains bytes: return the Response itself");
  }
  if (deltas.has((piece as Chunk | undefined)?.type ?? "")) return piece;
  try {
    return JSON.parse(JSON.stringify(piece) ?? "null");
  } catch (error) {
    throw invalid(`a chunk isn't JSON: ${messageOf(error, 200)}`);
  }
}

type Streamed = { toUIMessageStream(options: object): unknown };

/** The stream of a `streamText` result. Its errors are hidden from users and kept for the log. */
function modelStream(result: Streamed): { stream: unknown; cause: () => unknown } {
  let cause: unknown;
  const stream = result.toUIMessageStream({
    onError(error: unknown) {
      cause ??= error;
      return "An error occurred.";
    },
  });
  return { stream, cause: () => cause };
}

/** Servers replace the global class with their own, so this checks the properties. */
function isResponse(value: unknown): value is Response {
  if (!isObject(value) || typeof value["status"] !== "number" || !("body" in value)) return false;
  return isObject(value["headers"]) && typeof value["headers"]["get"] === "function";
}

function isIterable(value: object): value is Pieces {
  return Symbol.asyncIterator in value || Symbol.iterator in value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function withoutPadding(base64: string): string {
  return trimEnd(base64, (char) => char === "=");
}
