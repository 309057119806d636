import type { Row } from "../store/database.ts";

/**
 * What operators have made of a group of failed tasks. A resolved group is fixed, and an ignored one isn't
 * worth a look: until a task of it fails again, or until a time.
 *
 *   open ── resolve ──▶ resolved ── a task of it fails ──▶ open, came back
 *     └─── ignore ───▶ ignored ─── a task of it fails, or its time has come ──▶ open
 */
export type GroupState = "open" | "resolved" | "ignored";

export const groupStates = ["open", "resolved", "ignored"] as const satisfies readonly GroupState[];

/** What is known of a group besides its tasks. */
export type GroupStanding = {
  readonly state: GroupState;
  /** Since when; null for a group that has been open from the first. */
  readonly stateAtMs: number | null;
  /** Until when it is ignored; null if that is until a task of it fails. */
  readonly untilMs: number | null;
  /** When the first task of it failed, also if that task is gone. */
  readonly firstSeenMs: number;
  /** When a task of it failed though the group was resolved or ignored; null if none has since. */
  readonly cameBackAtMs: number | null;
};

/** The row of a group. */
export type StoredGroup = {
  readonly group: string;
  readonly state: GroupState;
  /** Null if it has been open from the first. */
  readonly stateAtMs: number | null;
  readonly untilMs: number | null;
  readonly firstAtMs: number;
  readonly cameBackAtMs: number | null;
  readonly updatedAtMs: number;
  /** The store's time when it was read. */
  readonly nowMs: number;
};

/** A group that has failed tasks, and when these failed. */
export type SeenGroup = {
  readonly group: string;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
};

/** A group that failed at a time after it got its state. */
export type GroupReturn = {
  readonly group: string;
  readonly stateAtMs: number;
  readonly backAtMs: number;
};

/** When a task of a group failed first after a time; undefined if none has. */
export type FirstAfter = (group: string, afterMs: number) => number | undefined;

// A row is kept as long as its group fails, and needn't be written more often for that.
const keepEveryMs = 24 * 60 * 60_000;

/**
 * Pure. How a group stands now. Its row may lag behind the failures, because the leader writes it a moment
 * later.
 */
export function standingOf(
  stored: StoredGroup | undefined,
  { group, firstAtMs }: Pick<SeenGroup, "group" | "firstAtMs">,
  firstAfter: FirstAfter,
): GroupStanding {
  const open = { state: "open", stateAtMs: null, untilMs: null, cameBackAtMs: null } as const;
  if (!stored) return { ...open, firstSeenMs: firstAtMs };
  const firstSeenMs = Math.min(stored.firstAtMs, firstAtMs);
  const { state, stateAtMs, untilMs, cameBackAtMs, nowMs } = stored;
  if (state === "open") return { ...open, stateAtMs, cameBackAtMs, firstSeenMs };
  if (untilMs !== null && nowMs >= untilMs) return { ...open, stateAtMs: untilMs, firstSeenMs };
  const backAtMs = untilMs === null ? firstAfter(group, stateAtMs ?? 0) : undefined;
  if (backAtMs === undefined) return { state, stateAtMs, untilMs, cameBackAtMs: null, firstSeenMs };
  return { ...open, stateAtMs: backAtMs, cameBackAtMs: backAtMs, firstSeenMs };
}

/** What the rows of groups lack. */
export type GroupWrites = {
  readonly fresh: readonly SeenGroup[];
  readonly returned: readonly GroupReturn[];
  readonly kept: readonly string[];
};

/** Pure. What the leader writes of groups with failures that it hasn't seen before. */
export function decideGroups(
  seen: readonly SeenGroup[],
  stored: ReadonlyMap<string, StoredGroup>,
  firstAfter: FirstAfter,
): GroupWrites {
  const fresh = seen.filter(({ group }) => !stored.has(group));
  const returned = seen.flatMap((each) => {
    const row = stored.get(each.group);
    if (!row || row.state === "open" || row.stateAtMs === null) return [];
    const { cameBackAtMs } = standingOf(row, each, firstAfter);
    if (cameBackAtMs === null) return [];
    return [{ group: each.group, stateAtMs: row.stateAtMs, backAtMs: cameBackAtMs }];
  });
  const kept = seen.flatMap(({ group }) => {
    const row = stored.get(group);
    return row && row.nowMs - row.updatedAtMs >= keepEveryMs ? [group] : [];
  });
  return { fresh, returned, kept };
}

export function toStoredGroup(row: Row): StoredGroup {
  const orNull = (column: string) => (row[column] === null ? null : Number(row[column]));
  return {
    group: row["group_id"],
    state: row["state"],
    stateAtMs: orNull("state_at"),
    untilMs: orNull("until_at"),
    firstAtMs: Number(row["first_at"]),
    cameBackAtMs: orNull("came_back_at"),
    updatedAtMs: Number(row["last_update"]),
    nowMs: Number(row["now"]),
  };
}
