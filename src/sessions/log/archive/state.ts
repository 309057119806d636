import type { ServedLog } from "./served-log.ts";

/** How far the archive of a pod's logs is behind, for metrics and health. */
export type ArchiveState = {
  /** The database didn't take the last flush. */
  readonly isAway: boolean;
  readonly unarchivedEntries: number;
  readonly unarchivedBytes: number;
  /** How long the oldest record has waited for the archive. */
  readonly lagMs: number;
  /** The logs that aren't archived whole, those whose oldest record has waited for longest first. */
  readonly backlogs: readonly Backlog[];
  /** How many logs have messages that servers have lost, and that this process alone has. */
  readonly lost: number;
  /** How many streams of this process's logs aren't as they were made. */
  readonly changedStreams: number;
  /** How often logs were trimmed. */
  readonly trims: number;
  /** How much the database has refused for good. */
  readonly aside: number;
  /** Client ids that were left out, because they were stored before under another seq. */
  readonly leftOut: number;
};

export type Backlog = { readonly logId: number; readonly bytes: number; readonly lagMs: number };

/** What of a pod's logs isn't in the archive. */
export function backlogsOf(
  logs: readonly Pick<ServedLog, "logId" | "unarchived">[],
  nowMs: number,
): Pick<ArchiveState, "unarchivedEntries" | "unarchivedBytes" | "lagMs" | "backlogs"> {
  const backlogs = logs
    .filter(({ unarchived }) => unarchived.records > 0)
    .map(({ logId, unarchived: { bytes, oldestMs = nowMs } }) => ({
      logId,
      bytes,
      lagMs: nowMs - oldestMs,
    }))
    .toSorted((a, b) => b.lagMs - a.lagMs);
  return {
    unarchivedEntries: logs.reduce((sum, { unarchived }) => sum + unarchived.entries, 0),
    unarchivedBytes: backlogs.reduce((sum, { bytes }) => sum + bytes, 0),
    lagMs: backlogs[0]?.lagMs ?? 0,
    backlogs,
  };
}
