import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { besideNotes, evenRounds } from "./beside.ts";
import type { Measure, Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { sqlitePlace } from "./servers/place.ts";
import { saveMeasures } from "./side-by-side/results.ts";
import { measureDrain } from "./tasks/drain.ts";
import { measureEnqueue } from "./tasks/enqueue.ts";
import { measureHere } from "./tasks/here.ts";
import { measureIdle } from "./tasks/idle.ts";
import { measureKeys } from "./tasks/keys.ts";
import { measureLimits } from "./tasks/limits.ts";
import { measureMemory } from "./tasks/memory.ts";
import { measureRecovery } from "./tasks/recover.ts";
import { measureSchedules } from "./tasks/schedules.ts";
import { sqliteStores } from "./tasks/store.ts";
import { measureWakeup } from "./tasks/wakeup.ts";
import { manySlots } from "./tasks/work.ts";

const sizes = {
  full: {
    enqueue: { rounds: 5, runMs: 2_000 },
    drain: { rounds: 5, tasks: 100_000, cutMs: 60_000 },
    wakeup: { rounds: 3, tasks: 250 },
    idle: { forMs: 30_000 },
    recover: { rounds: 8, atOnce: 1 },
    memory: { step: 100_000, steps: 10, cutMs: 900_000 },
  },
  quick: {
    enqueue: { rounds: 3, runMs: 300 },
    drain: { rounds: 3, tasks: 16_000, cutMs: 2_000 },
    wakeup: { rounds: 1, tasks: 100 },
    idle: { forMs: 2_000 },
    recover: { rounds: 3, atOnce: 3 },
    memory: { step: 10_000, steps: 5, cutMs: 6_000 },
  },
};

/** What is measured only when it is asked for. */
const asked = ["keys", "limits", "schedules"];
/** What has no comparison with another checkout. */
const alone = ["here", "idle", "recover", "memory"];

/** Tasks on one SQLite file: in, out, awake, recovered, and at what cost. */
export async function bench(options: BenchOptions): Promise<Report> {
  const size = options.quick ? sizes.quick : sizes.full;
  const wanted = (name: string) =>
    options.only?.includes(name) ??
    !(
      asked.includes(name) ||
      (options.quick && name === "idle") ||
      (options.beside !== undefined && alone.includes(name))
    );
  const rounds = ({ rounds: usual }: { rounds: number }) => ({
    rounds: evenRounds(options.rounds ?? usual, options.beside),
  });
  const measured = async (name: string, measuring: () => Promise<Measure[]>) =>
    wanted(name) ? measuring() : [];
  const enqueue = await measured("enqueue", () =>
    measureEnqueue(options, { ...size.enqueue, ...rounds(size.enqueue) }),
  );
  const drain = await measured("drain", () =>
    measureDrain(options, { ...size.drain, ...rounds(size.drain) }),
  );
  const wakeup = await measured("wakeup", () =>
    measureWakeup(options, { ...size.wakeup, ...rounds(size.wakeup) }),
  );
  const freshStore = sqliteStores(options.folder);
  const here = await measured("here", () =>
    measureHere(options, { ...size.wakeup, ...rounds(size.wakeup) }, freshStore),
  );
  const idle = await measured("idle", () => measureIdle(options, size.idle, freshStore));
  const schedules = await measured("schedules", () => measureSchedules(options, size.drain));
  const limits = await measured("limits", () =>
    measureLimits(options, { ...size.drain, ...rounds(size.drain) }, sqlitePlace(options.folder)),
  );
  const keys = await measured("keys", () =>
    measureKeys(options, { ...size.enqueue, ...rounds(size.enqueue) }, freshStore),
  );
  const recovering = () =>
    measured("recover", () => measureRecovery(options, size.recover, freshStore));
  const remembering = async () =>
    wanted("memory")
      ? measureMemory(options, size.memory, freshStore)
      : { measures: [], notes: [] };
  // A kill is mostly waiting, and memory doesn't depend on speed, so a short run has both at once.
  const [recovery, memory] = options.quick
    ? await Promise.all([recovering(), remembering()])
    : [await recovering(), await remembering()];
  const measures = [
    ...enqueue,
    ...drain,
    ...wakeup,
    ...here,
    ...idle,
    ...keys,
    ...limits,
    ...schedules,
    ...recovery,
    ...memory.measures,
  ];
  if (options.save) saveMeasures(measures, "tasks-sqlite");
  return {
    measures,
    notes: [
      `durability: full (WAL, synchronous=FULL) for ours and for the limit`,
      `limit: bare node:sqlite on a thread, the same statements in batches of 100, in the same run`,
      `drain: one pod with ${manySlots} slots, and with the default of 100; a backlog of ${size.drain.tasks.toLocaleString("en-US")}`,
      ...memory.notes,
      ...besideNotes(options),
      `Node ${process.version}, ${availableParallelism()} cores, ${cpus()[0]?.model ?? "unknown processor"}`,
    ],
  };
}
