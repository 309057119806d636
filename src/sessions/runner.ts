import type { Chunk } from "../protocol/chunk.ts";
import type { Header } from "./conversation/header.ts";

/** What makes answers and summaries on a pod. It outlives the ownership of logs: it belongs to the pod. */
export type Runner = {
  /** Starts the work that the header names. Does nothing where it runs already, or has been replaced. */
  start(header: Header): void;
  /** Ends a turn; with `keep`, what it has so far is still stored. */
  abort(which: WorkId, options: { keep: boolean }): void;
  /** All that is under way or waits for its turn, for the owners to hear of every second. */
  running(): readonly WorkId[];
  /** How much of that waits for other work to end first. */
  readonly waiting: number;
  /** Work that pods were lost under has just begun here, alone. */
  readonly hasSuspect: boolean;
  /** The answer that is being made, as chunks that begin it anew. */
  snapshot(sessionId: string): LiveChunks | undefined;
  /** Lets what runs end, for so long, then releases it. */
  stop(options: { waitMs: number }): Promise<void>;
};

export type WorkId = {
  readonly sessionId: string;
  readonly epoch: number;
  readonly attempt: number;
};

/** Chunks of an answer from the `index`-th on. */
export type LiveChunks = WorkId & {
  readonly index: number;
  /** True of a snapshot: these chunks stand for everything up to `index + chunks.length`. */
  readonly fromStart?: true;
  /** How many chunks of the agent these stand for, in a snapshot. */
  readonly nextIndex?: number;
  readonly chunks: readonly Chunk[];
};
