import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { systemClock } from "../src/base/clock.ts";
import { messageOf } from "../src/base/errors.ts";
import { withTimeout } from "../src/base/timeout.ts";
import { getParts, missing, parts } from "../test/parts.ts";
import { startNatsCluster } from "../test/nats/server.ts";
import { measureArchive, measureIdle } from "./cluster/archive.ts";
import { measureAway } from "./cluster/away.ts";
import { measureDeploy } from "./cluster/deploy.ts";
import { measureFailover } from "./cluster/failover.ts";
import { goals } from "./cluster/goals.ts";
import { measurePromote } from "./cluster/promote.ts";
import { type ClusterSite, measureAcked, measureAppend, measureReplay } from "./cluster/works.ts";
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
    append: { rates: [500, 2_000], warmMs: 2_000, runMs: 6_000 },
    acked: { messages: 50, logs: [4, 16], warmMs: 1_500, runMs: 4_000 },
    replay: { records: 3_000, messages: 50 },
    hop: { clients: 100, perSecond: 500, warmMs: 3_000, runMs: 5_000 },
    archive: { clients: 50, perSecond: 500, warmMs: 3_000, runMs: 8_000 },
    idle: { settleMs: 5_000, runMs: 30_000 },
    deploy: { rounds: 1, turnMs: 8_000, settleMs: 4_000 },
    away: { rounds: 1, settleMs: 3_000, awayMs: 60_000 },
    promote: { rounds: 1, tasks: 1_000_000, runs: 10_000, sessions: 1_000, settleMs: 3_000 },
    failover: { rounds: 3, settleMs: 1_500 },
  },
  quick: {
    rounds: 1,
    append: { rates: [500, 2_000], warmMs: 500, runMs: 1_000 },
    acked: { messages: 50, logs: [4, 16], warmMs: 300, runMs: 700 },
    replay: { records: 200, messages: 50 },
    hop: { clients: 20, perSecond: 500, warmMs: 500, runMs: 1_000 },
    archive: { clients: 20, perSecond: 500, warmMs: 500, runMs: 1_500 },
    idle: { settleMs: 1_000, runMs: 4_000 },
    deploy: { rounds: 1, turnMs: 1_500, settleMs: 500 },
    away: { rounds: 1, settleMs: 500, awayMs: 5_000 },
    promote: { rounds: 1, tasks: 5_000, runs: 100, sessions: 50, settleMs: 500 },
    failover: { rounds: 1, settleMs: 500 },
  },
} as const;

/** How many logs sessions have by default on Postgres. */
const defaultLogs = 8;
/** A kind of work that takes longer has hung, and the others are to be measured all the same. */
const workLimitMs = 400_000;
/** A million rows are copied and compared in every round. */
const promoteLimitMs = 1_800_000;
/** Each log reserves its space for as long as its stream is there. */
const maxFileStore = "200GB";

/** Logs of sessions on three servers of NATS, which flush before they acknowledge, beside the servers alone. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds: usual, ...size } = options.quick ? sizes.quick : sizes.full;
  const { store, only, progress } = options;
  const failure = getParts([parts.nats]);
  if (parts.nats.find() === undefined) throw missing([parts.nats], failure);
  const rounds = options.rounds ?? usual;
  const logs = options.logs ?? defaultLogs;
  const of = <Sized extends { readonly rounds: number }>(sized: Sized): Sized => ({
    ...sized,
    rounds: options.rounds ?? sized.rounds,
  });
  const hop = async ({ nats }: ClusterSite): Promise<Work[]> => {
    await using pods = await openSite(options, rounds);
    return await measureHop(pods, { ...size.hop, nats });
  };
  const measuring: Readonly<Record<string, (site: ClusterSite) => Promise<Work[]>>> = {
    append: (site) => measureAppend(site, size.append),
    acked: (site) => measureAcked(site, size.acked),
    replay: (site) => measureReplay(site, size.replay),
    hop,
    archive: (site) => measureArchive(site, size.archive),
    idle: (site) => measureIdle(site, size.idle),
    deploy: (site) => measureDeploy(site, of(size.deploy)),
    away: (site) => measureAway(site, of(size.away)),
    promote: (site) => measurePromote(site, of(size.promote)),
    failover: (site) => measureFailover(site, of(size.failover)),
  };
  const works: Work[] = [];
  const failures: string[] = [];
  let servers = "";
  for (const [name, measure] of Object.entries(measuring)) {
    if (only && !only.includes(name)) continue;
    try {
      // Servers of its own, so that what one kind of work leaves behind is no part of the next.
      const nats = await startNatsCluster({ within: diskFolder(), maxFileStore });
      await using opened = new AsyncDisposableStack();
      opened.defer(() => nats.stop());
      servers ||= `three nats-servers ${await versionOf(nats.servers[0]!)} (sync_interval always, 3 replicas)`;
      progress(`${name}: on ${servers}`);
      const limitMs = name === "promote" ? promoteLimitMs : workLimitMs;
      const late = () => new Error(`it took longer than ${limitMs / 1_000} s`);
      const measured = measure({ options, rounds, nats, logs });
      works.push(...(await withTimeout(systemClock, limitMs, measured, late)));
    } catch (error) {
      failures.push(`${name} FAILED: ${messageOf(error)}`);
      progress(failures.at(-1)!);
      process.exitCode = 1;
    }
  }
  const about: About = {
    machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
    servers: { nats: servers },
    systems: {
      flotilla:
        "the log of sessions on these servers; for hop, archive, idle, deploy, away, promote and failover, pods whose logs are there or go there",
      bare: "the servers alone: fenced publishes of the same bytes, one at a time on each log; an ordered consumer",
      bus: "pods whose logs are in Postgres, and which reach each other through these servers",
      rows: "pods whose logs are in Postgres, and which reach each other through rows of it",
    },
  };
  if (options.save) saveResults(works, about, "cluster-postgres");
  const report = reportOf(works, about);
  const said = sayGoals(goals, report.measures, store);
  return { ...report, notes: [...failures, ...said, ...report.notes] };
}

async function versionOf({ monitorUrl }: { monitorUrl: string }): Promise<string> {
  const page = (await (await fetch(`${monitorUrl}/varz`)).json()) as { version: string };
  return page.version;
}
