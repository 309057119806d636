import { playRole } from "../roles.ts";
import type { Settings } from "../systems/system.ts";
import { countUsage, type Usage } from "../usage.ts";
import { startAll, startLanes } from "./lanes.ts";
import { type FlowSystemName, loadFlowSystem } from "./systems/system.ts";

/** The process that starts runs, where that isn't the one that executes their steps. */
export type DriverParams = {
  readonly system: FlowSystemName;
  readonly settings: Settings;
  readonly url: string;
  readonly atOnce: number;
  /** Where they only have to be started: how many. */
  readonly starts?: number;
};

export type Driven = Usage & { readonly finished: number };

playRole(
  async ({ system: name, settings, url, atOnce, starts }: DriverParams, bench) => {
    const system = await loadFlowSystem(name);
    const runs = await system.client!(url, settings);
    let finished = 0;
    const count = () => void finished++;
    const lanes = starts === undefined ? startLanes(runs, atOnce, count) : startAll(runs, starts);
    bench.tell("driving");
    await Promise.race([bench.heard("begin"), lanes.failed]);
    const used = countUsage();
    finished = 0;
    await Promise.race([bench.heard("end"), lanes.failed]);
    return { ...used(), finished } satisfies Driven;
  },
  { ends: "at once" },
);
