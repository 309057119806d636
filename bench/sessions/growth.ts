import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { Loaded, LoadParams } from "./load.ts";
import { addressOf, during, type Site } from "./site.ts";

export type GrowthWork = {
  /** How many sessions are in use, one figure each. */
  readonly sessions: readonly number[];
  readonly clients: number;
  readonly warmMs: number;
  readonly runMs: number;
};

/** Acks while the same clients write in ever more sessions, by turns, and the memory that it takes. */
export async function measureGrowth(site: Site, work: GrowthWork): Promise<Work[]> {
  const { clients, warmMs, runMs } = work;
  const [least] = work.sessions;
  const several = new Map(
    work.sessions.map((count) => [
      count,
      {
        rate: collect(`sessions.growth.acked_in_${count}`, "messages/s"),
        p99: collect(`sessions.growth.p99_in_${count}`, "ms", "lower"),
        memory: collect(`sessions.growth.memory_of_${count}`, "MiB", "lower"),
      },
    ]),
  );
  await takeTurns(site, work.sessions, async (count, round) => {
    const store = await site.place.fresh();
    const server = await site.serve({ key: "flotilla" }, store);
    const params: LoadParams = {
      ...addressOf(server),
      sessions: { prefix: "growth", count },
      clients,
      work: { type: "closed", inFlight: 1, warmMs, runMs },
    };
    const role = startRole(new URL("./load.ts", import.meta.url), params);
    await role.next("ready");
    role.send("go");
    const { result } = await during<Loaded>(role, [server]);
    await server.tidy();
    const { rssBytes } = await server.look();
    await server.stop();
    await site.place.drop(store);
    const { acked, refused, wallMs, latency } = result;
    if (refused > 0) throw new Error(`${refused} messages were refused`);
    const perSecond = (acked / wallMs) * 1_000;
    const mib = rssBytes / 1024 / 1024;
    for (const [sessions, { rate, p99, memory }] of several) {
      if (count !== least && count !== sessions) continue;
      const key = count === sessions ? "flotilla" : `in_${least}`;
      rate.add(key, { value: perSecond });
      p99.add(key, { value: latency.p99 });
      memory.add(key, { value: mib });
    }
    site.options.progress(
      `sessions.growth, round ${round} of ${site.rounds}: ${count} sessions ${Math.round(perSecond)}/s, ` +
        `p50 ${latency.p50.toFixed(2)} ms, p99 ${latency.p99.toFixed(2)} ms, ${mib.toFixed(0)} MiB`,
    );
  });
  return [...several.values()].flatMap((each) =>
    Object.values(each).map(({ work: found }) => found),
  );
}
