import { givenAnswer } from "../../protocol/agent-http.ts";
import { classify } from "../../throttles/classify.ts";
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
  const answer = givenAnswer(given, (message) => new AgentFailure("agent_invalid", message));
  if (answer.type === "response") return responsePieces(answer.response, touch);
  const { type: _, ...pieces } = answer;
  return { ...pieces, endsByItself: true };
}

function responsePieces(response: Response, touch: () => void): Pieces {
  const headers = Object.fromEntries(response.headers);
  const body = (response.body ?? []) as AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  return {
    chunks: readBody({ status: response.status, headers, body, nowMs: 0 }, touch),
    endsByItself: false,
  };
}

/** The failure that an `error` chunk stands for. */
export function saidItself(errorText: string, cause: unknown, nowMs: number): AgentFailure {
  // Where the error itself is known, it says whether asking again might help.
  const kind = cause === undefined ? "ignored" : classify(cause, nowMs).kind;
  return new AgentFailure("agent_failed", errorText, { cause, retryable: kind !== "ignored" });
}
