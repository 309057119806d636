import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { lead } from "../../test/cluster/log-reader.ts";
import type { NatsCluster } from "../../test/nats/server.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { percentile } from "../statistics.ts";
import { pause, type System } from "./appender.ts";
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
export type FailoverWork = { readonly logs: number; readonly settleMs: number };

const systems: readonly System[] = ["flotilla", "bare"];
/** An election takes 4 to 9 s, and a busy machine longer. */
const electedMs = 15_000;
let namespaces = 0;

function writer({ nats }: ClusterSite, params: Omit<WriterParams, "servers" | "namespace">) {
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
    const { latency }: Written = await writer(site, { system, logs: site.logs, work: open }).result;
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
      const written: Written = await writer(site, { system, logs, work: closed }).result;
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
    const { replayed }: Written = await writer(site, { system, logs: 1, work: reading }).result;
    for (const each of systems) replay.add(each, { value: replayed![each] });
    const shown = systems.map((each) => `${each} ${replayed![each].toFixed(1)}`);
    site.options.progress(
      `cluster.replay, round ${round} of ${site.rounds}: ${shown.join(", ")} MB/s`,
    );
  });
  return [replay.work];
}

/** How long no record is acked when the server is killed that leads all logs of both systems. */
export async function measureFailover(site: ClusterSite, work: FailoverWork): Promise<Work[]> {
  const { nats, options } = site;
  const gap = collect("cluster.failover.server_p95_s", "s", "lower");
  const over = collect("cluster.failover.server_over_bare_s", "s", "lower");
  await takeTurns(site, ["both"], async (_, round) => {
    const victim = nats.servers[round % nats.servers.length]!;
    const roles = systems.map((system) => ({
      system,
      role: writer(site, { system, logs: work.logs, work: { type: "steady" } }),
    }));
    const ready = await Promise.all(
      roles.map(({ role }) => role.next("ready") as Promise<{ streams: string[] }>),
    );
    const streams = ready.flatMap((each) => each.streams);
    await leadAll(nats, streams, victim.name);
    await pause(work.settleMs);
    await victim.kill();
    await pause(electedMs);
    const gaps = new Map<System, number>();
    for (const { system, role } of roles) {
      role.send("end");
      const { gapsMs }: Written = await role.result;
      gaps.set(system, percentile(gapsMs!, 0.95) / 1_000);
    }
    await victim.start();
    for (const system of systems) gap.add(system, { value: gaps.get(system)! });
    over.add("flotilla", { value: gaps.get("flotilla")! - gaps.get("bare")! });
    const shown = systems.map((each) => `${each} ${gaps.get(each)!.toFixed(2)} s`);
    options.progress(`cluster.failover, round ${round} of ${site.rounds}: ${shown.join(", ")}`);
  });
  return [gap.work, over.work];
}

/** Has one server lead all of these streams. */
async function leadAll(nats: NatsCluster, streams: readonly string[], server: string) {
  const connection = await connect({ servers: [...nats.urls], noAsyncTraces: true });
  try {
    const manager = await jetstreamManager(connection, { checkAPI: false });
    for (const stream of streams) await lead({ connection, manager, stream, server });
  } finally {
    await connection.close();
  }
}
