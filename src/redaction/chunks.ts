import { isJsonObject } from "../base/json.ts";
import type { Chunk } from "../protocol/chunk.ts";
import type { Redactor } from "./redactor.ts";

/** Some chunks of an answer, as a session's feed has them. */
export type ChunkBatch = {
  readonly epoch: number;
  readonly attempt: number;
  readonly index: number;
  /** With index 0: the index after these chunks, where they stand for more than they are. */
  readonly nextIndex?: number;
  readonly chunks: readonly Chunk[];
};

/** Redacts a streaming answer for one reader. */
export type ChunkRedaction = {
  /** The chunks that can be sent by now, under the indexes that they had; undefined where there are none. */
  push(batch: ChunkBatch): ChunkBatch | undefined;
};

/** What a part of the answer says, as far as it waits. */
type Saying = { readonly deltas: number[]; text: string; isOver: boolean };

const textDeltas: ReadonlySet<string> = new Set(["text-delta", "reasoning-delta"]);
const textEnds: ReadonlySet<string> = new Set(["text-end", "reasoning-end"]);
const answerEnds: ReadonlySet<string> = new Set(["finish", "abort", "error"]);
// A line that has no end must not be kept without one.
const maxLineChars = 16 * 1024;
// Most secrets are shorter, with the name or the word in front of them.
const maxSecretChars = 1024;

/**
 * A secret may come in pieces, so text is sent line by line, and a private key as a whole: a line is
 * redacted once it is complete. The number of chunks stays the same, because readers count them. So the
 * first chunk of the lines gets their text, and those that follow get none.
 */
export function createChunkRedaction(redactor: Redactor): ChunkRedaction {
  let waiting: Chunk[] = [];
  let answer: { epoch: number; attempt: number } | undefined;
  /** The index of the first chunk that waits. */
  let index = 0;

  return {
    push(batch) {
      const { epoch, attempt, chunks } = batch;
      const isSame = answer?.epoch === epoch && answer.attempt === attempt;
      const isNext = isSame && batch.index === index + waiting.length;
      const isStart = batch.index === 0;
      if (!isNext || isStart) {
        waiting = [];
        answer = { epoch, attempt };
        index = (batch.nextIndex ?? batch.index + chunks.length) - chunks.length;
      }
      waiting.push(...chunks);
      const ready = completeLines(waiting, redactor);
      const sent = waiting.slice(0, ready).map((chunk) => redactChunk(chunk, redactor));
      const from = index;
      waiting = waiting.slice(ready);
      index += ready;
      if (isStart) return { epoch, attempt, index: 0, nextIndex: index, chunks: sent };
      return sent.length === 0 ? undefined : { epoch, attempt, index: from, chunks: sent };
    },
  };
}

/** Redacts the lines that are complete, in place. Returns how many chunks hold nothing that waits. */
function completeLines(waiting: Chunk[], redactor: Redactor): number {
  const sayings: Saying[] = [];
  /** By id, which a later part of the answer may have again. */
  const open = new Map<string, Saying>();
  for (const [at, chunk] of waiting.entries()) {
    const { type } = chunk;
    if (textDeltas.has(type)) {
      const saying = open.get(idOf(chunk)) ?? { deltas: [], text: "", isOver: false };
      if (saying.deltas.length === 0) sayings.push(saying);
      open.set(idOf(chunk), saying);
      saying.deltas.push(at);
      saying.text += String(chunk["delta"]);
    } else if (textEnds.has(type)) {
      const ended = open.get(idOf(chunk));
      if (ended) ended.isOver = true;
      open.delete(idOf(chunk));
    } else if (answerEnds.has(type)) for (const each of sayings) each.isOver = true;
  }
  let ready = waiting.length;
  const say = (at: number, delta: string) => (waiting[at] = { ...waiting[at]!, delta });
  for (const { deltas, text, isOver } of sayings) {
    const [first, last] = [deltas[0]!, deltas.at(-1)!];
    if (!isOver) ready = Math.min(ready, last);
    // What isn't complete needs a chunk of its own to come with.
    if (!isOver && first === last) continue;
    const isLong = text.length > maxLineChars;
    const cut = isOver ? text.length : isLong ? endOfWords(text) : endOfLines(text);
    for (const at of deltas) say(at, "");
    say(first, redactor.text(text.slice(0, cut)));
    if (!isOver) say(last, text.slice(cut));
  }
  return ready;
}

/** The end of a word, with enough after it for a secret of which the end hasn't come. */
function endOfWords(text: string): number {
  const end = text.length - maxSecretChars;
  return text.lastIndexOf(" ", end) + 1 || end;
}

/** The end of the last line that is complete and not within a private key. */
function endOfLines(text: string): number {
  const begin = text.lastIndexOf("-----BEGIN");
  const end = begin < 0 ? -1 : text.indexOf("-----END", begin);
  const isOpen = begin >= 0 && (end < 0 || !text.includes("\n", end));
  return text.lastIndexOf("\n", isOpen ? begin : undefined) + 1;
}

function redactChunk(chunk: Chunk, redactor: Redactor): Chunk {
  const { delta, ...rest } = chunk;
  const left = redactor.value(textDeltas.has(chunk.type) ? rest : chunk, "parts");
  // A path may hide parts as a whole; readers need the type even so.
  const shown = isJsonObject(left) ? { ...left, type: chunk.type } : { type: chunk.type };
  // A tool's input comes whole afterwards, where its names can be read.
  if (chunk.type === "tool-input-delta") return { ...shown, inputTextDelta: "" };
  return textDeltas.has(chunk.type) ? { ...shown, delta } : shown;
}

/** Text and reasoning have ids of their own. */
function idOf({ type, id }: Chunk): string {
  return `${type.split("-")[0]} ${String(id)}`;
}
