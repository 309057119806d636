import type { Chunk } from "./chunk.ts";

/** Where a turn stands that waits for a permit of its agent's throttle. */
export type Waiting = {
  /**
   * How many calls of the same throttle and key wait on its pod and are served before it: other turns, and
   * calls of programs and tasks that are as urgent. Calls under way, tasks that aren't claimed yet, and
   * what waits on other pods aren't among them.
   */
  readonly ahead: number;
  /** About how long it will wait; absent where that isn't known. */
  readonly aboutMs?: number;
};

export const waitingChunkType = "data-waiting";

/** Tells the clients that watch an answer, and is never part of it. Undefined: it doesn't wait any more. */
export function waitingChunk(waiting: Waiting | undefined): Chunk {
  return { type: waitingChunkType, transient: true, data: waiting ?? null };
}

/** What the last of these chunks says of it; what was known where none says anything. */
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

/** Whether there is nothing of an answer in these. */
export function areTransient(chunks: readonly Chunk[]): boolean {
  return chunks.every(({ transient }) => transient === true);
}
