import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { Forked, ForkingParams } from "./forking.ts";
import type { Site } from "./site.ts";

export type ForksWork = Omit<ForkingParams, "store">;

/**
 * Forks of a long session, reading through three forks beside one log of as many entries, and files beside the
 * same rows written and read by themselves.
 */
export async function measureForks(site: Site, work: ForksWork): Promise<Work[]> {
  const fork = collect("sessions.fork_ms", "ms", "lower");
  const read = collect("sessions.fork.read", "entries/s");
  const upload = collect("sessions.files.upload", "MB/s");
  const download = collect("sessions.files.download", "MB/s");
  const hasLimit = site.entrants.some(({ key }) => key === "limit");
  await takeTurns(site, site.builds, async ({ key, checkout }, round) => {
    const store = await site.place.fresh();
    const params: ForkingParams = { store, ...work };
    const role = startRole(new URL("./forking.ts", import.meta.url), params, { checkout });
    const found = (await role.result) as Forked;
    await site.place.drop(store);
    const perSecond = (ms: number) => work.readEntries / (ms / 1_000);
    fork.add(key, { value: found.forkMs });
    read.add(key, { value: perSecond(found.readForksMs) });
    upload.add(key, { value: found.upload });
    download.add(key, { value: found.download });
    if (hasLimit) {
      read.add("limit", { value: perSecond(found.readMs) });
      upload.add("limit", { value: found.bareWrite });
      download.add("limit", { value: found.bareRead });
    }
    site.options.progress(
      `sessions.forks, round ${round} of ${site.rounds}: ${key} a fork of ${work.entries} entries in ` +
        `${found.forkMs.toFixed(2)} ms; read through forks in ${(found.readForksMs / found.readMs).toFixed(2)} ` +
        `of the time of one log; upload ${(found.upload / found.bareWrite).toFixed(2)} and download ` +
        `${(found.download / found.bareRead).toFixed(2)} of the bare store`,
    );
  });
  return [fork.work, read.work, upload.work, download.work];
}
