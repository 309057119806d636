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
      for (const { text, calls, rows, ms } of (await server.busiest?.()) ?? []) {
        const statement = text.replaceAll(/\s+/g, " ").trim().slice(0, 90);
        const each = ((ms * 1_000) / tasks).toFixed(1);
        progress(`  ${each} us/task, ${calls} calls, ${rows} rows: ${statement}`);
      }
      if (before === undefined || after === undefined) return undefined;
      return ((after - before) * 1_000) / tasks;
    },
  };
}

/** CPU time of both sides, for people. */
export function shownCost(nodeUs: number, serverUs: number | undefined): string {
  return `CPU per task: node ${nodeUs.toFixed(1)} us, server ${serverUs?.toFixed(1) ?? "?"} us`;
}
