import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { getParts, missing, parts } from "../test/parts.ts";
import { startNatsCluster } from "../test/nats/server.ts";
import { goals } from "./cluster/goals.ts";
import {
  type ClusterSite,
  measureAcked,
  measureAppend,
  measureFailover,
  measureReplay,
} from "./cluster/works.ts";
import { diskFolder } from "./folder.ts";
import { sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { measureHop } from "./sessions/pods.ts";
import { openSite } from "./sessions/site.ts";
import type { Work } from "./side-by-side/figures.ts";
import type { About } from "./side-by-side/open.ts";
import { reportOf } from "./side-by-side/report.ts";
import { saveResults } from "./side-by-side/results.ts";

const sizes = {
  full: {
    rounds: 3,
    append: { rates: [500, 2_000], warmMs: 3_000, runMs: 8_000 },
    acked: { messages: 50, logs: [4, 16], warmMs: 2_000, runMs: 5_000 },
    replay: { records: 3_000, messages: 50 },
    failover: { logs: 4, settleMs: 2_000 },
    hop: { clients: 100, perSecond: 500, warmMs: 2_000, runMs: 5_000 },
  },
  quick: {
    rounds: 1,
    append: { rates: [500, 2_000], warmMs: 500, runMs: 1_000 },
    acked: { messages: 50, logs: [4, 16], warmMs: 300, runMs: 700 },
    replay: { records: 200, messages: 50 },
    failover: { logs: 2, settleMs: 500 },
    hop: { clients: 20, perSecond: 100, warmMs: 300, runMs: 1_000 },
  },
} as const;

/** How many logs sessions have by default on Postgres. */
const defaultLogs = 8;

/** Logs of sessions on three servers of NATS, which flush before they acknowledge, beside the servers alone. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds, ...size } = options.quick ? sizes.quick : sizes.full;
  const { store, only, progress } = options;
  const failure = getParts([parts.nats]);
  if (parts.nats.find() === undefined) throw missing([parts.nats], failure);
  const nats = await startNatsCluster({ within: diskFolder() });
  await using opened = new AsyncDisposableStack();
  opened.defer(() => nats.stop());
  const page = (await (await fetch(`${nats.servers[0]!.monitorUrl}/varz`)).json()) as {
    version: string;
  };
  const servers = `three nats-servers ${page.version} (sync_interval always, 3 replicas)`;
  progress(`started ${servers}`);
  const site: ClusterSite = {
    options,
    rounds: options.rounds ?? rounds,
    nats,
    logs: options.logs ?? defaultLogs,
  };
  const hop = async (): Promise<Work[]> => {
    await using pods = await openSite(options, site.rounds);
    return await measureHop(pods, { ...size.hop, nats: nats.urls });
  };
  const measuring: Readonly<Record<string, () => Promise<Work[]>>> = {
    append: () => measureAppend(site, size.append),
    acked: () => measureAcked(site, size.acked),
    replay: () => measureReplay(site, size.replay),
    failover: () => measureFailover(site, size.failover),
    hop,
  };
  const works: Work[] = [];
  for (const [name, measure] of Object.entries(measuring)) {
    if (only?.includes(name) ?? true) works.push(...(await measure()));
  }
  const about: About = {
    machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
    servers: { nats: servers },
    systems: {
      flotilla: "the log of sessions on these servers, in one process without a pod around it",
      bare: "fenced publishes of the same bytes, one at a time on each log; an ordered consumer",
      rows: "the way between two pods through rows of Postgres; flotilla: through these servers",
    },
  };
  if (options.save) saveResults(works, about, "cluster-postgres");
  const report = reportOf(works, about);
  return { ...report, notes: [...sayGoals(goals, report.measures, store), ...report.notes] };
}
