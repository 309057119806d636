import { setTimeout as wait } from "node:timers/promises";
import { type Role, startRole } from "../roles.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { HolderParams } from "./holder.ts";
import { addressOf, type Running, type Site } from "./site.ts";

export type IdleWork = {
  readonly sockets: number;
  /** How many processes hold them: each may have so many files open. */
  readonly processes: number;
};

const warmUpSockets = 200;
// What was used for connecting has time to be given back.
const settleMs = 2_000;

/** What an idle socket costs its server in memory, each following a session of its own. */
export async function measureIdle(site: Site, work: IdleWork): Promise<Work[]> {
  const bytes = collect("sessions.idle_socket_bytes", "bytes", "lower");
  for (const entrant of site.entrants) {
    const { key } = entrant;
    const store = await site.place.fresh();
    const server = await site.open(entrant, store);
    const found = await holdOnce(server, work);
    await server.stop();
    await site.place.drop(store);
    bytes.add(key, { value: found.each });
    const mib = (value: number) => (value / 2 ** 20).toFixed(0);
    site.options.progress(
      `sessions.idle: ${key} ${Math.round(found.each)} bytes for each of ${work.sockets} ` +
        `(RSS ${mib(found.before)} to ${mib(found.after)} MiB), ` +
        `CPU while idle ${(found.idleShare * 100).toFixed(1)} % of a core`,
    );
  }
  return [bytes.work];
}

async function holdOnce(server: Running, { sockets, processes }: IdleWork) {
  // What every server has once somebody has come isn't what the next one costs.
  const first = await hold(server, "warm", warmUpSockets);
  await letGo([first]);
  await settle(server);
  const { rssBytes: before } = await server.look();
  const holders: Role[] = [];
  for (let at = 0; at < processes; at++) {
    holders.push(await hold(server, `idle-${at}`, Math.floor(sockets / processes)));
  }
  await settle(server);
  const { rssBytes: after } = await server.look();
  // The collection of garbage has held everything up, which a server looks after when it goes on.
  await wait(settleMs);
  const { cpuMs } = await server.look();
  await wait(settleMs);
  const later = await server.look();
  await letGo(holders);
  const held = Math.floor(sockets / processes) * processes;
  return {
    before,
    after,
    each: (after - before) / held,
    idleShare: (later.cpuMs - cpuMs) / settleMs,
  };
}

async function hold(server: Running, name: string, sockets: number): Promise<Role> {
  const params: HolderParams = { ...addressOf(server), name, sockets };
  const { checkout } = server;
  const role = startRole(new URL("./holder.ts", import.meta.url), params, { checkout });
  await role.next("held");
  return role;
}

async function letGo(holders: readonly Role[]): Promise<void> {
  for (const role of holders) role.send("stop");
  await Promise.all(holders.map((role) => role.gone));
}

async function settle(server: Running): Promise<void> {
  await wait(settleMs);
  await server.tidy();
}
