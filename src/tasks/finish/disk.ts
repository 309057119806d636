import type { Finish } from "../sql/finish.ts";

/** How an attempt ended, with the pod that made it: its row names another by the time it is sent. */
export type Entry = { readonly podId: string; readonly finish: Finish };

/** Every claim has a token of its own, so this names an attempt for ever. */
export type EntryKey = Pick<Finish, "taskId" | "token">;

/** Where endings are kept that the store can't take now: files, or in simulations a disk to lose. */
export type OutboxDisk = {
  /**
   * What earlier processes have left here, and nobody else sends. It is this one's from now on.
   * Where there is nothing, nothing is made.
   */
  takeOver(): Promise<Entry[]>;
  /** Keeps some and drops others, together. Once it resolves, a power cut changes nothing about it. */
  write(kept: readonly Entry[], dropped: readonly EntryKey[]): Promise<void>;
  close(): Promise<void>;
};

export function keyOf({ taskId, token }: EntryKey): string {
  return `${token} ${taskId}`;
}
