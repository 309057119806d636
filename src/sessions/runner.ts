import type { Chunk } from "../protocol/chunk.ts";
import type { Header } from "./conversation/header.ts";

/** Makes answers and summaries on a pod. It belongs to the pod, so work survives a change of log owner. */
export type Runner = {
  /** Starts the work that the header names. Does nothing if it runs already or is outdated. */
  start(header: Header): void;
  /** Ends a turn; with `keep`, its partial answer is still stored. */
  abort(which: WorkId, options: { keep: boolean }): void;
  /** All work in progress or queued, for the confirmation that is sent to owners every second. */
  running(): readonly WorkId[];
  /** How many of these wait for other work to end. */
  readonly waiting: number;
  /** True when a suspect has just begun here, alone. */
  readonly hasSuspect: boolean;
  /** The answer in progress, as chunks from its beginning. */
  snapshot(sessionId: string): LiveChunks | undefined;
  /**
   * Begins nothing any more. Lets running work go on to its end for up to `drainMs`, default 0. Then no step
   * begins any more, and after `waitMs` the rest is released.
   */
  stop(options: { waitMs: number; drainMs?: number }): Promise<void>;
};

export type WorkId = {
  readonly sessionId: string;
  readonly epoch: number;
  readonly attempt: number;
};

/** Chunks of an answer, from `index` on. */
export type LiveChunks = WorkId & {
  readonly index: number;
  /** Set in a snapshot: these chunks replace everything up to `index + chunks.length`. */
  readonly fromStart?: true;
  /** In a snapshot: how many of the agent's chunks these replace. */
  readonly nextIndex?: number;
  readonly chunks: readonly Chunk[];
};
