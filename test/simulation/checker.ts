/**
 * Judges every committed change as it happens, and every run of a handler as it starts and ends.
 * What can only be judged when all is over is in `verdict.ts`.
 */
import { createActChecker } from "./acts.ts";
import { deathLimit, aloneAfterDeaths } from "../../src/base/death-limit.ts";
import type { Change, Committed, TaskState } from "./audit.ts";
import { createLimitChecker, isLimitMove } from "./limits.ts";
import { countFences, lookBefore, type Seen } from "./fences.ts";
import type { Intent, Mark } from "./kinds.ts";
import { createPauses, type Pauses } from "./pauses.ts";
import { type Bulks, createBulks } from "./bulks.ts";
import { createRedrives, type Redrives } from "./redrives.ts";
import { createStepLedger, type StepLedger } from "./steps.ts";
import { createWaitChecker, isWaking } from "./waits.ts";
import type { World } from "./world.ts";

/** One run of a handler, from its start until it settled or was told to stop. */
export type Run = {
  readonly taskId: string;
  readonly name: string;
  readonly token: number;
  readonly podId: string;
  readonly startedMs: number;
  /** Under way, as far as its pod knows. */
  active: boolean;
  /** What the handler returned, as JSON. */
  returned: string | undefined;
};

/** A pod, as far as checkers need to know it. */
export type PodFacts = {
  readonly podId: string;
  readonly names: readonly string[];
  /** How many tasks it runs at most. */
  readonly slots: number;
  readonly alive: boolean;
  /** It claims from then on, until it is told to stop. */
  readonly started: boolean;
  readonly stoppingMs: number | undefined;
  /** When it died, if it has. */
  readonly goneMs: number | undefined;
  /** Its last committed beat, in true time. */
  lastBeatMs: number;
  /** Its row was removed, with the mark of how far it has begun. */
  forgotten?: boolean;
  /** Since when its own troubles (never the store's, never a clock) can explain missed beats. */
  troubledUntilMs: number;
};

/** What a pod was allowed to begin of the tasks that it claimed ahead. */
type Begun = Pick<Mark, "call" | "taskId"> & {
  /** The names that were paused then. */
  readonly paused: ReadonlySet<string>;
};

/** How a task stands, and since when. */
export type Standing = {
  readonly name: string;
  readonly state: TaskState;
  readonly sinceMs: number;
};

export type Checker = {
  readonly pods: Map<string, PodFacts>;
  readonly runs: Run[];
  /** How each task stands, by the last change. */
  readonly tasks: Map<string, Standing>;
  /** Reads what a write is about to meet. */
  before(who: string, intent: Intent): Promise<Seen>;
  after(
    who: string,
    intent: Intent,
    seen: Seen,
    changes: readonly Change[],
    committed: Pick<Committed, "noted" | "tables">,
  ): Promise<void>;
  /** A pod has stopped, and nothing was in its way. */
  stopped(podId: string): void;
  readonly pauses: Pauses;
  readonly redrives: Redrives;
  readonly bulks: Bulks;
  readonly steps: StepLedger;
  started(run: Omit<Run, "active" | "returned" | "startedMs">): Run;
};

const terminal = ["completed", "failed", "cancelled"];

export type CheckerOptions = {
  /** How long a pod must have been without a beat to be given up. */
  patienceMs: (pod: PodFacts) => number;
  attemptsOf: (name: string) => number;
  /** A task is stored or started over. */
  onPending?: (taskId: string, name: string) => void;
};

export function createChecker(world: World, options: CheckerOptions): Checker {
  const { scheduler, violate } = world;
  const { database } = world.store;
  const pods = new Map<string, PodFacts>();
  const runs: Run[] = [];
  const activeRuns = new Set<Run>();
  const tasks = new Map<string, Standing>();
  /** Up to which call and task each pod was allowed to begin what it claimed ahead. */
  const begunAhead = new Map<string, Begun>();
  /** Claims that recovery took from their pod, as `task@token`. */
  const recovered = new Set<string>();
  /** Those of them that only waited, for which no death was counted. */
  const uncounted = new Set<string>();
  const deathsAtClaim = new Map<string, number>();
  const highestToken = new Map<string, number>();
  const waits = createWaitChecker(world, tasks);
  const judgeLimits = createLimitChecker(world);
  const pauses = createPauses(world);
  const redrives = createRedrives(world);
  const bulks = createBulks(world);
  const steps = createStepLedger(world);
  const judgeActs = createActChecker(world);
  /** The time that a task waited for and that the store's clock had come to when its row was written. */
  const reachedMs = new Map<string, number>();

  const judge = (intent: Intent, change: Change): void => {
    const { taskId, after } = change;
    const what = `${change.name} ${taskId.slice(-6)} by ${intent.kind}`;
    if (!after) return violate("T10", `${what}: the row was deleted`);
    tasks.set(taskId, { name: change.name, state: after, sinceMs: scheduler.nowMs });
    judgeChange(intent, change, after, what);
    if (after.runAtMs <= world.storeClock.now()) reachedMs.set(taskId, after.runAtMs);
  };

  const judgeChange = (intent: Intent, change: Change, after: TaskState, what: string): void => {
    const { before } = change;
    // Whatever ends a task also touches those that wait for it.
    if (isWaking(change)) return waits.judgeWaking(change, what);
    // A claim blocks others, and a finish unblocks others.
    if (isLimitMove(change)) return;
    // A task begins to wait for it, which is only counted.
    if (intent.kind === "enqueue" && JSON.stringify(before) === JSON.stringify(after)) return;
    if (!before) {
      if (after.status !== "pending") violate("T10", `${what}: born ${after.status}`);
      return options.onPending?.(change.taskId, change.name);
    }
    if (after.token < before.token) violate("T2", `${what}: the token fell to ${after.token}`);
    const limit = change.maxAttempts ?? options.attemptsOf(change.name);
    if (after.failures > limit) violate("T6", `${what}: ${after.failures} failures of ${limit}`);
    if (after.deaths > deathLimit) violate("T6", `${what}: ${after.deaths} deaths`);
    if (after.deaths === deathLimit && !terminal.includes(after.status)) {
      violate("T6", `${what}: ${after.status} after ${deathLimit} deaths`);
    }
    if (terminal.includes(before.status)) {
      const startsOver =
        intent.kind === "redrive_step"
          ? before.status === "failed"
          : (intent.kind === "retry" || intent.kind === "bulk_batch") &&
            before.status !== "completed";
      if (!startsOver) {
        violate("T4", `${what}: ${before.status} became ${after.status}`);
      } else if (after.token === before.token) violate("T4", `${what}: retried with its old token`);
      return options.onPending?.(change.taskId, change.name);
    }
    judgeToken(intent, change, before, what);
    if (intent.kind === "finish" && after.status === "pending") {
      judgeCounts(change, before, after, what);
    }
    if (after.status === "claimed" && before.status !== "claimed") {
      judgeClaim(change, before, after, what);
    } else if (after.token !== before.token && after.status === "claimed") {
      violate("T2", `${what}: a claim changed its token`);
    }
    if (intent.kind === "recover") {
      judgeRecovery(change, before, what);
      judgeDeath(change, before, after, what);
    }
  };

  /** Writes that carry a token change only the row that has it. */
  const judgeToken = (intent: Intent, { taskId }: Change, before: TaskState, what: string) => {
    if (!["finish", "progress", "recover"].includes(intent.kind)) return;
    const sent = intent.rows.filter((row) => row["task_id"] === taskId);
    if (sent.some((row) => row["token"] === before.token)) return;
    violate("T3", `${what}: token ${String(sent[0]?.["token"])} changed a row at ${before.token}`);
  };

  const judgeClaim = (change: Change, before: TaskState, after: TaskState, what: string): void => {
    const { taskId, name } = change;
    if (after.token <= (highestToken.get(taskId) ?? 0)) {
      violate("T2", `${what}: token ${after.token} was given before`);
    }
    highestToken.set(taskId, after.token);
    deathsAtClaim.set(`${taskId}@${after.token}`, after.deaths);
    if (before.status !== "pending") violate("T4", `${what}: claimed when ${before.status}`);
    if (before.parked === 2) violate("waits", `${what}: claimed while it waited for others`);
    const early = before.runAtMs - world.storeClock.now();
    // A clock that is set back makes nothing early that was due by then.
    const wasDue = reachedMs.get(taskId) === before.runAtMs;
    if (early > 0 && !wasDue) violate("T11", `${what}: claimed ${early} ms before its time`);
    const paused = pauses.pausedBy(name);
    if (paused !== undefined) violate("pause", `${what}: claimed while ${paused} was paused`);
    if (before.cancelRequested === 1) violate("cancel", `${what}: claimed after it was cancelled`);
    const pod = pods.get(after.claimedBy!);
    if (!pod?.names.includes(name)) violate("T14", `${what}: ${after.claimedBy} doesn't know it`);
  };

  /** Failures and deaths count from the last stored step. */
  const countedBefore = (taskId: string, { token, failures, deaths }: TaskState) =>
    steps.hasStepped({ taskId, token }) ? { failures: 0, deaths: 0 } : { failures, deaths };

  const judgeCounts = ({ taskId }: Change, before: TaskState, after: TaskState, what: string) => {
    const { failures, deaths } = countedBefore(taskId, before);
    if (after.failures !== failures && after.failures !== failures + 1) {
      violate("T6", `${what}: ${after.failures} failures, after ${failures} since its last step`);
    }
    if (after.deaths !== deaths) {
      violate("T6", `${what}: ${after.deaths} deaths, of ${deaths} since its last step`);
    }
  };

  /** A death is counted for what had begun, and not for what only waited for a slot. */
  const judgeDeath = ({ taskId }: Change, before: TaskState, after: TaskState, what: string) => {
    const { failures, deaths } = countedBefore(taskId, before);
    const counted = after.deaths === deaths + 1;
    if (!counted && after.deaths !== deaths) {
      violate("T6", `${what}: ${after.deaths} deaths, after ${deaths} since its last step`);
    }
    if (after.failures !== failures) {
      violate("T6", `${what}: ${after.failures} failures, of ${failures} since its last step`);
    }
    if (deaths < before.deaths) world.count("step: deaths count anew");
    const ran = runs.some((run) => run.taskId === taskId && run.token === before.token);
    if (ran && !counted) violate("T6", `${what}: it ran when its pod died, which wasn't counted`);
    const call = before.claimCall ?? 0;
    if (call >= 0) return;
    world.count(counted ? "ahead: died after it began" : "ahead: died while it waited");
    const { forgotten = false } = pods.get(before.claimedBy!) ?? {};
    if (counted && !hasBegun(taskId, before) && !forgotten) {
      violate("T6", `${what}: it only waited when its pod died`);
    }
    if (!counted) uncounted.add(`${taskId}@${before.token}`);
  };

  const hasBegun = (taskId: string, { claimedBy, claimCall }: TaskState): boolean => {
    const begun = begunAhead.get(claimedBy!);
    return begun !== undefined && isUpTo({ call: -(claimCall ?? 0), taskId }, begun);
  };

  /** Follows what a pod may begin. A mark that lands after a later one changes nothing. */
  const noteMark = (podId: string, { call, taskId }: Mark): void => {
    const pod = pods.get(podId);
    if (pod) pod.forgotten = false;
    const known = begunAhead.get(podId);
    if (known && isUpTo({ call, taskId }, known)) return;
    const names = new Set([...tasks.values()].map(({ name }) => name));
    const paused = new Set([...names].filter((name) => pauses.pausedBy(name) !== undefined));
    begunAhead.set(podId, { call, taskId, paused });
  };

  const judgeRecovery = ({ taskId }: Change, before: TaskState, what: string): void => {
    const pod = pods.get(before.claimedBy!);
    recovered.add(`${taskId}@${before.token}`);
    if (before.status !== "claimed") violate("T5", `${what}: recovered when ${before.status}`);
    if (!pod) return violate("T5", `${what}: recovered from nobody`);
    const silentMs = scheduler.nowMs - pod.lastBeatMs;
    if (silentMs < options.patienceMs(pod)) {
      violate("T8", `${what}: ${pod.podId} had beaten ${silentMs.toFixed(0)} ms before`);
    }
    if (pod.alive && pod.troubledUntilMs < pod.lastBeatMs) {
      violate("T8", `${what}: ${pod.podId} was well, only the store or a clock wasn't`);
    }
  };

  return {
    pods,
    runs,
    tasks,
    pauses,
    redrives,
    bulks,
    steps,
    async before(who, intent) {
      const seen = await lookBefore(database, who, intent);
      const [found, met] = [await redrives.before(intent), await bulks.before(intent)];
      return { ...seen, ...(found && { redrives: found }), ...(met && { bulks: met }) };
    },
    async after(who, intent, seen, all, { tables, noted }) {
      if (intent.kind === "beat") {
        const pod = pods.get(who);
        if (pod) pod.lastBeatMs = scheduler.nowMs;
      }
      const { mark } = intent;
      if (mark) {
        const isAllowed = tables[mark.at]!.length > 0;
        world.count(isAllowed ? "ahead: may begin" : "fence: begin");
        if (isAllowed) noteMark(who, mark);
      }
      const changes = intent.kind === "enqueue" ? withoutUndone(world, all) : all;
      countFences(world, who, intent, seen, changes);
      judgeActs(intent, noted);
      steps.judge(intent, noted, (taskId) => tasks.get(taskId)?.state);
      // A wake is judged by how all of the write left things.
      for (const { taskId, name, after } of changes) {
        if (after) tasks.set(taskId, { name, state: after, sinceMs: scheduler.nowMs });
      }
      for (const change of changes) judge(intent, change);
      waits.judgeParked(changes);
      judgeLimits(changes);
      redrives.after(intent, seen.redrives, changes);
      await redrives.afterwards(intent);
      await bulks.after(intent, seen.bulks, changes);
    },
    stopped(podId) {
      for (const [taskId, { name, state }] of tasks) {
        if (state.status !== "claimed" || state.claimedBy !== podId) continue;
        violate("stop", `${podId} has stopped and holds ${name} ${taskId.slice(-6)}`);
      }
    },
    started(begun) {
      const run: Run = {
        ...begun,
        startedMs: scheduler.nowMs,
        active: true,
        returned: undefined,
      };
      const what = `${run.name} ${run.taskId.slice(-6)}@${run.token} on ${run.podId}`;
      const deaths = deathsAtClaim.get(`${run.taskId}@${run.token}`) ?? 0;
      let beside = 0;
      for (const other of activeRuns) {
        if (!other.active || !pods.get(other.podId)?.alive) {
          activeRuns.delete(other);
          continue;
        }
        if (other.taskId === run.taskId && other.podId === run.podId) {
          violate("T8", `${what}: this pod runs it already, as @${other.token}`);
        }
        // An answer can come so late that the task was taken from its pod before it began.
        const older = other.token < run.token ? other : run;
        if (other.taskId === run.taskId && !recovered.has(`${older.taskId}@${older.token}`)) {
          violate("T8", `${what}: it still runs as @${other.token} on ${other.podId}`);
        }
        if (other.podId !== run.podId) continue;
        beside++;
        const otherDeaths = deathsAtClaim.get(`${other.taskId}@${other.token}`) ?? 0;
        if (Math.max(deaths, otherDeaths) >= aloneAfterDeaths) {
          violate("alone", `${what}: beside ${other.name} ${other.taskId.slice(-6)}`);
        }
      }
      const { slots } = pods.get(run.podId)!;
      if (beside >= slots) violate("slots", `${what}: beside ${beside} others in ${slots} slots`);
      if (uncounted.has(`${run.taskId}@${run.token}`)) {
        violate("T6", `${what}: it begins though it was recovered as one that only waited`);
      }
      const call = tasks.get(run.taskId)?.state.claimCall ?? 0;
      if (call < 0 && begunAhead.get(run.podId)?.paused.has(run.name)) {
        violate("pause", `${what}: claimed ahead, and began though its name was paused`);
      }
      if (tasks.get(run.taskId)?.state.waits === 3) {
        violate("waits", `${what}: it runs though one that it waits for has failed`);
      }
      runs.push(run);
      activeRuns.add(run);
      return run;
    },
  };
}

/** Whether this comes no later than a mark, in the order in which tasks begin. */
function isUpTo(one: Pick<Mark, "call" | "taskId">, mark: Pick<Mark, "call" | "taskId">): boolean {
  return one.call < mark.call || (one.call === mark.call && one.taskId <= mark.taskId);
}

/** A call that stores all or none takes back in the same write what it can't store as a whole. */
function withoutUndone(world: World, changes: readonly Change[]): readonly Change[] {
  const born = new Set(changes.filter(({ before }) => !before).map(({ taskId }) => taskId));
  const undone = new Set(
    changes.filter(({ taskId, after }) => !after && born.has(taskId)).map(({ taskId }) => taskId),
  );
  if (undone.size === 0) return changes;
  world.count("request: many, taken back");
  return changes.filter(({ taskId }) => !undone.has(taskId));
}
