import { batcher } from "../base/batcher.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { createSharedRun } from "../base/semaphore.ts";
import type { Database, Row } from "../store/database.ts";
import { type Missed, planOf } from "./plan.ts";
import { taskOf } from "./rows.ts";
import { insertFired, linkFired, readDue, type ScheduleMove, moveSchedules } from "./sql.ts";
import { timesOf } from "./times.ts";

export type FiringOptions = {
  podId: string;
  database: Database;
  clock: Clock;
  ids: Ids;
  /** The time between two passes; schedules that fall due in between get a timer. */
  everyMs: number;
  /**
   * Whether this pod believes it is the leader. It may be wrong: then another pod has fired first.
   */
  leads: () => boolean;
  log?: Logger;
  onFired?: (fired: Fired) => void;
};

/** What one pass has done for one schedule. */
export type Fired = {
  readonly scheduleId: string;
  readonly tasks: number;
  /** Times that got no task, counted up to a hundred. */
  readonly skipped: number;
  /** How late the last of its tasks is; undefined if there is none. */
  readonly lagMs: number | undefined;
};

export type Firing = {
  /**
   * Fires due schedules, if this pod leads. Passes never run concurrently: this may return the one
   * in progress.
   */
  pass(): Promise<void>;
  /** Resolves when the pass in progress, if any, is done; none follows. */
  stop(): Promise<void>;
};

const maxDue = 100;
// Schedules that are due beyond this wait for the next pass.
const maxReads = 20;
const maxMovesPerWrite = 50;
// The payloads of one write; a single schedule may always fire.
const maxCharsPerWrite = 8 * 1024 * 1024;

type PlannedMove = {
  readonly move: ScheduleMove;
  readonly skipped: number;
  readonly lastMs: number | undefined;
};

/**
 * Creates the tasks of schedules whose time has come. The row alone determines what, and the
 * store's clock when. It reads due rows, decides, and commits each decision only if the row is
 * unchanged. So two leaders, or a late one, fire no more than one would.
 */
export function createFiring(options: FiringOptions): Firing {
  const { podId, database, clock, ids, everyMs, leads, log = silentLogger } = options;
  const { onFired = () => {} } = options;
  let cancelTimer = () => {};
  let stopped = false;

  /** A move that the store refuses fails alone; the others of its batch are made. */
  const commit = batcher(
    async (moves: ScheduleMove[]): Promise<boolean[]> => {
      const ordered = moves.toSorted((a, b) => (a.scheduleId < b.scheduleId ? -1 : 1));
      const firing = ordered.some(({ tasks }) => tasks.length > 0);
      const statements = firing
        ? [moveSchedules(ordered), insertFired(ordered), ...linkFired(ordered)]
        : [moveSchedules(ordered)];
      const [moved] = await database.write(statements, { notify: firing });
      const made = new Set(moved!.map((row) => row["schedule_id"] as string));
      return moves.map(({ scheduleId }) => made.has(scheduleId));
    },
    { maxItems: maxMovesPerWrite },
  );

  const carryOut = async (
    { move, skipped, lastMs }: PlannedMove,
    nowMs: number,
  ): Promise<boolean> => {
    const { scheduleId, tasks, error } = move;
    const startedMs = clock.monotonic();
    const made = await commit(move);
    // Another pod was first, or the schedule was changed: the next read shows it.
    if (!made) return false;
    if (error !== null) {
      log.error({ pod: podId, schedule: scheduleId, error }, "schedule is broken, not fired");
      return true;
    }
    if (skipped > 0) {
      log.warn({ pod: podId, schedule: scheduleId, skipped }, "schedule times missed");
    }
    if (tasks.length === 0 && skipped === 0) return true;
    const tookMs = clock.monotonic() - startedMs;
    const lagMs = lastMs === undefined ? undefined : nowMs - lastMs + tookMs;
    onFired({ scheduleId, tasks: tasks.length, skipped, lagMs });
    return true;
  };

  /** Returns whether more schedules may be due. */
  const fireDue = async (): Promise<boolean> => {
    const rows = await database.read(readDue(everyMs, maxDue));
    if (rows.length === 0) return false;
    const readMs = clock.monotonic();
    const nowMs = Number(rows[0]!["now_at"]);
    const due = rows.filter((row) => Number(row["next_at"]) <= nowMs);
    const decided = due.map((row) => planMove(row, nowMs, ids));
    let moved = 0;
    for (const part of inParts(decided)) {
      const done = await Promise.allSettled(part.map((planned) => carryOut(planned, nowMs)));
      for (const each of done) {
        if (each.status === "fulfilled") moved += each.value ? 1 : 0;
        else
          log.warn(
            { pod: podId, error: messageOf(each.reason) },
            "schedule not fired, retrying with the next pass",
          );
      }
    }
    const coming = rows.slice(due.length).map((row) => Number(row["next_at"]));
    const soonMs = Math.min(...coming, ...decided.map(({ move }) => move.nextAtMs ?? Infinity));
    if (soonMs <= nowMs + everyMs) setTimer(soonMs - nowMs - (clock.monotonic() - readMs));
    return due.length === maxDue && moved > 0;
  };

  const setTimer = (delayMs: number) => {
    cancelTimer();
    if (!stopped) cancelTimer = clock.after(delayMs, () => void pass());
  };

  const passOnce = async (): Promise<void> => {
    cancelTimer();
    try {
      let reads = 0;
      while (leads() && !stopped && reads++ < maxReads && (await fireDue()));
    } catch (error) {
      // The next pass finds all of it again.
      log.warn({ pod: podId, error: messageOf(error) }, "reading due schedules failed");
    }
  };

  const passes = createSharedRun(passOnce);
  const pass = async (): Promise<void> => {
    if (stopped || !leads()) return;
    await passes.run();
  };

  return {
    pass,
    async stop() {
      stopped = true;
      cancelTimer();
      await passes.ended();
    },
  };
}

/** The key of a time's task: readable, and it prevents a second task if the time is fired again. */
export function scheduleKeyOf(scheduleId: string, atMs: number): string {
  return `schedule/${scheduleId}/${new Date(atMs).toISOString()}`;
}

/** Decides the write for a due row. An invalid row gets its error stored, which stops it. */
function planMove(row: Row, nowMs: number, ids: Ids): PlannedMove {
  const scheduleId: string = row["schedule_id"];
  const seenAtMs = Number(row["next_at"]);
  const base = {
    scheduleId,
    seen: { nextAtMs: seenAtMs, revision: Number(row["revision"]) },
    mark: ids.next(),
    afterMs: nowMs,
  };
  try {
    const newTask = taskOf(row);
    const { fire, skipped, nextAtMs } = planOf(
      timesOf(row["pattern"], row["zone"]),
      {
        nextAtMs: seenAtMs,
        afterMs: Number(row["after_at"]),
        missed: row["missed"] as Missed,
        max: Math.max(1, Math.floor(maxCharsPerWrite / row["payload"].length)),
      },
      nowMs,
    );
    const tasks = fire.map((atMs) =>
      newTask(ids.next(), { atMs, key: scheduleKeyOf(scheduleId, atMs) }),
    );
    const lastMs = fire.at(-1);
    const move = { ...base, nextAtMs, lastAtMs: lastMs ?? null, error: null, tasks };
    return { move, skipped, lastMs };
  } catch (error) {
    const move = {
      ...base,
      afterMs: Number(row["after_at"]),
      nextAtMs: null,
      lastAtMs: null,
      error: messageOf(error, 1_000),
      tasks: [],
    };
    return { move, skipped: 0, lastMs: undefined };
  }
}

function inParts(all: readonly PlannedMove[]): PlannedMove[][] {
  const parts: PlannedMove[][] = [];
  let chars = maxCharsPerWrite;
  for (const planned of all) {
    const { tasks } = planned.move;
    chars += (tasks[0]?.payload.length ?? 0) * tasks.length;
    if (chars > maxCharsPerWrite || parts.length === 0) {
      parts.push([]);
      chars = (tasks[0]?.payload.length ?? 0) * tasks.length;
    }
    parts.at(-1)!.push(planned);
  }
  return parts;
}
