import { besideNotes, evenRounds } from "./beside.ts";
import { sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { measureAcked } from "./sessions/acked.ts";
import { measureAppend } from "./sessions/append.ts";
import { measureFanout } from "./sessions/fanout.ts";
import { measureForks } from "./sessions/forks.ts";
import { goals } from "./sessions/goals.ts";
import { measureIdle } from "./sessions/idle.ts";
import { measureGrowth } from "./sessions/growth.ts";
import { measurePods, measurePodsAcked } from "./sessions/pods.ts";
import { measureReplay } from "./sessions/replay.ts";
import { measureRestart } from "./sessions/restart.ts";
import { openSite } from "./sessions/site.ts";
import { measureTurns } from "./sessions/turns.ts";
import type { Work } from "./side-by-side/figures.ts";
import { reportOf } from "./side-by-side/report.ts";
import { saveResults } from "./side-by-side/results.ts";

const sizes = {
  full: {
    rounds: 3,
    acked: { clients: 20, inFlight: 5, warmMs: 2_000, runMs: 5_000 },
    append: {
      alone: { warmUps: 3_000, count: 400, everyMs: 10 },
      rates: [500, 2_000, 5_000],
      clients: 100,
      // V8 goes on compiling for seconds, and at 5,000/s each stop of it is waited for by many.
      warmMs: 8_000,
      runMs: 5_000,
    },
    fanout: { subscribers: 1_000, repeats: 100 },
    forks: { entries: 100_000, readEntries: 10_000, fileBytes: 16 * 1024 ** 2, repeats: 15 },
    replay: { entries: 10_000, repeats: 5 },
    idle: { sockets: 15_000, processes: 2 },
    turns: { turns: 100, chunks: 250, perSecond: 50 },
    restart: { sessions: 100_000 },
    pods: { clients: 100, perSecond: 500, warmMs: 2_000, runMs: 5_000 },
    podsAcked: { pods: [2, 4], clients: 20, inFlight: 5, warmMs: 2_000, runMs: 5_000 },
    growth: { sessions: [100, 1_000, 10_000], clients: 100, warmMs: 2_000, runMs: 10_000 },
  },
  quick: {
    rounds: 1,
    acked: { clients: 20, inFlight: 5, warmMs: 300, runMs: 700 },
    append: {
      alone: { warmUps: 200, count: 50, everyMs: 5 },
      rates: [500, 5_000],
      clients: 100,
      warmMs: 300,
      runMs: 700,
    },
    fanout: { subscribers: 200, repeats: 10 },
    forks: { entries: 2_000, readEntries: 4_000, fileBytes: 4 * 1024 ** 2, repeats: 5 },
    replay: { entries: 1_000, repeats: 2 },
    idle: { sockets: 1_000, processes: 1 },
    turns: { turns: 20, chunks: 50, perSecond: 50 },
    restart: { sessions: 1_000 },
    pods: { clients: 20, perSecond: 100, warmMs: 300, runMs: 1_000 },
    podsAcked: { pods: [2], clients: 20, inFlight: 5, warmMs: 300, runMs: 700 },
    growth: { sessions: [100, 1_000], clients: 20, warmMs: 300, runMs: 700 },
  },
};

/** What has no comparison with another checkout. */
const alone = ["idle", "pods", "pods-acked", "growth"];

/** Sessions over real sockets: a server in one process, its clients in another. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds, ...size } = options.quick ? sizes.quick : sizes.full;
  const { store, only, tasks } = options;
  await using site = await openSite(options, evenRounds(options.rounds ?? rounds, options.beside));
  const restart = tasks === undefined ? size.restart : { sessions: tasks };
  const measuring: Readonly<Record<string, () => Promise<Work[]>>> = {
    acked: () => measureAcked(site, size.acked),
    append: () => measureAppend(site, size.append),
    fanout: () => measureFanout(site, size.fanout),
    replay: () => measureReplay(site, size.replay),
    forks: () => measureForks(site, size.forks),
    turns: () => measureTurns(site, size.turns),
    restart: () => measureRestart(site, restart),
    // What the store is makes no difference to a socket that does nothing.
    ...(store === "sqlite" && { idle: () => measureIdle(site, size.idle) }),
    // Two servers on one file would be two processes of one machine, which need no second server.
    ...(store === "postgres" && {
      pods: () => measurePods(site, size.pods),
      "pods-acked": () => measurePodsAcked(site, size.podsAcked),
    }),
    growth: () => measureGrowth(site, size.growth),
  };
  const works: Work[] = [];
  for (const [name, measure] of Object.entries(measuring)) {
    if (only?.includes(name) ?? !(options.beside && alone.includes(name)))
      works.push(...(await measure()));
  }
  const found = works.filter(({ figures }) => Object.keys(figures).length > 0);
  if (options.save) saveResults(found, site.about, `sessions-${store as "sqlite" | "postgres"}`);
  const report = reportOf(found, site.about);
  return {
    ...report,
    notes: [...sayGoals(goals, report.measures, store), ...report.notes, ...besideNotes(options)],
  };
}
