import { besideNotes, evenRounds } from "./beside.ts";
import { type Goal, sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { placeOn } from "./servers/place.ts";
import { measureDrain } from "./side-by-side/drain.ts";
import { measureEnqueue } from "./side-by-side/enqueue.ts";
import type { Work } from "./side-by-side/figures.ts";
import { reportOf } from "./side-by-side/report.ts";
import { openSideBySide } from "./side-by-side/open.ts";
import { saveMeasures, saveResults } from "./side-by-side/results.ts";
import { measureWakeup } from "./side-by-side/wakeup.ts";
import { measureHere } from "./tasks/here.ts";
import { measureIdle } from "./tasks/idle.ts";
import { measureKeys } from "./tasks/keys.ts";
import { measureLimits } from "./tasks/limits.ts";
import { measureMemory } from "./tasks/memory.ts";
import { measureRecovery } from "./tasks/recover.ts";
import { measureTrigger } from "./tasks/trigger.ts";

const sizes = {
  full: {
    rounds: 5,
    enqueue: { runMs: 2_000 },
    drain: { tasks: 100_000, cutMs: 25_000, cutDefaultsMs: 8_000 },
    finished: 1_000_000,
    wakeup: { tasks: 250 },
    idle: { forMs: 30_000 },
    recover: { rounds: 8, atOnce: 1 },
    memory: { step: 100_000, steps: 10, cutMs: 900_000 },
  },
  quick: {
    rounds: 1,
    enqueue: { runMs: 400 },
    drain: { tasks: 16_000, cutMs: 4_000, cutDefaultsMs: 2_000 },
    finished: 100_000,
    wakeup: { tasks: 100 },
    idle: { forMs: 5_000 },
    recover: { rounds: 3, atOnce: 3 },
    memory: { step: 10_000, steps: 5, cutMs: 10_000 },
  },
};

/** What a short run leaves out unless it is asked for. */
const long = ["million", "snapshot", "idle"];
/** What is measured only when it is asked for. */
const asked = ["keys", "limits"];
/** What has no comparison with another checkout. */
const notBeside = ["codec", "feed", "here", "trigger", "idle", "recover", "memory"];
const goals: readonly Goal[] = [
  { metric: "tasks.wakeup.trigger.p50", store: "postgres", below: 100 },
];
const slow = ["pg-boss-default", "bullmq-redis-default", "bullmq-redis-aof-default"];

/** Tasks on Postgres, side by side with other queues and with what bare `pg` can do. */
export async function bench(options: BenchOptions): Promise<Report> {
  const size = options.quick ? sizes.quick : sizes.full;
  const wanted = (name: string) =>
    options.only?.includes(name) ??
    !(
      asked.includes(name) ||
      (options.quick && long.includes(name)) ||
      (options.beside !== undefined && notBeside.includes(name))
    );
  const drain = { ...size.drain, ...(options.tasks && { tasks: options.tasks }) };
  await using side = await openSideBySide(
    options,
    evenRounds(options.rounds ?? size.rounds, options.beside),
  );
  const { best, ofPostgres } = side.keys;
  const everybody = side.keys.everybody.filter(
    (key) => options.systems !== undefined || !(options.quick && slow.includes(key)),
  );

  /** Each kind of work, in the order in which it is done. */
  const all: Record<string, () => Promise<Work[]>> = {
    enqueue: () => measureEnqueue(side, { ...size.enqueue, keys: best }),
    drain: () => measureDrain(side, { metric: "tasks.drain", keys: everybody, ...drain }),
    "two-processes": () =>
      measureDrain(side, {
        metric: "tasks.drain.two_processes",
        keys: best,
        processes: 2,
        ...drain,
      }),
    "1ms": () =>
      measureDrain(side, { metric: "tasks.drain.of_1ms", keys: everybody, taskMs: 1, ...drain }),
    wakeup: () =>
      measureWakeup(side, { ...size.wakeup, keys: [...best, "graphile-worker-default"] }),
    million: () =>
      measureDrain(side, {
        metric: "tasks.drain.after_million",
        keys: ["flotilla", "beside", "limit"],
        finished: size.finished,
        ...drain,
      }),
    codec: () =>
      measureDrain(side, {
        metric: "tasks.drain.codec",
        keys: ["flotilla"],
        codec: true,
        ...drain,
      }),
    feed: () =>
      measureDrain(side, {
        metric: "tasks.drain.feed",
        keys: ["flotilla"],
        feed: true,
        ...drain,
      }),
    snapshot: () =>
      measureDrain(side, {
        metric: "tasks.drain.snapshot_held",
        keys: ofPostgres,
        snapshotHeld: true,
        ...drain,
      }),
  };
  const works: Work[] = [];
  for (const [name, measuring] of Object.entries(all)) {
    if (wanted(name)) works.push(...(await measuring()));
  }
  const freshStore = () => side.servers.postgres!.fresh();
  const here = wanted("here")
    ? await measureHere(options, { rounds: side.rounds, ...size.wakeup }, freshStore)
    : [];
  const trigger = wanted("trigger")
    ? await measureTrigger(options, { rounds: side.rounds, ...size.wakeup }, freshStore)
    : [];
  const idle = wanted("idle") ? await measureIdle(options, size.idle, freshStore) : [];
  const recovery = wanted("recover")
    ? await measureRecovery(options, size.recover, freshStore)
    : [];
  const keys = wanted("keys")
    ? await measureKeys(options, { rounds: side.rounds, ...size.enqueue }, freshStore)
    : [];
  const limits = wanted("limits")
    ? await measureLimits(
        options,
        { rounds: side.rounds, ...drain },
        placeOn(side.servers.postgres!),
      )
    : [];
  const memory = wanted("memory")
    ? await measureMemory(options, size.memory, freshStore)
    : { measures: [], notes: [] };
  const alone = [...here, ...trigger, ...idle, ...keys, ...limits, ...recovery, ...memory.measures];
  if (options.save) {
    if (works.length > 0) saveResults(works, side.about);
    saveMeasures(alone, "tasks-postgres-alone");
  }
  const report = reportOf(works, side.about);
  return {
    measures: [...report.measures, ...alone],
    notes: [
      ...sayGoals(goals, alone, "postgres"),
      ...report.notes,
      ...memory.notes,
      ...besideNotes(options),
    ],
  };
}
