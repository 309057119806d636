import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { percentile } from "../statistics.ts";
import type { FreshStore } from "./store.ts";
import type { WakerParams } from "./waker.ts";

export type HereSizes = { readonly rounds: number; readonly tasks: number };

/** How long a pod takes to start a task that code in its own process enqueues. */
export async function measureHere(
  { profile, progress }: BenchOptions,
  { rounds, tasks }: HereSizes,
  freshStore: FreshStore,
): Promise<Measure[]> {
  const p50: number[] = [];
  const p99: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    const store = await freshStore(`here-${round}`);
    const params: WakerParams = { store, tasks, part: "both" };
    const role = startRole(new URL("./waker.ts", import.meta.url), params, { profile });
    const latenciesMs: number[] = await role.result;
    await role.gone;
    p50.push(percentile(latenciesMs, 0.5));
    p99.push(percentile(latenciesMs, 0.99));
    progress(
      `wake-up here, round ${round} of ${rounds}: p50 ${p50.at(-1)!.toFixed(2)} ms, p99 ${p99.at(-1)!.toFixed(2)} ms`,
    );
  }
  const ofHere = (metric: string, ours: number[]) =>
    measure({ metric, unit: "ms", ours, better: "lower", others: {} });
  return [ofHere("tasks.wakeup.here.p50", p50), ofHere("tasks.wakeup.here.p99", p99)];
}
