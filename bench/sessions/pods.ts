import { setTimeout as wait } from "node:timers/promises";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { logOf } from "../../src/sessions/log/placement.ts";
import { createSqlJournal } from "../../src/sessions/log/sql-journal.ts";
import { openStore } from "../../src/store/open.ts";
import { openLogReader } from "../../test/cluster/log-reader.ts";
import type { NatsCluster } from "../../test/nats/server.ts";
import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { Loaded, LoadParams } from "./load.ts";
import { makeSessions } from "./dial.ts";
import type { ServerParams } from "./server.ts";
import { addressOf, during, type Running, type Site } from "./site.ts";

export type PodsWork = {
  readonly clients: number;
  readonly perSecond: number;
  readonly warmMs: number;
  readonly runMs: number;
};

// A pod that has come is handed its part of the logs only after a while.
const sharedLimitMs = 60_000;

/** Acks for clients of one pod whose sessions are all in logs that another pod owns. */
export async function measurePods(site: Site, work: PodsWork): Promise<Work[]> {
  const p50 = collect("sessions.pods.p50", "ms", "lower");
  const p95 = collect("sessions.pods.p95", "ms", "lower");
  const p99 = collect("sessions.pods.p99", "ms", "lower");
  await takeTurns(site, [ours], async ({ key }, round) => {
    const { latency, cut } = await acrossPods(site, work, `sessions.pods, round ${round}`);
    p50.add(key, { value: latency.p50, ...cut });
    p95.add(key, { value: latency.p95, ...cut });
    p99.add(key, { value: latency.p99, ...cut });
  });
  return [p50.work, p95.work, p99.work];
}

/**
 * The same through servers of NATS, with logs there too and with logs in Postgres, beside the way through rows
 * of the store.
 */
export async function measureHop(
  site: Site,
  { nats, ...work }: PodsWork & { readonly nats: NatsCluster },
): Promise<Work[]> {
  const p50 = collect(`cluster.hop.p50_at_${work.perSecond}`, "ms", "lower");
  const p95 = collect(`cluster.hop.p95_at_${work.perSecond}`, "ms", "lower");
  const monitor = nats.servers.map(({ monitorUrl }) => monitorUrl);
  const servers = nats.urls;
  await takeTurns(site, ["flotilla", "bus", "rows"], async (key, round) => {
    const name = `cluster.hop by ${key}, round ${round}`;
    const namespace = `hop_${round}_${key}`;
    const isLogs = key === "flotilla";
    const config = isLogs ? { servers, namespace, monitor, use: "all" as const } : { servers };
    const reader = isLogs ? await openLogReader(nats, namespace) : undefined;
    try {
      const { latency, cut } = await acrossPods(site, work, name, {
        ...(key !== "rows" && { nats: config }),
        ...(reader && { heads: () => reader.heads() }),
      });
      p50.add(key, { value: latency.p50, ...cut });
      p95.add(key, { value: latency.p95, ...cut });
    } finally {
      await reader?.close();
    }
  });
  return [p50.work, p95.work];
}

// Which pod owns which log is read with our own statements, so another checkout takes no part.
const ours = { key: "flotilla" } as const;

async function acrossPods(
  site: Site,
  { clients, perSecond, warmMs, runMs }: PodsWork,
  name: string,
  { heads: headsOf, ...served }: Pick<ServerParams, "nats"> & { heads?: ReadHeads } = {},
) {
  const store = await site.place.fresh();
  const pods = [await site.serve(ours, store, served), await site.serve(ours, store, served)];
  const [near, far] = pods as [Running, Running];
  await makeSessions(near.httpUrl!, ["the first one makes the logs"]);
  const heads = await shared(store, far.podId, { read: headsOf });
  const params: LoadParams = {
    ...addressOf(near),
    sessions: sessionsOf(heads, far.podId, clients),
    joins: true,
    work: { type: "open", perSecond, warmMs, runMs },
  };
  const { result, serverMs, storeMs } = await runLoad(site, params, { pods, store });
  const { acked, refused, lost, latency, late } = result;
  const isCut = refused + lost > 0;
  const us = (ms: number) => ((ms * 1_000) / Math.max(1, acked)).toFixed(0);
  site.options.progress(
    `${name} of ${site.rounds}: ${perSecond}/s across pods: p50, p95, p99 ` +
      `${[latency.p50, latency.p95, latency.p99].map((each) => each.toFixed(2)).join(", ")} ms of ${acked}` +
      `${isCut ? `, ${refused} refused, ${lost} unanswered` : ""}; sent late by p50 ${late.p50.toFixed(2)} ms; ` +
      `CPU us per message: both servers ${us(serverMs)}, store ${storeMs === undefined ? "none" : us(storeMs)}`,
  );
  return { latency, cut: isCut ? { cut: true } : {} };
}

export type PodsAckedWork = {
  /** How many pods are measured beside one. */
  readonly pods: readonly number[];
  readonly clients: number;
  readonly inFlight: number;
  readonly warmMs: number;
  readonly runMs: number;
};

/**
 * Acks of one, two and four pods, with as many clients in all. Each client is at the pod that owns its
 * session, as behind a balancer that goes by the session.
 */
export async function measurePodsAcked(site: Site, work: PodsAckedWork): Promise<Work[]> {
  const { clients, inFlight, warmMs, runMs } = work;
  const several = new Map(
    work.pods.map((count) => [
      count,
      {
        rate: collect(`sessions.pods.acked_by_${count}`, "messages/s"),
        p99: collect(`sessions.pods.acked_by_${count}.p99`, "ms", "lower"),
        cpu: collect(`sessions.pods.acked_by_${count}.cpu`, "us/message", "lower"),
      },
    ]),
  );
  await takeTurns(site, [1, ...work.pods], async (count, round) => {
    const store = await site.place.fresh();
    const pods: Running[] = [];
    for (let at = 0; at < count; at++) pods.push(await site.serve({ key: "flotilla" }, store));
    await makeSessions(pods[0]!.httpUrl!, ["the first one makes the logs"]);
    let heads: Owners = [];
    for (const { podId } of pods) heads = await shared(store, podId, { pods: count });
    const perPod = pods.map(({ podId }) => sessionsOf(heads, podId, Math.ceil(clients / count)));
    const sessions = Array.from(
      { length: clients },
      (_, at) => perPod[at % count]![Math.floor(at / count)]!,
    );
    const params: LoadParams = {
      ...addressOf(pods[0]!),
      sessions,
      sockets: sessions.map((_, at) => pods[at % count]!.socketUrl),
      work: { type: "closed", inFlight, warmMs, runMs },
    };
    const { result, serverMs, storeMs } = await runLoad(site, params, { pods, store });
    const { acked, refused, wallMs, latency } = result;
    if (refused > 0) throw new Error(`${refused} messages were refused`);
    const perSecond = (acked / wallMs) * 1_000;
    const us = (ms: number) => (ms * 1_000) / Math.max(1, acked);
    for (const [pods, { rate, p99, cpu }] of several) {
      if (count !== 1 && count !== pods) continue;
      const key = count === 1 ? "one_pod" : "flotilla";
      rate.add(key, { value: perSecond });
      p99.add(key, { value: latency.p99 });
      cpu.add(key, { value: us(serverMs) });
    }
    site.options.progress(
      `sessions.pods.acked, round ${round} of ${site.rounds}: ${count} pods ${Math.round(perSecond)}/s, ` +
        `p50 ${latency.p50.toFixed(2)} ms, p99 ${latency.p99.toFixed(2)} ms; CPU us per message: ` +
        `servers ${us(serverMs).toFixed(0)}, store ${storeMs === undefined ? "none" : us(storeMs).toFixed(0)}`,
    );
  });
  return [...several.values()].flatMap((each) =>
    Object.values(each).map(({ work: found }) => found),
  );
}

/** Runs a load against pods, and ends them and their store. */
async function runLoad(
  site: Site,
  params: LoadParams,
  { pods, store }: { pods: readonly Running[]; store: string },
) {
  const role = startRole(new URL("./load.ts", import.meta.url), params);
  await role.next("ready");
  role.send("go");
  const measured = await during<Loaded>(role, pods, site.place);
  for (const pod of pods) await pod.stop();
  await site.place.drop(store);
  return measured;
}

/** Who owns each log, in their order. */
type Owners = readonly { readonly owner: string | null }[];
type ReadHeads = () => Promise<Owners>;

/** Waits until the pod has its part of the logs, which are in the store unless `read` tells of them. */
async function shared(
  store: string,
  podId: string,
  { pods = 2, read }: { pods?: number; read?: ReadHeads | undefined } = {},
): Promise<Owners> {
  const database = await openStore(store);
  const journal = createSqlJournal({ database, ids: uuidv7(systemClock, systemRandom) });
  try {
    const latestMs = performance.now() + sharedLimitMs;
    for (;;) {
      // Streams that were just made have no leader yet, and tell nothing.
      const heads = read ? await read().catch(() => []) : await journal.heads();
      const owned = heads.filter(({ owner }) => owner === podId).length;
      if (owned > 0 && owned >= Math.floor(heads.length / pods)) return heads;
      if (performance.now() > latestMs) throw new Error("the second pod was given no logs");
      await wait(100);
    }
  } finally {
    await database.close();
  }
}

function sessionsOf(heads: Owners, podId: string, count: number): string[] {
  const found: string[] = [];
  for (let at = 0; found.length < count; at++) {
    const session = `far-${at}`;
    if (heads[logOf(session, heads.length)]!.owner === podId) found.push(session);
  }
  return found;
}
