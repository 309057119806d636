import { cpuMsOf } from "../servers/cpu.ts";
import type { Server } from "../servers/server.ts";
import type { BenchOptions } from "../run.ts";

/** What a phase costs the server. */
export type Cost = {
  /** CPU time per task, where the system tells. With a profile it also says which statements it went to. */
  per(tasks: number, options: BenchOptions): Promise<number | undefined>;
};

export async function countCost(server: Server): Promise<Cost> {
  // What was counted until now was the filling.
  await server.busiest?.();
  const before = cpuMsOf(server.pid);
  return {
    async per(tasks, { progress }) {
      const after = cpuMsOf(server.pid);
      await sayBusiest(server, tasks, progress);
      if (before === undefined || after === undefined) return undefined;
      return ((after - before) * 1_000) / tasks;
    },
  };
}

/** Says which statements the server was busy with, where it counts that. */
export async function sayBusiest(
  { busiest }: Pick<Server, "busiest">,
  tasks: number,
  progress: BenchOptions["progress"],
): Promise<void> {
  for (const { text, calls, rows, ms } of (await busiest?.()) ?? []) {
    const statement = text.replaceAll(/\s+/g, " ").trim().slice(0, 90);
    const each = ((ms * 1_000) / tasks).toFixed(1);
    progress(`  ${each} us each, ${calls} calls, ${rows} rows: ${statement}`);
  }
}

/** CPU time of both sides, for people. */
export function shownCost(nodeUs: number, serverUs: number | undefined): string {
  return `CPU per task: node ${nodeUs.toFixed(1)} us, server ${serverUs?.toFixed(1) ?? "?"} us`;
}
