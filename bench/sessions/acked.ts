import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { Journalled, JournalParams } from "./journal.ts";
import type { Loaded, LoadParams } from "./load.ts";
import { addressOf, during, type Entrant, type Site } from "./site.ts";

export type AckedWork = {
  readonly clients: number;
  readonly inFlight: number;
  readonly warmMs: number;
  readonly runMs: number;
};

type Found = {
  readonly perSecond: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** Of the server with all its threads, of the clients, and of the store's own processes. */
  readonly serverUs?: number;
  readonly clientUs?: number;
  readonly storeUs?: number | undefined;
};

/** Messages acked per second while every client has several under way, each in a session of its own. */
export async function measureAcked(site: Site, work: AckedWork): Promise<Work[]> {
  const rate = collect("sessions.acked", "messages/s");
  const p50 = collect("sessions.acked.p50", "ms", "lower");
  const p99 = collect("sessions.acked.p99", "ms", "lower");
  const cpu = collect("sessions.acked.cpu", "us/message", "lower");
  const clientCpu = collect("sessions.acked.client_cpu", "us/message", "lower");
  const storeCpu = collect("sessions.acked.server_cpu", "us/message", "lower");
  const { beside } = site.options;
  const journal = beside === undefined ? [{ key: "limit_journal" } as const] : [];
  await takeTurns(site, [...site.entrants, ...journal], async (entrant, round) => {
    const { key } = entrant;
    const found =
      entrant.key === "limit_journal" ? await bare(site, work) : await loaded(site, entrant, work);
    const { perSecond, p50Ms, p99Ms, serverUs, clientUs, storeUs } = found;
    rate.add(key, { value: perSecond });
    if (p50Ms !== undefined) p50.add(key, { value: p50Ms });
    if (p99Ms !== undefined) p99.add(key, { value: p99Ms });
    if (serverUs !== undefined) cpu.add(key, { value: serverUs });
    if (clientUs !== undefined) clientCpu.add(key, { value: clientUs });
    if (storeUs !== undefined) storeCpu.add(key, { value: storeUs });
    const us = (value: number | undefined) => (value === undefined ? "none" : value.toFixed(0));
    site.options.progress(
      `sessions.acked, round ${round} of ${site.rounds}: ${key} ${Math.round(perSecond)}/s` +
        (p50Ms === undefined ? "" : `, p50 ${p50Ms.toFixed(2)} ms, p99 ${p99Ms!.toFixed(2)} ms`) +
        `; CPU us per message: server ${us(serverUs)}, clients ${us(clientUs)}, store ${us(storeUs)}`,
    );
  });
  return [rate.work, p50.work, p99.work, cpu.work, clientCpu.work, storeCpu.work];
}

async function loaded(site: Site, entrant: Entrant, work: AckedWork): Promise<Found> {
  const { clients, inFlight, warmMs, runMs } = work;
  const store = await site.place.fresh();
  const server = await site.open(entrant, store);
  const params: LoadParams = {
    ...addressOf(server),
    sessions: Array.from({ length: clients }, (_, at) => `acked-${at}`),
    work: { type: "closed", inFlight, warmMs, runMs },
  };
  const { checkout } = server;
  const role = startRole(new URL("./load.ts", import.meta.url), params, { checkout });
  await role.next("ready");
  role.send("go");
  const { result, serverMs, storeMs } = await during<Loaded>(role, [server], site.place);
  await server.stop();
  await site.place.drop(store);
  const { acked, refused, wallMs, cpuMs, latency } = result;
  if (refused > 0) throw new Error(`${refused} messages were refused`);
  const us = (ms: number) => (ms * 1_000) / acked;
  return {
    perSecond: (acked / wallMs) * 1_000,
    p50Ms: latency.p50,
    p99Ms: latency.p99,
    serverUs: us(serverMs),
    clientUs: us(cpuMs),
    ...(entrant.key !== "limit" && storeMs !== undefined && { storeUs: us(storeMs) }),
  };
}

async function bare(site: Site, { clients, inFlight, warmMs, runMs }: AckedWork): Promise<Found> {
  const store = await site.place.fresh();
  const params: JournalParams = { store, sessions: clients, each: inFlight, warmMs, runMs };
  const journalled: Journalled = await startRole(new URL("./journal.ts", import.meta.url), params)
    .result;
  await site.place.drop(store);
  const { entries, wallMs, cpuMs } = journalled;
  return { perSecond: (entries / wallMs) * 1_000, serverUs: (cpuMs * 1_000) / entries };
}
