import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { EnqueueSizes } from "./enqueue.ts";
import type { Produced, ProducerPhase } from "./producer.ts";
import type { FreshStore } from "./store.ts";

const ways = ["concurrent", "bulk"] as const;
const kinds = ["plain", "keyed", "unfinished"] as const;

/** Enqueueing with a key of its own for each task, in turns with enqueueing without. */
export async function measureKeys(
  { profile, progress, late }: BenchOptions,
  { rounds, runMs }: EnqueueSizes,
  freshStore: FreshStore,
): Promise<Measure[]> {
  const rate: Record<string, number[]> = {};
  const warmMs = runMs / 4;
  for (let round = 1; round <= rounds && !(round > 1 && late(0.5)); round++) {
    // Whoever comes second finds a warmer machine, so they take turns at that too.
    const inTurn = round % 2 === 0 ? kinds.toReversed() : kinds;
    for (const way of ways) {
      for (const kind of inTurn) {
        const store = await freshStore(`keys-${way}-${kind}-${round}`);
        const phase: ProducerPhase = { way, store, warmMs, runMs, keys: kind };
        const role = startRole(new URL("./producer.ts", import.meta.url), [phase], { profile });
        const [{ tasks, wallMs }]: [Produced] = await role.result;
        (rate[`${way} ${kind}`] ??= []).push((tasks / wallMs) * 1_000);
      }
    }
    const figures = Object.entries(rate).map(
      ([name, all]) => `${name} ${Math.round(all.at(-1)!)}/s`,
    );
    progress(`keys, round ${round} of ${rounds}: ${figures.join(", ")}`);
  }
  return ways.flatMap((way) =>
    (["keyed", "unfinished"] as const).map((kind) =>
      measure({
        metric: `tasks.enqueue.${way}.${kind}`,
        unit: "tasks/s",
        ours: rate[`${way} ${kind}`]!,
        others: { plain: rate[`${way} plain`]! },
      }),
    ),
  );
}
