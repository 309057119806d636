import { join } from "node:path";
import { type Build, buildsOf } from "../beside.ts";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { inTurn } from "../side-by-side/bench.ts";
import { percentile } from "../statistics.ts";

export type WakeupSizes = { readonly rounds: number; readonly tasks: number };

/** How long an idle pod takes to start a task that another process enqueues. */
export async function measureWakeup(
  { folder, profile, progress, beside }: BenchOptions,
  { rounds, tasks }: WakeupSizes,
): Promise<Measure[]> {
  const waker = new URL("./waker.ts", import.meta.url);
  const p50: Record<Build["key"], number[]> = { flotilla: [], beside: [] };
  const p99: Record<Build["key"], number[]> = { flotilla: [], beside: [] };
  for (let round = 1; round <= rounds; round++) {
    for (const { key, checkout } of inTurn(round, buildsOf({ beside }))) {
      const params = { store: `sqlite:${join(folder, `wakeup-${key}-${round}.db`)}`, tasks };
      const pod = startRole(waker, { ...params, part: "pod" }, { profile, checkout });
      await pod.next("ready");
      const producer = startRole(waker, { ...params, part: "producer" }, { checkout });
      const latenciesMs: number[] = await pod.result;
      await producer.result;
      p50[key].push(percentile(latenciesMs, 0.5));
      p99[key].push(percentile(latenciesMs, 0.99));
      progress(
        `wake-up, round ${round} of ${rounds}: ${key} p50 ${p50[key].at(-1)!.toFixed(2)} ms, p99 ${p99[key].at(-1)!.toFixed(2)} ms`,
      );
    }
  }
  const compared = (metric: string, { flotilla, beside: other }: typeof p50) =>
    measure({
      metric,
      unit: "ms",
      ours: flotilla,
      better: "lower",
      others: beside ? { beside: other } : {},
    });
  return [compared("tasks.wakeup.p50", p50), compared("tasks.wakeup.p99", p99)];
}
