import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { median } from "../statistics.ts";
import type { Read, ReaderParams } from "./reader.ts";
import { during, type Site } from "./site.ts";

export type ReplayWork = { readonly entries: number; readonly repeats: number };

/** From a join with nothing to the last entry of a long session. */
export async function measureReplay(site: Site, work: ReplayWork): Promise<Work[]> {
  const seconds = collect("sessions.replay_s", "s", "lower");
  const speed = collect("sessions.replay", "MB/s");
  await takeTurns(site, site.builds, async (build, round) => {
    const { key, checkout } = build;
    const store = await site.place.fresh();
    const server = await site.serve(build, store);
    const { socketUrl, httpUrl } = server;
    const params: ReaderParams = { socketUrl, httpUrl, ...work };
    const role = startRole(new URL("./reader.ts", import.meta.url), params, { checkout });
    const { result, serverMs } = await during<Read>(role, [server]);
    await server.stop();
    await site.place.drop(store);
    const tookS = median(result.reads.map(({ ms }) => ms)) / 1_000;
    const mb = result.reads[0]!.bytes / 1e6;
    seconds.add(key, { value: tookS });
    speed.add(key, { value: mb / tookS });
    site.options.progress(
      `sessions.replay, round ${round} of ${site.rounds}: ${key} ${work.entries} entries, ${mb.toFixed(2)} MB ` +
        `in ${tookS.toFixed(3)} s, ${(mb / tookS).toFixed(1)} MB/s; ` +
        `server CPU ${(serverMs / work.repeats).toFixed(0)} ms each`,
    );
  });
  return [seconds.work, speed.work];
}
