import { setTimeout as sleep } from "node:timers/promises";
import type { Chunk } from "flotilla";

const wordMs = 40;

/** A text as a model would bring it: word by word. */
export async function* slowly(text: string, signal: AbortSignal): AsyncGenerator<string> {
  for (const word of words(text)) {
    yield word;
    await sleep(wordMs, undefined, { signal });
  }
}

/** What goes before an answer. */
export async function* thinking(text: string, signal: AbortSignal): AsyncGenerator<Chunk> {
  yield { type: "reasoning-start", id: "r1" };
  for (const word of words(text)) {
    yield { type: "reasoning-delta", id: "r1", delta: word };
    await sleep(wordMs, undefined, { signal });
  }
  yield { type: "reasoning-end", id: "r1" };
}

function words(text: string): string[] {
  return text.match(/\S+\s*/g) ?? [];
}
