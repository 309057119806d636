import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { percentile } from "../statistics.ts";
import type { FreshStore } from "./store.ts";
import type { WakerParams } from "./waker.ts";

export type TriggerSizes = { readonly rounds: number; readonly tasks: number };

/** How long an idle pod takes to start a task that a trigger inserts, which then calls `wake()`. */
export async function measureTrigger(
  { profile, progress }: BenchOptions,
  { rounds, tasks }: TriggerSizes,
  freshStore: FreshStore,
): Promise<Measure[]> {
  const waker = new URL("./waker.ts", import.meta.url);
  const p50: number[] = [];
  const p99: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    const params: Omit<WakerParams, "part"> = {
      store: await freshStore(`trigger-${round}`),
      tasks,
    };
    const pod = startRole(waker, { ...params, part: "pod" }, { profile });
    await pod.next("ready");
    const inserting = startRole(waker, { ...params, part: "trigger" }, {});
    const latenciesMs: number[] = await pod.result;
    await inserting.result;
    await pod.gone;
    p50.push(percentile(latenciesMs, 0.5));
    p99.push(percentile(latenciesMs, 0.99));
    progress(
      `wake-up by a trigger, round ${round} of ${rounds}: p50 ${p50.at(-1)!.toFixed(2)} ms, p99 ${p99.at(-1)!.toFixed(2)} ms`,
    );
  }
  const ofTrigger = (metric: string, ours: number[]) =>
    measure({ metric, unit: "ms", ours, better: "lower", others: {} });
  return [ofTrigger("tasks.wakeup.trigger.p50", p50), ofTrigger("tasks.wakeup.trigger.p99", p99)];
}
