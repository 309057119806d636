import { messageOf } from "../../base/errors.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { UIMessage } from "../../protocol/message.ts";
import { messageToChunks } from "../../protocol/to-chunks.ts";
import { classify } from "../../throttle/classify.ts";
import { AgentFailure } from "./failure.ts";
import { readBody } from "./read-body.ts";

/** An answer that can be read. */
export type Pieces = {
  /** Chunks, not looked at yet. */
  readonly chunks: AsyncIterator<unknown, unknown>;
  /** Whether its end is a good one by itself, or only behind a chunk that says so. */
  readonly endsByItself: boolean;
  /** The error behind an `error` chunk, where it is known. */
  readonly cause?: () => unknown;
};

/** What an agent's function has given, as chunks. */
export function piecesOf(given: unknown, touch: () => void): Pieces {
  if (typeof given === "string") return byItself([given]);
  if (isResponse(given)) return responsePieces(given, touch);
  if (isObject(given)) {
    if (typeof given["toUIMessageStream"] === "function") return modelPieces(given as Streamed);
    if (isIterable(given)) return byItself(given);
    if (Array.isArray(given["parts"]))
      return byItself(messageToChunks(given as UIMessage, { live: false }));
  }
  throw new AgentFailure(
    "agent_invalid",
    "an agent gives text, chunks, a message, a Response, or what `streamText` gives",
  );
}

type Given = AsyncIterable<unknown> | Iterable<unknown>;

function byItself(given: Given): Pieces {
  return { chunks: asChunks(given), endsByItself: true };
}

/** Text among the chunks becomes a part of its own. */
async function* asChunks(given: Given): AsyncGenerator<unknown> {
  let texts = 0;
  let open: string | undefined;
  for await (const piece of given) {
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
    yield plain(piece);
  }
  if (open !== undefined) yield { type: "text-end", id: open };
}

const deltas = new Set(["text-delta", "reasoning-delta", "tool-input-delta"]);

/** What is left of a piece after a trip through JSON, as it is stored and sent: a `Date` is text. */
function plain(piece: unknown): unknown {
  if (piece instanceof Uint8Array) {
    throw new AgentFailure(
      "agent_invalid",
      "an agent's stream holds bytes: give the Response itself",
    );
  }
  if (deltas.has((piece as Chunk | undefined)?.type ?? "")) return piece;
  try {
    return JSON.parse(JSON.stringify(piece) ?? "null");
  } catch (error) {
    throw new AgentFailure("agent_invalid", `a chunk isn't JSON: ${messageOf(error, 200)}`);
  }
}

type Streamed = { toUIMessageStream(options: object): unknown };

/** What `streamText` gives. It hides errors from whoever watches; here they are kept for the log. */
function modelPieces(given: Streamed): Pieces {
  let cause: unknown;
  const stream = given.toUIMessageStream({
    onError(error: unknown) {
      cause ??= error;
      return "An error occurred.";
    },
  });
  if (!isObject(stream) || !isIterable(stream)) {
    throw new AgentFailure("agent_invalid", "`toUIMessageStream` gave no stream");
  }
  return { ...byItself(stream), cause: () => cause };
}

function responsePieces(response: Response, touch: () => void): Pieces {
  const headers = Object.fromEntries(response.headers);
  const body = (response.body ?? []) as AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  return {
    chunks: readBody({ status: response.status, headers, body, nowMs: 0 }, touch),
    endsByItself: false,
  };
}

function isResponse(given: unknown): given is Response {
  return typeof Response === "function" && given instanceof Response;
}

function isIterable(given: object): given is Given {
  return Symbol.asyncIterator in given || Symbol.iterator in given;
}

function isObject(given: unknown): given is Record<string, unknown> {
  return typeof given === "object" && given !== null;
}

/** The failure that an `error` chunk stands for. */
export function saidItself(errorText: string, cause: unknown, nowMs: number): AgentFailure {
  // Where the error itself is known, it says whether asking again might help.
  const kind = cause === undefined ? "ignored" : classify(cause, nowMs).kind;
  return new AgentFailure("agent_failed", errorText, { cause, retryable: kind !== "ignored" });
}
