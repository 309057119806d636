import pg from "pg";
import { cpuMsOf } from "../servers/cpu.ts";
import { type Answer, dial } from "../sessions/dial.ts";
import { sendFrame } from "../sessions/frames.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { percentile } from "../statistics.ts";
import { pause } from "./appender.ts";
import { makeSessions, openPods } from "./pods.ts";
import type { ClusterSite } from "./works.ts";

export type ArchiveWork = {
  readonly clients: number;
  readonly perSecond: number;
  readonly warmMs: number;
  readonly runMs: number;
};
export type IdleWork = { readonly settleMs: number; readonly runMs: number };

const lookEveryMs = 10;
const archivedLimitMs = 30_000;

type Acked = { readonly session: string; readonly seq: number; readonly ackedMs: number };

/** How long after its ack a message is in Postgres, by looks at the rows of sessions there. */
export async function measureArchive(site: ClusterSite, work: ArchiveWork): Promise<Work[]> {
  const { clients, perSecond, warmMs, runMs } = work;
  const lag = collect("cluster.archive.lag_p95_ms", "ms", "lower");
  await using opened = new AsyncDisposableStack();
  const pods = await openPods(site);
  opened.defer(() => pods.close());
  const sql = new pg.Client(pods.store);
  await sql.connect();
  opened.defer(() => sql.end());
  await takeTurns(site, ["flotilla"], async (system, round) => {
    const sessions = Array.from({ length: clients }, (_, nth) => `archived-${round}-${nth}`);
    await makeSessions(pods.running[0]!.url, sessions);
    const unarchived = new Set<Acked>();
    const lags: number[] = [];
    const sent = new Map<number, string>();
    let failure: string | undefined;
    let acked = 0;
    const startedMs = performance.now();
    const answered = ({ type, ref, seq }: Answer & { readonly seq?: number }) => {
      if (type === "error") failure = `message ${ref} was refused`;
      const session = type === "ack" && ref !== undefined ? sent.get(ref) : undefined;
      if (session === undefined) return;
      sent.delete(ref!);
      acked++;
      const ackedMs = performance.now();
      if (ackedMs - startedMs >= warmMs) unarchived.add({ session, seq: seq!, ackedMs });
    };
    const sockets = await Promise.all(
      sessions.map((_, nth) => {
        const { url } = pods.running[nth % pods.running.length]!;
        return dial(`${url.replace(/^http/, "ws")}/v1/socket?user=ada`, answered);
      }),
    );
    const look = async (): Promise<void> => {
      const { rows } = await sql.query<{ session_id: string; last_seq: string }>(
        "select session_id, last_seq from flotilla.session where session_id = any($1)",
        [sessions],
      );
      const nowMs = performance.now();
      const stored = new Map(rows.map((row) => [row.session_id, Number(row.last_seq)]));
      for (const each of unarchived) {
        if ((stored.get(each.session) ?? 0) < each.seq) continue;
        unarchived.delete(each);
        // It may have been stored since the look before, and even before its ack arrived.
        lags.push(Math.max(0, nowMs - each.ackedMs));
      }
    };
    let isSending = true;
    const looking = (async () => {
      const latestMs = startedMs + warmMs + runMs + archivedLimitMs;
      while ((isSending || unarchived.size > 0) && performance.now() < latestMs) {
        await look();
        await pause(lookEveryMs);
      }
    })();
    for (let next = 0; performance.now() - startedMs < warmMs + runMs;) {
      const nowMs = performance.now();
      for (; startedMs + (next * 1_000) / perSecond <= nowMs; next++) {
        const nth = next % sessions.length;
        sent.set(next, sessions[nth]!);
        sockets[nth]!.send(sendFrame(sessions[nth]!, next));
      }
      await pause(1);
    }
    isSending = false;
    await looking;
    for (const socket of sockets) socket.close(1000);
    if (failure !== undefined) throw new Error(failure);
    if (unarchived.size > 0) {
      throw new Error(
        `${unarchived.size} acked messages weren't archived in ${archivedLimitMs} ms`,
      );
    }
    const [p50, p95] = [percentile(lags, 0.5), percentile(lags, 0.95)];
    lag.add(system, { value: p95 });
    site.options.progress(
      `cluster.archive, round ${round} of ${site.rounds}: ${acked} acked at ${perSecond}/s, behind by p50, p95 ${p50.toFixed(0)}, ${p95.toFixed(0)} ms`,
    );
  });
  return [lag.work];
}

/** What three pods and three servers take of a core while no message comes. */
export async function measureIdle(site: ClusterSite, work: IdleWork): Promise<Work[]> {
  const cpu = collect("cluster.idle.cpu", "% of a core", "lower");
  await using opened = new AsyncDisposableStack();
  const pods = await openPods(site);
  opened.defer(() => pods.close());
  await pause(work.settleMs);
  const used = (all: readonly { readonly pid: number }[]) =>
    all.reduce((sum, { pid }) => sum + (cpuMsOf(pid) ?? NaN), 0);
  const look = () => [used(pods.running), used(site.nats.servers)] as const;
  const startedMs = performance.now();
  const before = look();
  await pause(work.runMs);
  const after = look();
  const wallMs = performance.now() - startedMs;
  const shares = after.map((ms, at) => ((ms - before[at]!) / wallMs) * 100);
  const [ofPods, ofServers] = shares as [number, number];
  if (Number.isNaN(ofPods + ofServers)) throw new Error("this system doesn't tell CPU times");
  cpu.add("flotilla", { value: ofPods + ofServers });
  site.options.progress(
    `cluster.idle: three pods ${ofPods.toFixed(1)} %, three servers ${ofServers.toFixed(1)} % of a core over ${(wallMs / 1_000).toFixed(0)} s`,
  );
  return [cpu.work];
}
