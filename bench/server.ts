import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import { startRole } from "./roles.ts";
import type { BenchOptions } from "./run.ts";
import type { CallerParams, Called } from "./server/caller.ts";
import { goals } from "./server/goals.ts";
import type { HostParams, Served } from "./server/host.ts";
import type { OperatorParams } from "./server/operator.ts";
import type { PageTimes, ReaderParams } from "./server/reader.ts";
import { type Place, placeOn, sqlitePlace } from "./servers/place.ts";
import { startBenchPostgres } from "./servers/postgres.ts";
import { takeTurns } from "./side-by-side/bench.ts";
import { collect, type Work } from "./side-by-side/figures.ts";
import type { About } from "./side-by-side/open.ts";
import { reportOf } from "./side-by-side/report.ts";
import { saveResults } from "./side-by-side/results.ts";

const sizes = {
  full: {
    rounds: 5,
    requests: { warmMs: 2_000, runMs: 5_000, atOnce: 32 },
    bulk: 100_000,
    acts: 10_000,
    entries: 1_000_000,
    pages: 40,
  },
  quick: {
    rounds: 1,
    requests: { warmMs: 500, runMs: 1_500, atOnce: 32 },
    bulk: 5_000,
    acts: 500,
    entries: 20_000,
    pages: 10,
  },
};

type ServerSide = {
  readonly options: BenchOptions;
  readonly rounds: number;
  readonly place: Place;
};

/** Ours, and the same without what is measured. */
const entrants = [
  { key: "flotilla", isPlain: false },
  { key: "plain", isPlain: true },
] as const;

/** What a server's keys, roles, redaction and audit cost, beside the same server without them. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds, ...size } = options.quick ? sizes.quick : sizes.full;
  const { store, folder, only, progress } = options;
  const bulk = options.tasks ?? size.bulk;
  const entries = options.entries ?? size.entries;
  const place =
    store === "postgres"
      ? placeOn(await startBenchPostgres({ counting: options.profile !== undefined }))
      : sqlitePlace(folder);
  progress(`opened ${place.about}`);
  const side: ServerSide = { options, rounds: options.rounds ?? rounds, place };
  const measuring: Readonly<Record<string, () => Promise<Work[]>>> = {
    requests: () => measureRequests(side, size.requests),
    bulk: () => measureActs(side, { metric: "server.bulk", work: "bulk", tasks: bulk }),
    acts: () => measureActs(side, { metric: "server.acts", work: "acts", tasks: size.acts }),
    audit: () => measurePages(side, { entries, pages: size.pages }),
  };
  const works: Work[] = [];
  try {
    for (const [name, measure] of Object.entries(measuring)) {
      if (only?.includes(name) ?? true) works.push(...(await measure()));
    }
  } finally {
    await place.stop();
  }
  const about: About = {
    machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
    servers: { [store]: place.about },
    systems: {
      flotilla: "a key of the store with a role, redaction, and an entry for each act",
      plain: "the same server and the same calls without",
    },
  };
  if (options.save) saveResults(works, about, `server-${store as "sqlite" | "postgres"}`);
  const report = reportOf(works, about);
  return { ...report, notes: [...sayGoals(goals, report.measures, store), ...report.notes] };
}

/** Requests a second: one task, and a page of fifty. */
async function measureRequests(
  side: ServerSide,
  size: Pick<CallerParams, "warmMs" | "runMs" | "atOnce">,
): Promise<Work[]> {
  const { options, place } = side;
  const works = [
    { asks: "task", rate: collect("server.requests", "requests/s") },
    { asks: "page", rate: collect("server.requests.pages", "requests/s") },
  ] as const;
  const cpu = collect("server.requests.cpu", "us/request", "lower");
  await takeTurns(side, entrants, async ({ key, isPlain }, round) => {
    const url = await place.filled("tasks to read", async (empty) => {
      const params: OperatorParams = { url: empty, work: "fill", tasks: 2_000, isPlain: true };
      const filler = startRole(new URL("./server/operator.ts", import.meta.url), params);
      await filler.result;
      await filler.gone;
    });
    const params: HostParams = { store: url, isPlain };
    const host = startRole(new URL("./server/host.ts", import.meta.url), params, {
      profile: isPlain ? undefined : options.profile,
    });
    const served = (await host.next("listens")) as Served;
    for (const { asks, rate } of works) {
      const called: CallerParams = { ...served, ...size, asks };
      const caller = startRole(new URL("./server/caller.ts", import.meta.url), called);
      const begun = caller.next("warm").then(() => host.send("count"));
      const { requests, wallMs } = (await caller.result) as Called;
      await begun;
      host.send("counted");
      const cpuMs = (await host.next("used")) as number;
      await caller.gone;
      const perSecond = (requests / wallMs) * 1_000;
      rate.add(key, { value: perSecond });
      if (asks === "task") cpu.add(key, { value: (cpuMs * 1_000) / requests });
      options.progress(
        `server.requests, round ${round} of ${side.rounds}: ${key} ${Math.round(perSecond)}/s of a ${asks}; ` +
          `CPU ${((cpuMs * 1_000) / requests).toFixed(0)} us each`,
      );
    }
    host.send("stop");
    await host.result;
    await host.gone;
    await place.drop(url);
  });
  return [...works.map(({ rate }) => rate.work), cpu.work];
}

/** Tasks that become cancelled: many by one act, or each by an act of its own. */
async function measureActs(
  side: ServerSide,
  { metric, work, tasks }: { metric: string; work: "bulk" | "acts"; tasks: number },
): Promise<Work[]> {
  const { options, place } = side;
  const rate = collect(metric, "tasks/s");
  const run = async (params: OperatorParams): Promise<number> => {
    const role = startRole(new URL("./server/operator.ts", import.meta.url), params, {
      profile: params.isPlain ? undefined : options.profile,
    });
    const wallMs = (await role.result) as number;
    await role.gone;
    return wallMs;
  };
  await takeTurns(side, entrants, async ({ key, isPlain }, round) => {
    const url = await place.filled(`${work} ${tasks}`, async (empty) => {
      await run({ url: empty, work: `fill ${work}`, tasks, isPlain: true });
    });
    const wallMs = await run({ url, work, tasks, isPlain });
    await place.drop(url);
    const perSecond = (tasks / wallMs) * 1_000;
    rate.add(key, { value: perSecond });
    options.progress(
      `${metric}, round ${round} of ${side.rounds}: ${key} ${Math.round(perSecond)} tasks/s`,
    );
  });
  return [rate.work];
}

/** How long pages of a long audit take. */
async function measurePages(
  side: ServerSide,
  size: Pick<ReaderParams, "entries" | "pages">,
): Promise<Work[]> {
  const { options, place, rounds } = side;
  const url = await place.fresh();
  options.progress(`server.audit_page_ms: storing ${size.entries} entries`);
  const params: ReaderParams = { url, rounds, ...size };
  const role = startRole(new URL("./server/reader.ts", import.meta.url), params);
  const times = (await role.result) as PageTimes[];
  await role.gone;
  await place.drop(url);
  const works = new Map(
    Object.entries(metricsOfPages).map(([page, metric]) => [page, collect(metric, "ms", "lower")]),
  );
  for (const [at, each] of times.entries()) {
    for (const [page, ms] of Object.entries(each)) works.get(page)!.add("flotilla", { value: ms });
    const shown = Object.entries(each).map(([page, ms]) => `${page} ${ms.toFixed(1)} ms`);
    options.progress(`server.audit_page_ms, round ${at + 1} of ${rounds}: ${shown.join(", ")}`);
  }
  return [...works.values()].map(({ work }) => work);
}

const metricsOfPages: Readonly<Record<keyof PageTimes, string>> = {
  first: "server.audit_page_ms",
  last: "server.audit_page_ms.last",
  actor: "server.audit_page_ms.actor",
  subject: "server.audit_page_ms.subject",
  rare: "server.audit_page_ms.rare",
};
