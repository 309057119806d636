import type { NatsCluster } from "../../test/nats/server.ts";
import { type Role, startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { System } from "./appender.ts";
import type { WriterParams, Written } from "./writer.ts";

/** Three servers, and how often each system has its turn. */
export type ClusterSite = {
  readonly options: BenchOptions;
  readonly rounds: number;
  readonly nats: NatsCluster;
  /** How many logs there are by default. */
  readonly logs: number;
};

export type AppendWork = {
  readonly rates: readonly number[];
  readonly warmMs: number;
  readonly runMs: number;
};
export type AckedWork = {
  readonly messages: number;
  /** Few logs, and many, whose ratio is measured. */
  readonly logs: readonly [number, number];
  readonly warmMs: number;
  readonly runMs: number;
};
export type ReplayWork = { readonly records: number; readonly messages: number };

const systems: readonly System[] = ["flotilla", "bare"];
let namespaces = 0;

/** A process that appends to logs of its own on the servers, by our log or by the engine alone. */
export function startWriter(
  { nats }: ClusterSite,
  params: Omit<WriterParams, "servers" | "namespace">,
): Role {
  const own = { servers: nats.urls, namespace: `bench_${++namespaces}` };
  return startRole(new URL("./writer.ts", import.meta.url), { ...params, ...own });
}

/** How long messages take that come at a rate. */
export async function measureAppend(site: ClusterSite, work: AppendWork): Promise<Work[]> {
  const { rates, warmMs, runMs } = work;
  const all = rates.map((rate) => ({
    rate,
    p50: collect(`cluster.append.p50_at_${rate}`, "ms", "lower"),
    p95: collect(`cluster.append.p95_at_${rate}`, "ms", "lower"),
    p99: collect(`cluster.append.p99_at_${rate}`, "ms", "lower"),
  }));
  const entrants = all.flatMap((at) => systems.map((system) => ({ ...at, system })));
  await takeTurns(site, entrants, async ({ rate, system, p50, p95, p99 }, round) => {
    const open = { type: "open", perSecond: rate, warmMs, runMs } as const;
    const { latency }: Written = await startWriter(site, { system, logs: site.logs, work: open })
      .result;
    p50.add(system, { value: latency!.p50 });
    p95.add(system, { value: latency!.p95 });
    p99.add(system, { value: latency!.p99 });
    const shown = [latency!.p50, latency!.p95, latency!.p99].map((each) => each.toFixed(2));
    site.options.progress(
      `cluster.append, round ${round} of ${site.rounds}: ${system} at ${rate}/s, p50, p95, p99 ${shown.join(", ")} ms`,
    );
  });
  return all.flatMap(({ p50, p95, p99 }) => [p50.work, p95.work, p99.work]);
}

/** Messages acked per second with as many in each record, on the default number of logs, on few and many. */
export async function measureAcked(site: ClusterSite, work: AckedWork): Promise<Work[]> {
  const { messages, warmMs, runMs } = work;
  const [few, many] = work.logs;
  const acked = collect("cluster.acked", "messages/s");
  const scale = collect("cluster.scale", `x, ${many} logs over ${few}`);
  await takeTurns(site, systems, async (system, round) => {
    const on = async (logs: number): Promise<number> => {
      const closed = { type: "closed", messages, warmMs, runMs } as const;
      const written: Written = await startWriter(site, { system, logs, work: closed }).result;
      return written.perSecond!;
    };
    const byDefault = await on(site.logs);
    const [onFew, onMany] = [await on(few), await on(many)];
    acked.add(system, { value: byDefault });
    scale.add(system, { value: onMany / onFew });
    const shown = [byDefault, onFew, onMany].map((each) => Math.round(each));
    site.options.progress(
      `cluster.acked, round ${round} of ${site.rounds}: ${system} ${shown.join(", ")}/s on ${site.logs}, ${few}, ${many} logs`,
    );
  });
  return [acked.work, scale.work];
}

/** A log read from its beginning, as by a pod that takes it. */
export async function measureReplay(site: ClusterSite, work: ReplayWork): Promise<Work[]> {
  const replay = collect("cluster.replay", "MB/s");
  await takeTurns(site, ["both"], async (_, round) => {
    const reading = { type: "replay", ...work } as const;
    const system = "flotilla";
    const { replayed }: Written = await startWriter(site, { system, logs: 1, work: reading })
      .result;
    for (const each of systems) replay.add(each, { value: replayed![each] });
    const shown = systems.map((each) => `${each} ${replayed![each].toFixed(1)}`);
    site.options.progress(
      `cluster.replay, round ${round} of ${site.rounds}: ${shown.join(", ")} MB/s`,
    );
  });
  return [replay.work];
}
