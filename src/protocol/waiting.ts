import type { Chunk } from "./chunk.ts";

/** The position of a turn that waits for a permit of its agent's throttle. */
export type Waiting = {
  /**
   * How many calls of the same throttle and key on the same pod are served before it: other turns, and
   * equally urgent calls of programs and tasks. Running calls, unclaimed tasks and calls on other pods do
   * not count.
   */
  readonly ahead: number;
  /** Roughly how long it will wait; absent if unknown. */
  readonly aboutMs?: number;
};

export const waitingChunkType = "data-waiting";

/** A chunk for clients that watch an answer, never part of it. Undefined: it no longer waits. */
export function waitingChunk(waiting: Waiting | undefined): Chunk {
  return { type: waitingChunkType, transient: true, data: waiting ?? null };
}

/** The position after these chunks; the known one if none of them changes it. */
export function waitingAfter(
  known: Waiting | undefined,
  chunks: readonly Chunk[],
): Waiting | undefined {
  const last = chunks.findLast(
    (chunk) => chunk.type === waitingChunkType && chunk["transient"] === true,
  );
  if (!last) return known;
  const { ahead, aboutMs } = (last["data"] ?? {}) as Partial<Record<keyof Waiting, unknown>>;
  if (typeof ahead !== "number") return undefined;
  return { ahead, ...(typeof aboutMs === "number" && { aboutMs }) };
}

/** True if none of these chunks is part of the answer. */
export function areTransient(chunks: readonly Chunk[]): boolean {
  return chunks.every(({ transient }) => transient === true);
}
