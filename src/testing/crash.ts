import type { Clock } from "../base/clock.ts";
import type { Flow } from "../flows/flow.ts";
import type { Finalizer, FlowPart } from "../flows/machine.ts";
import { moveHeads } from "../sessions/log/sql/heads.ts";
import { laterTaskName } from "../runtime/later.ts";
import { claimReserved } from "../tasks/sql/claim.ts";
import { insertTasks } from "../tasks/sql/enqueue.ts";
import { finishTasks } from "../tasks/sql/finish.ts";
import { keepRuns, leaveRuns } from "../tasks/sql/runs.ts";
import { storeSteps } from "../tasks/sql/steps.ts";
import type { Database } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import type { TaskHandler } from "../tasks/model.ts";

/**
 * Where a pod can be made to crash:
 *
 * - `claimed`: its claim is stored, and it never gets the answer.
 * - `started`: the handler was about to run.
 * - `ran`: the handler has returned or thrown, and the outcome isn't stored.
 * - `finished`: the outcome of the attempt is stored, and the pod never gets the answer.
 * - `step_ran`: the function of a step has returned, and its value isn't stored.
 * - `step_stored`: the value of a step is stored, and the pod never gets the answer.
 *
 * For a run, all but the first are about one of its transitions or finalizers. For sessions:
 *
 * - `started`: an agent, or its compaction, was about to be called.
 * - `chunk`: it has returned one more piece, which is on its way to subscribers.
 * - `ran`: it has returned everything, and the answer isn't stored.
 * - `later`: what the output of a tool waits for is stored, and the pod never gets the answer.
 * - `stored`: the owner of a log has stored a record, and never gets the answer.
 */
export const crashPoints = [
  "claimed",
  "started",
  "chunk",
  "ran",
  "finished",
  "step_ran",
  "step_stored",
  "later",
  "stored",
] as const;

export type CrashPoint = (typeof crashPoints)[number];

/** Whether a pod is alive. A dead one sends nothing, receives nothing, and fires no timers. */
export type Life = {
  readonly alive: boolean;
  /** Crashes the pod at this point, if that was planned. */
  reach(point: CrashPoint): void;
};

/** A clock whose timers don't fire after the pod's crash. */
export function mortalClock(clock: Clock, life: Life): Clock {
  return {
    now: clock.now,
    monotonic: clock.monotonic,
    after: (delayMs, callback) =>
      clock.after(delayMs, () => {
        if (life.alive) callback();
      }),
  };
}

/** A database that reports crash points, and never answers a crashed pod. */
export function mortalDatabase(database: Database, life: Life): Database {
  // Requests of a dead pod never settle, so its code never continues.
  const whileAlive = <Answer>(request: () => Promise<Answer>): Promise<Answer> =>
    new Promise((resolve, reject) => {
      if (!life.alive) return;
      request().then(
        (answer) => void (life.alive && resolve(answer)),
        (error: unknown) => void (life.alive && reject(error as Error)),
      );
    });
  return {
    read: (statement) => whileAlive(() => database.read(statement)),
    write(statements, options) {
      const storing = statements.some((each) => each.strings === recordText);
      const finishing = statements.some((each) => finishTexts.has(each.strings));
      const claimAt = statements.findIndex((each) => each.strings === claimText);
      const stepping = statements.some((each) => each.strings === stepText);
      const waiting = statements.some(startsLater);
      if (stepping && life.alive) life.reach("step_ran");
      if (finishing && life.alive) life.reach("ran");
      return whileAlive(async () => {
        const tables = await database.write(statements, options);
        if (life.alive && stepping) life.reach("step_stored");
        if (life.alive && finishing) life.reach("finished");
        if (life.alive && waiting) life.reach("later");
        if (life.alive && storing) life.reach("stored");
        if (life.alive && tables[claimAt]?.length) life.reach("claimed");
        return tables;
      });
    },
    subscribe: (listener, channel) =>
      database.subscribe((...args) => {
        if (life.alive) listener(...args);
      }, channel),
    within: (handle) => database.within(handle),
    close: async () => {},
  };
}

export function mortalHandler(handler: TaskHandler, life: Life): TaskHandler {
  return {
    ...handler,
    ...(handler.onFailure && { onFailure: mortalHandler(handler.onFailure, life) }),
    run(context) {
      life.reach("started");
      return life.alive ? handler.run(context) : new Promise(() => {});
    },
  };
}

export function mortalFlow(flow: Flow, life: Life): Flow {
  const mortal = <Each extends FlowPart | Finalizer>(part: Each): Each => {
    if (!("run" in part)) return part;
    const { run } = part;
    return {
      ...part,
      run(context: unknown) {
        life.reach("started");
        return life.alive ? (run(context) as unknown) : new Promise(() => {});
      },
    };
  };
  return { ...flow, parts: flow.parts.map(mortal), finalizers: flow.finalizers.map(mortal) };
}

// A statement is identified by its template's strings, which are the same object every time.
const finishTexts: ReadonlySet<Statement["strings"]> = new Set([
  finishTasks([]).strings,
  keepRuns([]).strings,
  leaveRuns([], true).strings,
]);
const stepText: Statement["strings"] = storeSteps([])[0]!.strings;
const enqueueText: Statement["strings"] = insertTasks([]).strings;
const startsLater = ({ strings, parts }: Statement): boolean =>
  strings === enqueueText && JSON.stringify(parts).includes(laterTaskName);
const recordText: Statement["strings"] = moveHeads([]).strings;
const claimText: Statement["strings"] = claimReserved(
  { podId: "", call: 0, names: [], limit: 0 },
  "",
).strings;
