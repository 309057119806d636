import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { Loaded, LoadParams, LoadWork } from "./load.ts";
import { addressOf, during, type Running, type Site } from "./site.ts";

export type AppendWork = {
  readonly alone: {
    readonly warmUps: number;
    readonly count: number;
    readonly everyMs: number;
  };
  readonly rates: readonly number[];
  /** How many clients share a rate, each with a session of its own. */
  readonly clients: number;
  readonly warmMs: number;
  readonly runMs: number;
};

/** How long one message takes until its ack: alone, and while so many others come in every second. */
export async function measureAppend(site: Site, work: AppendWork): Promise<Work[]> {
  const { alone, rates, clients, warmMs, runMs } = work;
  const phases: { name: string; clients: number; work: LoadWork }[] = [
    { name: "alone", clients: 1, work: { type: "alone", ...alone } },
    ...rates.map((perSecond) => ({
      name: `at_${perSecond}`,
      clients,
      work: { type: "open", perSecond, warmMs, runMs } as const,
    })),
  ];
  const works: Work[] = [];
  for (const phase of phases) {
    const figures = [50, 95, 99].map((share) => {
      const suffix = phase.name === "alone" ? "" : `_${phase.name}`;
      return collect(`sessions.append.p${share}${suffix}`, "ms", "lower");
    });
    const cpu = collect(`sessions.append.${phase.name}.cpu`, "us/message", "lower");
    await takeTurns(site, site.entrants, async (entrant, round) => {
      const { key } = entrant;
      const store = await site.place.fresh();
      const server = await site.open(entrant, store);
      const { result, serverMs } = await loadOnce(server, phase);
      await server.stop();
      await site.place.drop(store);
      const { acked, refused, lost, latency, late } = result;
      // Whoever can't keep up refuses some, or is still behind when it is given up.
      const cut = refused + lost > 0;
      const values = [latency.p50, latency.p95, latency.p99];
      values.forEach((value, at) => figures[at]!.add(key, { value, ...(cut && { cut }) }));
      cpu.add(key, { value: (serverMs * 1_000) / Math.max(1, acked) });
      site.options.progress(
        `sessions.append ${phase.name}, round ${round} of ${site.rounds}: ${key} p50, p95, p99 ` +
          `${values.map((each) => each.toFixed(2)).join(", ")} ms of ${acked}` +
          `${cut ? `, ${refused} refused, ${lost} unanswered` : ""}; ` +
          `sent late by p50 ${late.p50.toFixed(2)}, p99 ${late.p99.toFixed(2)} ms; ` +
          `server CPU ${((serverMs * 1_000) / Math.max(1, acked)).toFixed(0)} us per message`,
      );
    });
    works.push(...figures.map((each) => each.work), cpu.work);
  }
  return works;
}

async function loadOnce(server: Running, { clients, work }: { clients: number; work: LoadWork }) {
  const params: LoadParams = {
    ...addressOf(server),
    sessions: Array.from({ length: clients }, (_, at) => `append-${at}`),
    work,
  };
  const { checkout } = server;
  const role = startRole(new URL("./load.ts", import.meta.url), params, { checkout });
  await role.next("ready");
  role.send("go");
  return during<Loaded>(role, [server]);
}
