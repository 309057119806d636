import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { Place } from "../servers/place.ts";
import { inTurn } from "../side-by-side/bench.ts";
import { sayBusiest, shownCost } from "../side-by-side/cost.ts";
import type { DrainSizes } from "./drain.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import { manySlots } from "./work.ts";

/** How many keys the tasks are spread over; one of each may run at a time. */
const keys = 10_000;
const kinds = ["limited", "plain"] as const;

/** Draining a backlog with a limit on each of many keys and without any, in turns. */
export async function measureLimits(
  { profile, progress, late }: BenchOptions,
  { rounds, tasks, cutMs }: DrainSizes,
  place: Pick<Place, "busiest" | "cpuMs" | "drop" | "filled">,
): Promise<Measure[]> {
  const drain = async (kind: (typeof kinds)[number]): Promise<number> => {
    const store = await place.filled(`limits ${kind} ${tasks}`, async (empty) => {
      const limited = kind === "limited" ? { keys } : {};
      const filler: FillerParams = { store: empty, tasks, parts: 1, ...limited };
      const role = startRole(new URL("./filler.ts", import.meta.url), filler);
      await role.result;
      await role.gone;
    });
    await place.busiest?.();
    const beforeMs = place.cpuMs();
    const params: DrainerParams = { store, tasks, slots: manySlots, cutMs };
    const role = startRole(new URL("./drainer.ts", import.meta.url), params, { profile });
    const drained: Drained = await role.result;
    await role.gone;
    const usOf = (ms: number) => (ms * 1_000) / drained.tasks;
    const serverUs = beforeMs === undefined ? undefined : usOf(place.cpuMs()! - beforeMs);
    progress(`limits: ${kind}, ${shownCost(usOf(drained.cpuMs), serverUs)}`);
    await sayBusiest(place, drained.tasks, progress);
    await place.drop(store);
    return (drained.tasks / drained.wallMs) * 1_000;
  };
  const rates = { limited: [] as number[], plain: [] as number[] };
  for (let round = 1; round <= rounds && !(round > 1 && late(0.5)); round++) {
    for (const kind of inTurn(round, kinds)) rates[kind].push(await drain(kind));
    const shown = (kind: keyof typeof rates) => `${Math.round(rates[kind].at(-1)!)}/s`;
    progress(
      `limits, round ${round} of ${rounds}: ${shown("limited")} with ${keys} keys, ${shown("plain")} without`,
    );
  }
  return [
    measure({
      metric: `tasks.drain.limits_on_${keys}_keys`,
      unit: "tasks/s",
      ours: rates.limited,
      others: { plain: rates.plain },
    }),
  ];
}
