import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { settledWithin } from "../base/timeout.ts";
import { readAgentAnswer } from "../protocol/agent-http.ts";
import { type Chunk, isTerminal, parseChunk, hasContent } from "../protocol/chunk.ts";
import { createBodyReader, formatOf } from "../protocol/stream.ts";
import { createRefusal, refuse } from "./refusal.ts";

type StreamOptions = {
  readonly clock: Clock;
  /** After this long without a chunk a comment is sent, so that the connection does not look dead. */
  readonly keepAliveMs: number;
  /** Aborts when the client is gone. */
  readonly gone: AbortController;
  /** The text that users see for an error; undefined to hide it from them. */
  readonly explain: (error: unknown) => Promise<string | undefined>;
};

const headers = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-vercel-ai-ui-message-stream": "v1",
  // Keeps nginx from buffering the answer until it is complete.
  "x-accel-buffering": "no",
};
const masked = "An error occurred.";
const late = Symbol("late");

/** A Response with an error status. It is sent as it is, unless the answer has begun. */
class Declined extends Error {
  readonly response: Response;
  constructor(response: Response) {
    super(`the agent returned a Response with the status ${response.status}`);
    this.response = response;
  }
}

/**
 * Streams an answer as it is made. Nothing is sent before the first content or the first comment. Until
 * then a failure becomes a status, and the caller can retry without users seeing the answer begin twice.
 * If `explain` has a text for users, the failure is final, and sent as an answer.
 */
export async function streamed(
  source: AsyncGenerator<Chunk, void>,
  { clock, keepAliveMs, gone, explain }: StreamOptions,
): Promise<Response> {
  const { signal } = gone;
  const leave = () => void source.return().catch(() => {});
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });

  let next: Promise<IteratorResult<Chunk, void>> | undefined;
  /** The next chunk; `late` if it takes too long; undefined from the end on. */
  const take = async (): Promise<Chunk | typeof late | undefined> => {
    next ??= source.next().finally(() => (next = undefined));
    const result = await settledWithin(clock, keepAliveMs, next);
    if (result === undefined) return late;
    return result.done === true ? undefined : result.value;
  };

  const first: (Chunk | typeof late)[] = [];
  try {
    for (;;) {
      const taken = await take();
      if (taken !== undefined) first.push(taken);
      if (taken === undefined || taken === late || hasContent(taken)) break;
    }
  } catch (error) {
    if (error instanceof Declined) return error.response;
    const text = signal.aborted ? undefined : await explain(error);
    if (text === undefined) return refuse(createRefusal(500, "handler_failed", "the agent failed"));
    first.push({ type: "error", errorText: text });
    if (first.length === 1) first.unshift({ type: "start" });
  }

  async function* lines(): AsyncGenerator<string, void> {
    yield* first.map(line);
    try {
      for (let taken = await take(); taken !== undefined; taken = await take()) yield line(taken);
    } catch (error) {
      if (signal.aborted) return;
      yield line({ type: "error", errorText: (await explain(error)) ?? masked });
    }
    yield "data: [DONE]\n\n";
  }
  return new Response(bytesOf(lines(), gone), { headers });
}

/**
 * An answer as chunks that can be sent. It begins with `start`, and its last chunk says how it ended,
 * because a stream that just ends looks like an agent that died. Throws the agent's error.
 */
export async function* chunksOf(answer: () => unknown): AsyncGenerator<Chunk, void> {
  const read = readAgentAnswer(await answer(), invalid);
  const isResponse = read.type === "response";
  const pieces = isResponse ? responseChunks(read.response) : read.chunks;
  let started = false;
  let ended = false;
  for await (const piece of pieces) {
    const chunk = parseChunk(piece);
    if (!isChunk(chunk)) throw invalid(chunk.error);
    if (!started && chunk.type !== "start") yield { type: "start" };
    started = true;
    const cause = read.type === "chunks" && chunk.type === "error" ? read.cause?.() : undefined;
    if (cause !== undefined) throw cause;
    yield chunk;
    // The generator is read to its end, because it may have work left, such as recording its cost.
    ended ||= isTerminal(chunk) || chunk.type === "finish";
  }
  if (ended) return;
  if (isResponse) throw invalid("the Response ended before its answer was complete");
  if (!started) yield { type: "start" };
  yield { type: "finish" };
}

function line(taken: Chunk | typeof late): string {
  return taken === late ? ": still here\n\n" : `data: ${JSON.stringify(taken)}\n\n`;
}

/** Reads on demand, so that a slow reader slows the answer down. */
function bytesOf(
  lines: AsyncGenerator<string, void>,
  gone: AbortController,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const encoder = new TextEncoder();
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = await lines.next();
        if (gone.signal.aborted) return;
        if (done === true) controller.close();
        else controller.enqueue(encoder.encode(value));
      },
      cancel: (reason) => gone.abort(reason),
    },
    { highWaterMark: 0 },
  );
}

async function* responseChunks(response: Response): AsyncGenerator<unknown> {
  if (!response.ok) throw new Declined(response);
  const format = formatOf(response.headers.get("content-type"));
  if (!format) {
    throw invalid(
      "a Response must be a UI message stream: text/event-stream or application/x-ndjson",
    );
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
