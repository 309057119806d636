import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { percentile } from "../statistics.ts";
import type { CrowdParams, Heard } from "./crowd.ts";
import { addressOf, during, type Site } from "./site.ts";

export type FanoutWork = { readonly subscribers: number; readonly repeats: number };

/** From a message's sending until the last of many who follow its session has it. */
export async function measureFanout(site: Site, work: FanoutWork): Promise<Work[]> {
  const p50 = collect("sessions.fanout.p50", "ms", "lower");
  const p99 = collect("sessions.fanout.p99", "ms", "lower");
  const cpu = collect("sessions.fanout.cpu", "ms/message", "lower");
  await takeTurns(site, site.entrants, async (entrant, round) => {
    const { key, checkout } = entrant;
    const store = await site.place.fresh();
    const server = await site.open(entrant, store);
    const params: CrowdParams = { ...addressOf(server), ...work };
    const role = startRole(new URL("./crowd.ts", import.meta.url), params, { checkout });
    const { result, serverMs } = await during<Heard>(role, [server]);
    await server.stop();
    await site.place.drop(store);
    const [middle, high] = [0.5, 0.99].map((share) => percentile(result.latenciesMs, share));
    p50.add(key, { value: middle! });
    p99.add(key, { value: high! });
    cpu.add(key, { value: serverMs / work.repeats });
    site.options.progress(
      `sessions.fanout, round ${round} of ${site.rounds}: ${key} p50 ${middle!.toFixed(1)} ms, ` +
        `p99 ${high!.toFixed(1)} ms to ${work.subscribers}; ` +
        `server CPU ${(serverMs / work.repeats).toFixed(1)} ms per message`,
    );
  });
  return [p50.work, p99.work, cpu.work];
}
