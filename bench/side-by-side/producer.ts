import { playRole } from "../roles.ts";
import { loadSystem, type SystemName } from "../systems/system.ts";
import { payload } from "../tasks/work.ts";
import { countUsage, type Usage } from "../usage.ts";

/** A process that enqueues for a given time. */
export type ProducerParams = {
  readonly system: SystemName;
  readonly url: string;
  /** How many calls are under way at once. */
  readonly callers: number;
  /** How many tasks a call brings; one is a call of its own kind. */
  readonly tasksPerCall: number;
  readonly warmMs: number;
  readonly runMs: number;
};

export type Produced = Usage & { readonly tasks: number; readonly warmed: number };

playRole(
  async ({ system: name, url, callers, tasksPerCall, warmMs, runMs }: ProducerParams, bench) => {
    const producer = await (await loadSystem(name)).producer(url);
    let untilMs = 0;
    let tasks = 0;
    const one = async (): Promise<void> => {
      while (performance.now() < untilMs) {
        await producer.one(payload(tasks));
        tasks++;
      }
    };
    const many = async (): Promise<void> => {
      while (performance.now() < untilMs) {
        await producer.bulk(Array.from({ length: tasksPerCall }, (_, at) => payload(tasks + at)));
        tasks += tasksPerCall;
      }
    };
    const during = async (forMs: number): Promise<void> => {
      tasks = 0;
      untilMs = performance.now() + forMs;
      await Promise.all(Array.from({ length: callers }, tasksPerCall === 1 ? one : many));
    };
    // Opening connections and compiling the code aren't what is asked for.
    await during(warmMs);
    const warmed = tasks;
    const used = countUsage();
    await during(runMs);
    bench.tell("produced", { tasks, warmed, ...used() } satisfies Produced);
    // Its connections stay open until what they cost the server has been counted.
    await bench.heard("stop");
  },
  { ends: "at once" },
);
