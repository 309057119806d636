import pg from "pg";
import { between, type Random } from "../../src/base/random.ts";
import type { PostgresServer } from "../postgres/server.ts";
import type { Fleet } from "./fleet.ts";
import { monotonicMs } from "./ledger.ts";
import type { CommonFaults } from "./nemesis.ts";
import type { Fault, PodProcess } from "./pod-handle.ts";
import { pauseFor } from "./until.ts";

/** What can be done to a Postgres server that pods work on. It must be a server of the test's own. */
export function serverFaults(fleet: Fleet, server: PostgresServer): CommonFaults {
  const plain = async (text: string) => void (await fleet.sql(text));

  /** Ends several sessions a second, whatever they are doing. */
  const endSessions = async (random: Random): Promise<void> => {
    for (let left = between(random, 5, 10); left > 0; left--) {
      await plain(endSomeSessions(1));
      await pauseFor(between(random, 50, 250));
    }
  };

  /** A transaction has locked rows, and stays idle. */
  const holdRows = async (random: Random): Promise<void> => {
    const client = await connected(fleet.store);
    try {
      await client.query("begin");
      await client.query(`select 1 from flotilla.task where status in ('pending', 'claimed')
        order by random() limit 50 for update skip locked`);
      await pauseFor(between(random, 500, 2_000));
    } catch {
      // The server was killed under it, or its session was ended: both are faults of their own.
    } finally {
      await client.end().catch(() => {});
    }
  };

  /** Every connection that a pod could have is taken, and many of theirs are ended. */
  const takeConnections = async (random: Random): Promise<void> => {
    const all = cutOff(fleet, () => true);
    const taken: pg.Client[] = [];
    const take = async () => {
      const clients = Array.from({ length: 20 }, () => connected(fleet.store));
      const settled = await Promise.allSettled(clients);
      const got = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
      taken.push(...got);
      return got.length === clients.length;
    };
    while (await take());
    await plain(endSomeSessions(10)).catch(() => {});
    await take();
    await pauseFor(between(random, 300, 1_000));
    await Promise.all(taken.map((client) => client.end().catch(() => {})));
    const toMs = monotonicMs();
    for (const fault of all) fault.toMs = toMs;
  };

  return {
    "end sessions": endSessions,
    "kill the server": (random) => killServer(server, random),
    "hold rows": holdRows,
    "take all connections": takeConnections,
  };
}

/** The whole server is gone from one moment to the next, and comes back. */
export async function killServer(server: PostgresServer, random: Random): Promise<void> {
  await server.kill(between(random, 0, 1) === 0 ? "SIGKILL" : "SIGQUIT");
  await pauseFor(between(random, 0, 500));
  await server.start();
}

/** Ends sessions of pods and producers, never the witness's. */
export function endSomeSessions(count: number): string {
  return `select pg_terminate_backend(pid) from (
    select pid from pg_stat_activity
    where datname = current_database() and application_name like 'flotilla%'
    order by random() limit ${count}) chosen`;
}

/** Notes that pods may not be able to beat from now on. */
export function cutOff(fleet: Fleet, isCutOff: (pod: PodProcess) => boolean): Fault[] {
  const fromMs = monotonicMs();
  const faults = fleet.pods
    .filter((pod) => pod.alive && isCutOff(pod))
    .map(({ podId }): Fault => ({ kind: "cut off", podId, fromMs, toMs: Infinity }));
  fleet.faults.push(...faults);
  return faults;
}

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: "guest" });
  client.on("error", () => {});
  await client.connect();
  return client;
}
