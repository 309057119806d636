import { jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { lead } from "../../test/cluster/log-reader.ts";
import type { NatsCluster, NatsServer } from "../../test/nats/server.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { percentile } from "../statistics.ts";
import { pause } from "./appender.ts";
import { type Callers, startCallers } from "./callers.ts";
import {
  allOwned,
  type BenchPod,
  countsOf,
  makeSessions,
  namespace,
  openPods,
  type Pods,
  sessionPerLog,
} from "./pods.ts";
import { watchElections } from "./elections.ts";
import type { ClusterSite } from "./works.ts";

export type FailoverWork = {
  readonly rounds: number;
  /** How long callers have been served before each fault. */
  readonly settleMs: number;
};

/** An election takes 4 to 9 s, and a busy machine longer. */
const servedLimitMs = 40_000;
const wellLimitMs = 60_000;
const lookEveryMs = 100;

/**
 * How long callers of other pods have no ack: after a pod was killed, after it was paused, after the server
 * was killed that leads all logs, and after both were killed at once. Beside the last two, how long the
 * streams of the same logs had no leader: that is the election.
 */
export async function measureFailover(site: ClusterSite, work: FailoverWork): Promise<Work[]> {
  const { nats, options } = site;
  await using opened = new AsyncDisposableStack();
  const pods = await openPods(site);
  opened.defer(() => pods.close());
  const sessions = sessionPerLog("called", pods.logs);
  await makeSessions(pods.running[0]!.url, sessions);
  let away: BenchPod | undefined;
  const reachable = () => pods.running.filter((pod) => pod !== away);
  const callers = startCallers(sessions, reachable);
  opened.defer(() => callers.end());

  /**
   * Does harm, to the pod with the most logs or to a server, and returns how long the sessions of the logs
   * that it had were without an ack.
   */
  const harmed = async (
    kind: Kind,
    round: number,
    harm: (pod: BenchPod) => Promise<void>,
  ): Promise<readonly number[]> => {
    const owners = await allOwned(pods.running, pods.owners);
    const victim = busiest(pods, owners);
    if (kind !== "server") away = victim;
    await pause(work.settleMs);
    await callers.allAcked(servedLimitMs);
    const before = callers.errors.length;
    callers.begin();
    await harm(victim);
    await callers.allAcked(servedLimitMs);
    const isOfServer = kind === "server" || kind === "both";
    const gaps = callers.gapsMs().filter((_, log) => isOfServer || owners[log] === victim.podId);
    const failed = callers.errors.length - before;
    options.progress(
      `cluster.failover, round ${round} of ${work.rounds}: ${kind}, ${gaps.length} logs without an ack for ${shown(gaps)}, ${failed} errors`,
    );
    return gaps;
  };
  const killed = async (pod: BenchPod) => {
    pod.signal("SIGKILL");
    await pod.ended;
  };

  const found = { pod: [] as number[], paused: [] as number[] };
  for (let round = 1; round <= work.rounds; round++) {
    found.pod.push(...(await harmed("pod", round, killed)));
    away = undefined;
    await pods.start();
    let stopped: BenchPod | undefined;
    try {
      const pausing = async (pod: BenchPod) => {
        stopped = pod;
        pod.signal("SIGSTOP");
      };
      found.paused.push(...(await harmed("paused", round, pausing)));
    } finally {
      stopped?.signal("SIGCONT");
    }
    // It finds out that its logs are another's, and callers go to it again.
    await pause(work.settleMs);
    away = undefined;
  }

  const elections = { server: [] as number[], both: [] as number[] };
  const withServer = { server: [] as number[], both: [] as number[] };
  const over = { server: [] as number[], both: [] as number[] };
  for (const kind of ["server", "both"] as const) {
    for (let round = 1; round <= work.rounds; round++) {
      const server = nats.servers[round % nats.servers.length]!;
      let isDown = false;
      const watch = await watchElections(nats, { namespace, without: server });
      try {
        await leadAll(nats, server);
        let electing: Promise<readonly number[]> | undefined;
        const harm = async (pod: BenchPod) => {
          isDown = true;
          const ended = kind === "both" ? killed(pod) : undefined;
          await server.kill();
          electing = watch.lastMs();
          electing.catch(() => {});
          await ended;
        };
        const gaps = await harmed(kind, round, harm);
        const elected = await electing!;
        withServer[kind].push(...gaps);
        elections[kind].push(...elected);
        over[kind].push(...gaps.map((ms, log) => ms - elected[log]!));
        options.progress(
          `cluster.failover, round ${round} of ${work.rounds}: ${kind}, streams without a leader for ${shown(elected)}, calls longer than that by ${shown(over[kind].slice(-gaps.length))}`,
        );
      } finally {
        await watch.close();
        if (isDown) await server.start();
      }
      await allWell(nats);
      if (kind === "both") await pods.start();
      away = undefined;
    }
  }
  sayErrors(callers, options.progress);
  return worksOf({ ...found, ...withServer }, { elections, over }, callers.errors.length);
}

type Kind = "pod" | "paused" | "server" | "both";

function shown(gapsMs: readonly number[]): string {
  const [least, most] = [Math.min(...gapsMs), Math.max(...gapsMs)].map((ms) => ms / 1_000);
  return `${least!.toFixed(2)} to ${most!.toFixed(2)} s`;
}

function worksOf(
  gaps: Readonly<Record<Kind, readonly number[]>>,
  {
    elections,
    over,
  }: Readonly<Record<"elections" | "over", Readonly<Record<"server" | "both", readonly number[]>>>>,
  errors: number,
): Work[] {
  const works: Work[] = [];
  const p95 = (all: readonly number[]) => percentile(all, 0.95) / 1_000;
  for (const [kind, all] of Object.entries(gaps)) {
    const gap = collect(`cluster.failover.${kind}_p95_s`, "s", "lower");
    gap.add("flotilla", { value: p95(all) });
    works.push(gap.work);
    if (kind !== "server" && kind !== "both") continue;
    gap.add("bare", { value: p95(elections[kind]) });
    const longer = collect(`cluster.failover.${kind}_over_bare_s`, "s", "lower");
    longer.add("flotilla", { value: p95(over[kind]) });
    works.push(longer.work);
  }
  const failed = collect("cluster.failover.errors", "calls", "lower");
  failed.add("flotilla", { value: errors });
  return [...works, failed.work];
}

/** What callers were told, so that a figure above zero has a reason beside it. */
export function sayErrors({ errors }: Callers, progress: (what: string) => void): void {
  for (const each of errors.slice(0, 10)) progress(`a call failed: ${each}`);
}

function busiest({ running }: Pods, owners: readonly (string | null)[]): BenchPod {
  const counts = countsOf(running, owners);
  return running[counts.indexOf(Math.max(...counts))]!;
}

/** Has one server lead the streams of all pods. */
async function leadAll(nats: NatsCluster, { name }: NatsServer): Promise<void> {
  await withConnection(nats, async (connection) => {
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const streams: string[] = [];
    for await (const stream of manager.streams.names()) streams.push(stream);
    for (const stream of streams) await lead({ connection, manager, stream, server: name });
  });
}

/** A server that has come back has to have caught up before another may be killed. */
async function allWell({ servers }: NatsCluster): Promise<void> {
  await until("all servers are well", async () => {
    const all = servers.map(({ monitorUrl }) =>
      fetch(`${monitorUrl}/healthz`).then(
        ({ ok }) => ok,
        () => false,
      ),
    );
    return (await Promise.all(all)).every(Boolean);
  });
}

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const endMs = performance.now() + wellLimitMs;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error(`waited ${wellLimitMs} ms until ${what}`);
    await pause(lookEveryMs);
  }
}

async function withConnection(
  { urls }: NatsCluster,
  use: (connection: NatsConnection) => Promise<void>,
): Promise<void> {
  const connection = await connect({ servers: [...urls], noAsyncTraces: true });
  try {
    await use(connection);
  } finally {
    await connection.close();
  }
}
