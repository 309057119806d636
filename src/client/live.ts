import { type Assembler, createAssembler } from "../protocol/assembler.ts";
import type { Chunk } from "../protocol/chunk.ts";
import type { LiveAnswer, SessionEvent } from "./session.ts";

type Chunks = Extract<SessionEvent, { type: "chunks" }>;

/** The answer that is being made, put together from its chunks. */
export type Live = {
  readonly epoch: number;
  readonly attempt: number;
  push(chunks: readonly Chunk[]): void;
  /** The same object until more has come. */
  answer(): LiveAnswer;
  /** What was said so far, as a few chunks from `start` on. */
  snapshot(): readonly Chunk[];
};

// What the server lets through is bounded there; this is against endless memory only.
const bytesMost = 64 * 1024 * 1024;

export function createLive({ epoch, attempt, chunks }: Chunks, messageId: string): Live {
  const assembler: Assembler = createAssembler({ messageId, maxBytes: bytesMost });
  let answer: LiveAnswer | undefined;
  const push = (more: readonly Chunk[]) => {
    // One that is refused has changed nothing: it is a preview, and the entry is what counts.
    for (const chunk of more) assembler.push(chunk);
    answer = undefined;
  };
  push(chunks);
  return {
    epoch,
    attempt,
    push,
    answer: () => (answer ??= { messageId, epoch, attempt, message: assembler.message() }),
    snapshot: () => assembler.snapshot(),
  };
}
