import { join } from "node:path";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { percentile } from "../statistics.ts";

export type WakeupSizes = { readonly rounds: number; readonly tasks: number };

/** How long an idle pod takes to start a task that another process enqueues. */
export async function measureWakeup(
  { folder, profile, progress }: BenchOptions,
  { rounds, tasks }: WakeupSizes,
): Promise<Measure[]> {
  const p50: number[] = [];
  const p99: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    const params = { store: `sqlite:${join(folder, `wakeup-${round}.db`)}`, tasks };
    const pod = startRole(
      new URL("./waker.ts", import.meta.url),
      { ...params, part: "pod" },
      { profile },
    );
    await pod.next("ready");
    const producer = startRole(new URL("./waker.ts", import.meta.url), {
      ...params,
      part: "producer",
    });
    const latenciesMs: number[] = await pod.result;
    await producer.result;
    p50.push(percentile(latenciesMs, 0.5));
    p99.push(percentile(latenciesMs, 0.99));
    progress(
      `wake-up, round ${round} of ${rounds}: p50 ${p50.at(-1)!.toFixed(2)} ms, p99 ${p99.at(-1)!.toFixed(2)} ms`,
    );
  }
  return [
    measure({ metric: "tasks.wakeup.p50", unit: "ms", ours: p50, better: "lower" }),
    measure({ metric: "tasks.wakeup.p99", unit: "ms", ours: p99, better: "lower" }),
  ];
}
