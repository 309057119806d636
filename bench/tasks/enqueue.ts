import { join } from "node:path";
import { buildsOf } from "../beside.ts";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { inTurn } from "../side-by-side/bench.ts";
import type { Limit, LimitPhase } from "./limit.ts";
import type { Produced, ProducerPhase } from "./producer.ts";

export type EnqueueSizes = { readonly rounds: number; readonly runMs: number };

const ways = ["sequential", "concurrent", "bulk"] as const;

/** Enqueueing in one process, in turns with the limit. */
export async function measureEnqueue(
  { folder, profile, progress, late, beside }: BenchOptions,
  { rounds, runMs }: EnqueueSizes,
): Promise<Measure[]> {
  const rate: Record<string, number[]> = {};
  const cpu: Record<string, number[]> = {};
  const note = (into: Record<string, number[]>, name: string, value: number) =>
    (into[name] ??= []).push(value);

  for (let round = 1; round <= rounds && !(round > 1 && late(0.22)); round++) {
    const path = (name: string) => join(folder, `enqueue-${round}-${name}.db`);
    const warmMs = runMs / 4;
    const limits = [100, 1].map((batch): LimitPhase => ({
      work: "insert",
      batch,
      path: path(`limit-${batch}`),
      warmMs,
      runMs,
    }));
    for (const { key, checkout } of inTurn(round, buildsOf({ beside }))) {
      const phases = ways.map((way): ProducerPhase => ({
        way,
        store: `sqlite:${path(`${key}-${way}`)}`,
        warmMs,
        runMs,
      }));
      const role = startRole(new URL("./producer.ts", import.meta.url), phases, {
        profile,
        checkout,
      });
      const produced: Produced[] = await role.result;
      produced.forEach((each, at) => {
        note(rate, `${key} ${ways[at]!}`, perSecond(each));
        note(cpu, `${key} ${ways[at]!}`, (each.cpuMs * 1_000) / each.tasks);
      });
    }
    const bare: Limit[] = await startRole(new URL("./limit.ts", import.meta.url), limits).result;
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
        ours: rate[`flotilla ${way}`]!,
        others: {
          limit,
          // One caller has one task per commit, so the bare commit of one says more about it.
          ...(way === "sequential" && { limit_of_one: rate["limit-1"]! }),
          ...(beside && { beside: rate[`beside ${way}`]! }),
        },
      }),
    ),
    measure({
      metric: "tasks.enqueue.concurrent.cpu",
      unit: "us/task",
      ours: cpu["flotilla concurrent"]!,
      better: "lower",
      others: beside ? { beside: cpu["beside concurrent"]! } : {},
    }),
  ];
}

function perSecond({ tasks, wallMs }: { tasks: number; wallMs: number }): number {
  return (tasks / wallMs) * 1_000;
}
