import { FlotillaError } from "../base/errors.ts";
import { givenAnswer } from "../protocol/agent-http.ts";
import { type Chunk, endsListening, parseChunk } from "../protocol/chunk.ts";
import { createBodyReader, formatOf } from "../protocol/stream.ts";

/** A Response that says no, and is sent as it is as long as nothing else was. */
export class Declined extends Error {
  readonly response: Response;
  constructor(response: Response) {
    super(`the answer is a Response with the status ${response.status}`);
    this.response = response;
  }
}

/**
 * All of an answer as chunks that can be sent: it begins with `start`, and its last one says how it
 * ended, because a stream that just ends is one whose agent has died. Throws what went wrong.
 */
export async function* chunksOf(answer: () => unknown): AsyncGenerator<Chunk, void> {
  const given = givenAnswer(await answer(), invalid);
  const isResponse = given.type === "response";
  const pieces = isResponse ? responseChunks(given.response) : given.chunks;
  let started = false;
  let ended = false;
  for await (const piece of pieces) {
    const chunk = parseChunk(piece);
    if (!isChunk(chunk)) throw invalid(chunk.error);
    if (!started && chunk.type !== "start") yield { type: "start" };
    started = true;
    const cause = given.type === "chunks" && chunk.type === "error" ? given.cause?.() : undefined;
    if (cause !== undefined) throw cause;
    yield chunk;
    // Whoever made it may have something to do yet, such as to write down what it has cost.
    ended ||= endsListening(chunk) || chunk.type === "finish";
  }
  if (ended) return;
  if (isResponse) throw invalid("the Response ended before the answer in it");
  if (!started) yield { type: "start" };
  yield { type: "finish" };
}

async function* responseChunks(response: Response): AsyncGenerator<unknown> {
  if (!response.ok) throw new Declined(response);
  const format = formatOf(response.headers.get("content-type"));
  if (!format) {
    throw invalid("a Response is a UI message stream: text/event-stream or application/x-ndjson");
  }
  const reader = createBodyReader({ format });
  const read = (items: ReturnType<typeof reader.push>) =>
    items.map((item) => {
      if (item.type === "error") throw invalid(item.error.message);
      return item;
    });
  for await (const bytes of response.body ?? []) {
    for (const item of read(reader.push(bytes))) {
      if (item.type === "done") return;
      yield item.chunk;
    }
  }
  for (const item of read(reader.end())) if (item.type === "chunk") yield item.chunk;
}

function isChunk(parsed: Chunk | { readonly error: string }): parsed is Chunk {
  return "type" in parsed;
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_output", message);
}
