import pg from "pg";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import type { Idled, IdlerParams } from "./idler.ts";
import type { FreshStore } from "./store.ts";

export type IdleSizes = { readonly forMs: number };

// A connection that does nothing tells the server's counters so late of what it did.
const countersMs = 11_000;

/** What a pod costs that has nothing to do: CPU, and on Postgres round trips. */
export async function measureIdle(
  { progress, profile }: BenchOptions,
  { forMs }: IdleSizes,
  freshStore: FreshStore,
): Promise<Measure[]> {
  const measures: Measure[] = [];
  for (const sessions of [false, true]) {
    const suffix = sessions ? ".with_sessions" : "";
    const store = await freshStore(`idle${suffix}`);
    const params: IdlerParams = { store, sessions, forMs };
    const role = startRole(new URL("./idler.ts", import.meta.url), params, { profile });
    await role.next("settled");
    const before = await transactionsOf(store);
    const startedMs = performance.now();
    role.send("go");
    await role.next("idled");
    const after = await transactionsOf(store);
    const seconds = (performance.now() - startedMs) / 1_000;
    role.send("stop");
    const { cpuShare }: Idled = await role.result;
    await role.gone;
    const cpu = cpuShare * 100;
    const only = (metric: string, unit: string, value: number) =>
      measure({ metric, unit, ours: [value], better: "lower", others: {} });
    measures.push(only(`tasks.idle.cpu${suffix}`, "% of a core", cpu));
    let trips = "";
    if (before !== undefined && after !== undefined) {
      const each = (after - before) / seconds;
      measures.push(only(`tasks.idle.round_trips${suffix}`, "/s", each));
      trips = `, ${each.toFixed(1)} round trips a second`;
    }
    progress(`idle${suffix}: ${cpu.toFixed(2)} % of a core${trips}`);
  }
  return measures;
}

/** How many transactions a database has had. Each of ours is one round trip. */
async function transactionsOf(store: string): Promise<number | undefined> {
  if (!store.startsWith("postgres")) return undefined;
  await new Promise((resolve) => setTimeout(resolve, countersMs));
  const client = new pg.Client(store);
  await client.connect();
  const { rows } = await client.query<{ transactions: string }>(
    `select xact_commit + xact_rollback as transactions from pg_stat_database
     where datname = current_database()`,
  );
  await client.end();
  return Number(rows[0]!.transactions);
}
