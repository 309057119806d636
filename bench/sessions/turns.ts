import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { percentile } from "../statistics.ts";
import { during, type Site } from "./site.ts";
import type { Talked, TalkersParams } from "./talkers.ts";

export type TurnsWork = {
  readonly turns: number;
  readonly chunks: number;
  readonly perSecond: number;
};

/** From an agent's chunk to the client that follows its answer, while many answers are made at once. */
export async function measureTurns(site: Site, work: TurnsWork): Promise<Work[]> {
  const p50 = collect("sessions.turns.p50", "ms", "lower");
  const p99 = collect("sessions.turns.p99", "ms", "lower");
  const cpu = collect("sessions.turns.cpu", "us/chunk", "lower");
  const { turns, chunks, perSecond } = work;
  await takeTurns(site, site.builds, async (build, round) => {
    const { key, checkout } = build;
    const store = await site.place.fresh();
    const server = await site.serve(build, store, { talk: { chunks, perSecond } });
    const params: TalkersParams = {
      socketUrl: server.socketUrl,
      httpUrl: server.httpUrl,
      turns,
      spreadMs: 500,
    };
    const role = startRole(new URL("./talkers.ts", import.meta.url), params, { checkout });
    const { result, serverMs } = await during<Talked>(role, [server], site.place);
    await server.stop();
    await site.place.drop(store);
    const { latenciesMs } = result;
    if (latenciesMs.length < turns * chunks) {
      throw new Error(`${latenciesMs.length} chunks of ${turns * chunks} came`);
    }
    const [middle, high] = [0.5, 0.99].map((share) => percentile(latenciesMs, share));
    const eachUs = (serverMs * 1_000) / latenciesMs.length;
    p50.add(key, { value: middle! });
    p99.add(key, { value: high! });
    cpu.add(key, { value: eachUs });
    site.options.progress(
      `sessions.turns, round ${round} of ${site.rounds}: ${key} ${turns} turns of ${perSecond} chunks/s: ` +
        `p50 ${middle!.toFixed(2)} ms, p99 ${high!.toFixed(2)} ms of ${latenciesMs.length} chunks; ` +
        `CPU per chunk: server with agents ${eachUs.toFixed(0)} us, clients ${((result.cpuMs * 1_000) / latenciesMs.length).toFixed(0)} us`,
    );
  });
  return [p50.work, p99.work, cpu.work];
}
