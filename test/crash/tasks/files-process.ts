/** A pod that turns files around, and that stores tasks with files, one after the other in each of its lanes. */
import { openSync, writeSync } from "node:fs";
import process from "node:process";
import { file, FlotillaError, startPod, task } from "flotilla";
import { silentLogger } from "../../../src/base/log.ts";
import type { FromPod, PodSpec } from "../pod-process.ts";
import {
  contentOf,
  sharedSeeds,
  type TurnedFile,
  turned,
  type TurningGiven,
} from "./file-contents.ts";

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: TurningGiven };
const { acksPath, firstSeed, lanes } = spec.given;
const tell = (message: FromPod) => void process.send?.(message);
const acks = openSync(acksPath, "a");

const turn = task<TurnedFile, TurnedFile>(
  "turn",
  // An attempt fails where the collector takes what it is about to store.
  { attempts: 30, backoff: { baseMs: 20, jitter: 0 } },
  async ({ input: { seed, doc }, files }) => ({
    seed,
    doc: file(turned(await files.read(doc))),
  }),
);

// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));

const pod = await startPod({
  store: spec.store,
  use: [turn],
  heartbeatMs: 100,
  deadAfterMs: 500,
  pressure: false,
  dataDir: false,
  log: silentLogger,
});
tell({ ready: pod.podId });
for (let lane = 0; lane < lanes; lane++) void produce(lane);

async function produce(lane: number): Promise<void> {
  for (let seed = firstSeed + lane; ; seed += lanes) {
    try {
      const stored = await store(seed);
      writeSync(acks, stored.map(({ taskId }) => `${taskId}\n`).join(""));
      for (const { taskId } of stored) await pod.tasks.waitFor(taskId);
    } catch (error) {
      // The collector has taken an upload that waits for its task, or a task has seen too many pods die.
      if (!(error instanceof FlotillaError)) throw error;
    }
  }
}

/** Every way in which tasks get files. */
async function store(seed: number): Promise<readonly { readonly taskId: string }[]> {
  const { tasks } = pod;
  const newFile = (of: number) => file(contentOf(of));
  switch (seed % 4) {
    case 0:
      return [await tasks.enqueue(turn, { seed, doc: newFile(seed) })];
    case 1: {
      const doc = await tasks.files.store(newFile(seed));
      return tasks.enqueueMany(turn, [
        { seed, doc },
        { seed, doc },
      ]);
    }
    case 2: {
      const options = { key: `key-${seed % 3}`, onDuplicate: "replace" } as const;
      return [await tasks.enqueue(turn, { seed, doc: newFile(seed) }, options)];
    }
    default: {
      const shared = seed % sharedSeeds;
      return [await tasks.enqueue(turn, { seed: shared, doc: newFile(shared) })];
    }
  }
}
