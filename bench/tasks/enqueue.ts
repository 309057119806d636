import { join } from "node:path";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { Limit, LimitPhase } from "./limit.ts";
import type { Produced, ProducerPhase } from "./producer.ts";

export type EnqueueSizes = { readonly rounds: number; readonly runMs: number };

const ways = ["sequential", "concurrent", "bulk"] as const;

/** Enqueueing in one process, in turns with the limit. */
export async function measureEnqueue(
  { folder, profile, progress, late }: BenchOptions,
  { rounds, runMs }: EnqueueSizes,
): Promise<Measure[]> {
  const rate: Record<string, number[]> = {};
  const cpu: Record<string, number[]> = {};
  const note = (into: Record<string, number[]>, name: string, value: number) =>
    (into[name] ??= []).push(value);

  for (let round = 1; round <= rounds && !(round > 1 && late(0.22)); round++) {
    const path = (name: string) => join(folder, `enqueue-${round}-${name}.db`);
    const warmMs = runMs / 4;
    const ours = ways.map((way): ProducerPhase => ({
      way,
      store: `sqlite:${path(way)}`,
      warmMs,
      runMs,
    }));
    const limits = [100, 1].map((batch): LimitPhase => ({
      work: "insert",
      batch,
      path: path(`limit-${batch}`),
      warmMs,
      runMs,
    }));
    const produced: Produced[] = await startRole(new URL("./producer.ts", import.meta.url), ours, {
      profile,
    }).result;
    const bare: Limit[] = await startRole(new URL("./limit.ts", import.meta.url), limits).result;
    produced.forEach((each, at) => {
      note(rate, ways[at]!, perSecond(each));
      note(cpu, ways[at]!, (each.cpuMs * 1_000) / each.tasks);
    });
    bare.forEach((each, at) => note(rate, `limit-${limits[at]!.batch}`, perSecond(each)));
    const figures = Object.entries(rate).map(
      ([name, all]) => `${name} ${Math.round(all.at(-1)!)}/s`,
    );
    progress(`enqueue, round ${round} of ${rounds}: ${figures.join(", ")}`);
  }

  const limit = rate["limit-100"]!;
  return [
    ...ways.map((way) =>
      measure({
        metric: `tasks.enqueue.${way}`,
        unit: "tasks/s",
        ours: rate[way]!,
        // One caller has one task per commit, so the bare commit of one says more about it.
        others: way === "sequential" ? { limit, limit_of_one: rate["limit-1"]! } : { limit },
      }),
    ),
    measure({ metric: "tasks.enqueue.concurrent.cpu", unit: "us/task", ours: cpu["concurrent"]! }),
  ];
}

function perSecond({ tasks, wallMs }: { tasks: number; wallMs: number }): number {
  return (tasks / wallMs) * 1_000;
}
