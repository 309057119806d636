import { type Role, startRole } from "../roles.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { sayBusiest } from "../side-by-side/cost.ts";
import { percentile } from "../statistics.ts";
import type { Driven, DriverParams } from "./driver.ts";
import type { HostParams, Loaded } from "./host.ts";
import type { FlowSide } from "./side.ts";
import type { FlowVariant } from "./variants.ts";

export type TransitionsWork = {
  readonly metric: string;
  /** What one of them is called, in units and in the metric of how long it takes. */
  readonly each: { readonly unit: string; readonly latency: string };
  /** How many runs are under way at any moment. */
  readonly atOnce: number;
  readonly warmMs: number;
  readonly runMs: number;
};

/** Steps stored as done per second while so many runs are under way, and what each of them costs. */
export async function measureTransitions(side: FlowSide, work: TransitionsWork): Promise<Work[]> {
  const { unit, latency: timed } = work.each;
  const rate = collect(work.metric, `${unit}s/s`);
  const nodeCpu = collect(`${work.metric}.cpu`, `us/${unit}`, "lower");
  const serverCpu = collect(`${work.metric}.server_cpu`, `us/${unit}`, "lower");
  const p50 = collect(`${timed}.p50`, "ms", "lower");
  const p99 = collect(`${timed}.p99`, "ms", "lower");
  await takeTurns(side, side.variants, async (variant, round) => {
    const { key } = variant;
    const found = await loadOnce(side, variant, work);
    const { perSecond, nodeUs, serverUs, latenciesMs } = found;
    rate.add(key, { value: perSecond });
    nodeCpu.add(key, { value: nodeUs });
    if (serverUs !== undefined) serverCpu.add(key, { value: serverUs });
    if (latenciesMs.length > 0) {
      p50.add(key, { value: percentile(latenciesMs, 0.5) });
      p99.add(key, { value: percentile(latenciesMs, 0.99) });
    }
    const [middle, high] = [p50, p99].map(({ work: { figures } }) => figures[key]?.at(-1)?.value);
    const latency =
      middle && high ? `, p50 ${middle.toFixed(2)} ms, p99 ${high.toFixed(2)} ms` : "";
    side.options.progress(
      `${work.metric}, round ${round} of ${side.rounds}: ${key} ${Math.round(perSecond)}/s${latency}; ` +
        `CPU per ${unit}: node ${nodeUs.toFixed(0)} us, server ${serverUs?.toFixed(0) ?? "none"} us`,
    );
  });
  const works = [rate.work, nodeCpu.work, serverCpu.work];
  return work.atOnce === 1 ? [...works, p50.work, p99.work] : works;
}

async function loadOnce(side: FlowSide, variant: FlowVariant, work: TransitionsWork) {
  const place = side.placeOf(variant);
  const { system, settings, apart = false, checkout } = variant;
  const { atOnce, warmMs, runMs } = work;
  const url = await place.fresh();
  const given = { system, settings, url, atOnce };
  const params: HostParams = { ...given, work: "load", drives: !apart, warmMs, runMs };
  const profile = variant.key === "flotilla" ? side.options.profile : undefined;
  const host = startRole(new URL("./host.ts", import.meta.url), params, { profile, checkout });
  await host.next("ready");
  let driver: Role | undefined;
  if (apart) {
    driver = startRole(new URL("./driver.ts", import.meta.url), given satisfies DriverParams);
    await driver.next("driving");
  }
  const begun = host.next("begin");
  const ended = host.next("loaded");
  // If the process ends before, whoever waits for its beginning says so.
  ended.catch(() => {});
  host.send("go");
  const failed = driver ? [driver.result] : [];
  await Promise.race([begun, ...failed]);
  driver?.send("begin");
  // What was counted until now was the warming up.
  await place.busiest?.();
  const beforeMs = place.cpuMs();
  const loaded: Loaded = await Promise.race([ended, ...failed]);
  const afterMs = place.cpuMs();
  await sayBusiest(place, loaded.transitions, side.options.progress);
  driver?.send("end");
  const driven: Driven | undefined = await driver?.result;
  host.send("stop");
  await Promise.all([host.gone, driver?.gone]);
  await place.drop(url);
  // Only the process that starts runs knows when the last step of each is stored.
  const transitions = loaded.transitions + (driven?.finished ?? 0);
  if (transitions === 0) throw new Error(`${variant.key} made no transition`);
  const serverMs = beforeMs === undefined || afterMs === undefined ? undefined : afterMs - beforeMs;
  return {
    perSecond: (transitions / loaded.wallMs) * 1_000,
    nodeUs: ((loaded.cpuMs + (driven?.cpuMs ?? 0)) * 1_000) / transitions,
    serverUs: serverMs === undefined ? undefined : (serverMs * 1_000) / transitions,
    latenciesMs: loaded.latenciesMs,
  };
}
