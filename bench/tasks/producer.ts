import { connect } from "../../src/index.ts";
import { playRole } from "../roles.ts";
import { countUsage, type Usage } from "../usage.ts";
import { payload, workName } from "./work.ts";

/** A process that enqueues, for a given time, in each of several ways. */
export type ProducerPhase = {
  readonly way: "sequential" | "concurrent" | "bulk";
  readonly store: string;
  readonly warmMs: number;
  readonly runMs: number;
  /** Whether each task has a key of its own, and what is asked of it. Default: none has. */
  readonly keys?: "plain" | "keyed" | "unfinished";
};

export type Produced = Usage & { readonly tasks: number };

const callers = 256;
const bulkTasks = 1_000;

playRole(async (phases: ProducerPhase[]) => {
  const results: Produced[] = [];
  for (const phase of phases) results.push(await produce(phase));
  return results;
});

async function produce(phase: ProducerPhase): Promise<Produced> {
  const { way, store, warmMs, runMs, keys = "plain" } = phase;
  await using flotilla = connect(store);
  const policy = keys === "unfinished" ? ({ uniqueWhile: "unfinished" } as const) : {};
  let lastKey = 0;
  const ofOne = () => (keys === "plain" ? {} : { ...policy, key: `key ${++lastKey}` });
  const ofMany = keys === "plain" ? {} : { ...policy, key: () => `key ${++lastKey}` };
  let untilMs = 0;
  let tasks = 0;
  const one = async (): Promise<void> => {
    while (performance.now() < untilMs) {
      await flotilla.enqueue(workName, payload(tasks), ofOne());
      tasks++;
    }
  };
  const many = async (): Promise<void> => {
    while (performance.now() < untilMs) {
      const inputs = Array.from({ length: bulkTasks }, (_, at) => payload(tasks + at));
      tasks += (await flotilla.enqueueMany(workName, inputs, ofMany)).length;
    }
  };
  const ways = {
    sequential: one,
    concurrent: () => Promise.all(Array.from({ length: callers }, one)),
    bulk: many,
  };
  // Opening the file and compiling the code aren't what is asked for.
  untilMs = performance.now() + warmMs;
  await ways[way]();
  tasks = 0;
  const used = countUsage();
  untilMs = performance.now() + runMs;
  await ways[way]();
  return { tasks, ...used() };
}
