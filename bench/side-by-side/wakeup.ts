import { startRole } from "../roles.ts";
import { percentile } from "../statistics.ts";
import { loadSystem } from "../systems/system.ts";
import { serverOf, type SideBySide, takeTurns } from "./bench.ts";
import { countCost, shownCost } from "./cost.ts";
import { collect, type Work } from "./figures.ts";
import type { SenderParams } from "./sender.ts";
import type { Worked, WorkerParams } from "./worker.ts";

export type WakeupWork = { readonly keys: readonly string[]; readonly tasks: number };

// The first few find cold code on both sides.
const warmTasks = 25;
const limitMs = 60_000;

/** How long idle workers take to start a task that another process enqueues. */
export async function measureWakeup(
  side: SideBySide,
  { keys, tasks }: WakeupWork,
): Promise<Work[]> {
  const { progress, profile } = side.options;
  const p50 = collect("tasks.wakeup.p50", "ms", "lower");
  const p99 = collect("tasks.wakeup.p99", "ms", "lower");
  await takeTurns(side, side.only(keys), async (variant, round) => {
    const server = serverOf(side, variant);
    const { system, checkout, waking: settings = variant.settings } = variant;
    const url = await server.fresh();
    await (await loadSystem(system, checkout)).prepare(url, settings);
    const params: WorkerParams = { system, settings, url, taskMs: 0 };
    const worker = startRole(new URL("./worker.ts", import.meta.url), params, {
      profile: system === "flotilla" ? profile : undefined,
      checkout,
    });
    let ran = 0;
    let enough = () => {};
    const done = new Promise<void>((resolve) => {
      enough = resolve;
    });
    worker.on("ran", (count: number) => {
      ran = count;
      if (ran >= tasks + warmTasks) enough();
    });
    await worker.next("ready");
    const cost = await countCost(server);
    const sending: SenderParams = { system, url, tasks: tasks + warmTasks };
    const sender = startRole(new URL("./sender.ts", import.meta.url), sending, { checkout });
    await sender.result;
    const late = setTimeout(enough, limitMs);
    await Promise.race([done, worker.result]);
    clearTimeout(late);
    const serverCpuUs = await cost.per(ran, side.options);
    worker.send("stop");
    const { latenciesMs, cpuMs }: Worked = await worker.result;
    await Promise.all([worker.gone, sender.gone]);
    await server.drop(url);
    if (ran < tasks) throw new Error(`${variant.key} ran ${ran} of ${tasks} tasks`);
    const settled = latenciesMs.slice(warmTasks);
    const [middle, high] = [percentile(settled, 0.5), percentile(settled, 0.99)];
    p50.add(variant.key, { value: middle });
    p99.add(variant.key, { value: high });
    progress(
      `tasks.wakeup, round ${round} of ${side.rounds}: ${variant.key} p50 ${middle.toFixed(2)} ms, p99 ${high.toFixed(2)} ms; ` +
        shownCost((cpuMs * 1_000) / ran, serverCpuUs),
    );
  });
  return [p50.work, p99.work];
}
