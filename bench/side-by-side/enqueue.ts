import { startRole } from "../roles.ts";
import { loadSystem } from "../systems/system.ts";
import type { Variant } from "../systems/variants.ts";
import { serverOf, type SideBySide, takeTurns } from "./bench.ts";
import { countCost, shownCost } from "./cost.ts";
import { collect, type Work } from "./figures.ts";
import type { Produced, ProducerParams } from "./producer.ts";

export type EnqueueWork = { readonly keys: readonly string[]; readonly runMs: number };

const bulkTasks = 1_000;
const limitTasks = 100;

const ways = {
  sequential: { callers: 1, tasksPerCall: 1 },
  concurrent: { callers: 256, tasksPerCall: 1 },
  bulk: { callers: 1, tasksPerCall: bulkTasks },
  bulk_4_callers: { callers: 4, tasksPerCall: bulkTasks },
};

/** What the limit does where others have one call per task: it sends them by the hundred. */
const limitWays = {
  ...ways,
  concurrent: { callers: 4, tasksPerCall: limitTasks },
};

/** Bringing tasks from one process, in each of the ways that callers have. */
export async function measureEnqueue(
  side: SideBySide,
  { keys, runMs }: EnqueueWork,
): Promise<Work[]> {
  const works: Work[] = [];
  for (const way of Object.keys(ways) as (keyof typeof ways)[]) {
    const rate = collect(`tasks.enqueue.${way}`, "tasks/s");
    const cpu = collect(`tasks.enqueue.${way}.cpu`, "us/task", "lower");
    const serverCpu = collect(`tasks.enqueue.${way}.server_cpu`, "us/task", "lower");
    const once = async (variant: Variant, callers: number, tasksPerCall: number) => {
      const server = serverOf(side, variant);
      const url = await server.fresh();
      const { system, checkout } = variant;
      await (await loadSystem(system, checkout)).prepare(url, {});
      const params: ProducerParams = {
        system,
        url,
        callers,
        tasksPerCall,
        warmMs: runMs / 4,
        runMs,
      };
      const profile = system === "flotilla" ? side.options.profile : undefined;
      const cost = await countCost(server);
      const options = { profile, checkout };
      const role = startRole(new URL("./producer.ts", import.meta.url), params, options);
      const { tasks, warmed, wallMs, cpuMs }: Produced = await role.next("produced");
      const serverCpuUs = await cost.per(warmed + tasks, side.options);
      role.send("stop");
      await role.gone;
      await server.drop(url);
      const cpuUs = (cpuMs * 1_000) / tasks;
      return { perSecond: (tasks / wallMs) * 1_000, cpuUs, serverCpuUs };
    };
    await takeTurns(side, side.only(keys), async (variant, round) => {
      const { callers, tasksPerCall } = (variant.key === "limit" ? limitWays : ways)[way];
      const { perSecond, cpuUs, serverCpuUs } = await once(variant, callers, tasksPerCall);
      // One caller has one task per commit, so the limit has two figures: of one, and of a hundred.
      const ofOne = variant.key === "limit" && tasksPerCall === 1;
      rate.add(ofOne ? "limit_of_one" : variant.key, { value: perSecond });
      if (ofOne) {
        rate.add("limit", { value: (await once(variant, callers, limitTasks)).perSecond });
      }
      cpu.add(variant.key, { value: cpuUs });
      if (serverCpuUs !== undefined) serverCpu.add(variant.key, { value: serverCpuUs });
      side.options.progress(
        `${rate.work.metric}, round ${round} of ${side.rounds}: ${variant.key} ${Math.round(perSecond)}/s; ` +
          shownCost(cpuUs, serverCpuUs),
      );
    });
    works.push(rate.work, cpu.work, serverCpu.work);
  }
  return works;
}
