import { setTimeout as wait } from "node:timers/promises";
import { type Bench, playRole } from "../roles.ts";
import type { Settings } from "../systems/system.ts";
import { countUsage, type Usage } from "../usage.ts";
import { startAll, startLanes } from "./lanes.ts";
import { fillProbe, loadProbe, resumeProbe, type Seen } from "./probe.ts";
import { type FlowSystem, type FlowSystemName, loadFlowSystem } from "./systems/system.ts";

/** The process that executes steps: of runs that it starts, or of such as another one left open. */
export type HostParams = {
  readonly system: FlowSystemName;
  readonly settings: Settings;
  readonly url: string;
} & (
  | {
      readonly work: "load";
      /** How many runs are under way at any moment. */
      readonly atOnce: number;
      /** Whether this process starts them as well. */
      readonly drives: boolean;
      readonly warmMs: number;
      readonly runMs: number;
    }
  | {
      readonly work: "fill";
      readonly runs: number;
      readonly stored: number;
      readonly drives: boolean;
    }
  | {
      readonly work: "resume";
      readonly runs: number;
      readonly stored: number;
      readonly cutMs: number;
    }
);

export type Loaded = Usage & Seen;
export type Resumed = Usage & { readonly advanced: number; readonly repeated: number };

type Of<Work extends HostParams["work"]> = HostParams & { readonly work: Work };

const startLimitMs = 30_000;

playRole(
  async (params: HostParams, bench) => {
    const system = await loadFlowSystem(params.system);
    if (params.work === "load") await load(system, params, bench);
    else if (params.work === "fill") await fill(system, params, bench);
    else await resume(system, params, bench);
    // Its connections stay open until what they cost the server has been counted.
    await bench.heard("stop");
  },
  { ends: "at once" },
);

async function load(system: FlowSystem, params: Of<"load">, bench: Bench): Promise<void> {
  const { url, settings, atOnce, drives, warmMs, runMs } = params;
  const probe = loadProbe({ keepLatencies: atOnce === 1 });
  const runs = await system.open(url, settings, probe.entered);
  bench.tell("ready");
  await bench.heard("go");
  const lanes = drives ? startLanes(runs, atOnce, probe.finished) : undefined;
  const during = (ms: number) => Promise.race([wait(ms), ...(lanes ? [lanes.failed] : [])]);
  await during(warmMs);
  // Where it takes long to start them all, the beginning isn't what is asked for either.
  const latestMs = performance.now() + startLimitMs;
  while (probe.seen().transitions < atOnce && performance.now() < latestMs) await during(10);
  probe.begin();
  const used = countUsage();
  bench.tell("begin");
  await during(runMs);
  const loaded: Loaded = { ...probe.seen(), ...used() };
  bench.tell("loaded", loaded);
}

async function fill(system: FlowSystem, params: Of<"fill">, bench: Bench): Promise<void> {
  const probe = fillProbe(params);
  const runs = await system.open(params.url, params.settings, probe.entered);
  bench.tell("ready");
  const lanes = params.drives ? startAll(runs, params.runs) : undefined;
  await Promise.race([probe.all, lanes?.failed ?? probe.all]);
  bench.tell("filled");
}

async function resume(system: FlowSystem, params: Of<"resume">, bench: Bench): Promise<void> {
  const probe = resumeProbe(params);
  const used = countUsage();
  bench.tell("begin");
  await system.open(params.url, params.settings, probe.entered);
  await Promise.race([probe.all, wait(params.cutMs)]);
  const resumed: Resumed = {
    ...used(),
    advanced: probe.advanced(),
    repeated: probe.repeated(),
  };
  bench.tell("resumed", resumed);
}
