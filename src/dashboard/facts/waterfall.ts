import type { TaskEventFacts, TaskFacts } from "../api.ts";

/** What a task did from one time to another. */
export type Stretch = {
  readonly kind: StretchKind;
  readonly fromMs: number;
  readonly toMs: number;
  /** It goes on. */
  readonly isOpen: boolean;
  readonly attempt?: number | undefined;
  readonly podId?: string | undefined;
  /** How it ended, where that is more than its kind says. */
  readonly outcome?: string | undefined;
};

export type StretchKind =
  | "waiting"
  /** A pod had claimed it, and its handler hadn't begun. */
  | "claimed"
  /** The handler ran, from a start that is known. */
  | "attempt"
  /** It waited and then ran; when it began isn't known. */
  | "waited and ran"
  | "backoff"
  | "snoozed"
  | "set aside";

/** Something that happened at one time, and ended nothing. */
export type Moment = { readonly atMs: number; readonly what: string };

export type Waterfall = {
  readonly fromMs: number;
  readonly toMs: number;
  readonly stretches: readonly Stretch[];
  readonly moments: readonly Moment[];
};

/** Events that end an attempt, with how it ended. */
const endings: Readonly<Record<string, string>> = {
  retry: "failed",
  failed: "failed",
  snoozed: "snoozed",
  pod_died: "its pod died",
  set_aside: "set aside",
  cancelled: "cancelled",
};

/**
 * The waits and attempts of a task, oldest first, from its events. Clocks of pods may differ: no stretch
 * ends before it begins, and none begins before the one before has ended.
 */
export function waterfallOf(
  task: TaskFacts,
  events: readonly TaskEventFacts[],
  nowMs: number,
): Waterfall {
  const stretches: Stretch[] = [];
  const moments: Moment[] = [];
  let at = task.createdAtMs;
  const add = (kind: StretchKind, toMs: number, more: Partial<Stretch> = {}) => {
    const end = Math.max(at, toMs);
    if (end > at || more.outcome !== undefined || more.isOpen)
      stretches.push({ kind, fromMs: at, toMs: end, isOpen: false, ...more });
    at = end;
  };
  /**
   * The wait before an attempt, the claim, and the attempt from when its handler began; both as one where
   * its start isn't known.
   */
  const addAttempt = (
    { startedAtMs, claimedAtMs }: { startedAtMs?: number | undefined; claimedAtMs?: number },
    toMs: number,
    more: Partial<Stretch>,
  ) => {
    if (startedAtMs === undefined) return add("waited and ran", toMs, more);
    if (claimedAtMs !== undefined && startedAtMs - claimedAtMs >= shownClaimMs) {
      add("waiting", claimedAtMs);
      add("claimed", startedAtMs, more.podId === undefined ? {} : { podId: more.podId });
    } else add("waiting", startedAtMs);
    add("attempt", toMs, more);
  };

  for (const event of events) {
    const outcome = endings[event.type];
    if (outcome === undefined) {
      moments.push({ atMs: event.atMs, what: event.type.replaceAll("_", " ") });
      continue;
    }
    const { attempt, podId } = event;
    const detail = detailOf(event);
    // A task that was cancelled or failed without a pod was never attempted.
    if (podId === null && detail.startedAtMs === undefined) {
      add("waiting", event.atMs, { outcome });
    } else {
      addAttempt(detail, event.atMs, {
        outcome,
        attempt: attempt ?? undefined,
        podId: podId ?? undefined,
      });
    }
    if (event.type === "set_aside") continue;
    const until = detail.retryAtMs ?? at + (detail.delayMs ?? 0);
    const isLast = event === events.at(-1) && task.status === "pending";
    const ends = isLast ? Math.max(until, task.runAtMs) : until;
    if (ends > at) add(event.type === "snoozed" ? "snoozed" : "backoff", Math.min(ends, nowMs));
  }

  const startedAtMs = startedAtOf(task);
  switch (task.status) {
    case "pending":
      add(task.setAside ? "set aside" : "waiting", nowMs, { isOpen: true });
      break;
    case "claimed":
      // A claim is what has changed it last, unless it has reported progress since.
      addAttempt({ startedAtMs, claimedAtMs: task.updatedAtMs }, nowMs, {
        isOpen: true,
        podId: task.claimedBy,
        attempt: task.failures + 1,
      });
      break;
    case "completed":
      addAttempt({ startedAtMs }, task.updatedAtMs, {
        outcome: "completed",
        attempt: task.failures + 1,
      });
      break;
    case "failed":
    case "cancelled":
      break;
  }
  return { fromMs: task.createdAtMs, toMs: Math.max(at, task.createdAtMs + 1), stretches, moments };
}

/** When its handler began, of a task whose server tells. */
function startedAtOf(task: TaskFacts): number | undefined {
  const { startedAtMs } = task as { readonly startedAtMs?: unknown };
  return typeof startedAtMs === "number" ? startedAtMs : undefined;
}

type Detail = Partial<Record<"startedAtMs" | "claimedAtMs" | "retryAtMs" | "delayMs", number>>;

// A claim that is followed at once by its handler says nothing.
const shownClaimMs = 20;

function detailOf({ detail }: TaskEventFacts): Detail {
  if (typeof detail !== "object" || detail === null) return {};
  const numbers = Object.entries(detail).filter(([, value]) => typeof value === "number");
  return Object.fromEntries(numbers) as Detail;
}
