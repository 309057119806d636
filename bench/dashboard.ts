import { availableParallelism, cpus } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Browser, chromium } from "playwright-core";
import { buildDashboard } from "../build/dashboard.ts";
import { topicSpecs } from "../src/server/watch/topics.ts";
import { getParts, missing, part, parts } from "../test/parts.ts";
import { timeAnswers } from "./dashboard/answers.ts";
import type { ServedDrain, ServedDrainerParams } from "./dashboard/drainer.ts";
import type { Filled, FilledSizes, FillerParams } from "./dashboard/filler.ts";
import { watchFrames } from "./dashboard/frames.ts";
import { goals } from "./dashboard/goals.ts";
import type { HostParams } from "./dashboard/host.ts";
import { emptyListNames, emptyLists, loadCold, pageNames, pages } from "./dashboard/pages.ts";
import type { WatchersParams } from "./dashboard/watchers.ts";
import { sayGoals } from "./goals.ts";
import { measure, type Measure, type Report } from "./report.ts";
import { type Role, startRole } from "./roles.ts";
import type { BenchOptions } from "./run.ts";
import { type Place, placeOn, sqlitePlace } from "./servers/place.ts";
import { startBenchPostgres } from "./servers/postgres.ts";
import { takeTurns } from "./side-by-side/bench.ts";
import { type MeasuresName, saveMeasures } from "./side-by-side/results.ts";
import type { FillerParams as BacklogParams } from "./tasks/filler.ts";
import { manySlots } from "./tasks/work.ts";

const sizes = {
  full: {
    rounds: 5,
    rows: 1_000_000,
    events: 50_000,
    asks: 40,
    framesMs: 60_000,
    drain: { tasks: 100_000, cutMs: 60_000 },
  },
  quick: {
    rounds: 1,
    rows: 20_000,
    events: 5_000,
    asks: 10,
    framesMs: 10_000,
    drain: { tasks: 16_000, cutMs: 10_000 },
  },
};

/** Beside a million tasks there are so many of the rest. */
const perTask = { runs: 0.1, sessions: 0.01, entries: 0.1 };
const tabs = 20;
const tasksPerSecond = 500;
/** What the overview is drawn from, of the topics that there are. */
const overviewTopics = [
  "overview",
  "pods",
  "throttles",
  "schedules",
  "failures",
  "acts",
  "approvals",
].filter((topic) => Object.hasOwn(topicSpecs, topic));

type DashboardSide = {
  readonly options: BenchOptions;
  readonly rounds: number;
  readonly place: Place;
};

/** A store that is filled, a server on it, and a browser. */
type Scene = {
  readonly filled: Filled;
  readonly host: Role;
  readonly url: string;
  readonly browser: Browser;
};

/** The dashboard in a large store: how soon it answers and shows, how smoothly, and what it costs. */
export async function bench(options: BenchOptions): Promise<Report> {
  const size = options.quick ? sizes.quick : sizes.full;
  const { store, folder, progress, only } = options;
  const rows = options.rows ?? size.rows;
  const saved = options.save ? savedAs(store, rows) : undefined;
  const place = store === "postgres" ? placeOn(await startBenchPostgres()) : sqlitePlace(folder);
  progress(`opened ${place.about}`);
  const side: DashboardSide = { options, rounds: options.rounds ?? size.rounds, place };
  const filledSizes: FilledSizes = {
    tasks: rows,
    runs: Math.round(rows * perTask.runs),
    sessions: Math.round(rows * perTask.sessions),
    entries: Math.round(rows * perTask.entries),
    events: size.events,
  };
  const framesMs = options.minutes === undefined ? size.framesMs : options.minutes * 60_000;
  const measuring = {
    answers: (scene: Scene) => measureAnswers(side, scene, size.asks),
    loads: (scene: Scene) => measureLoads(side, scene),
    events: (scene: Scene) => measureLong(side, scene),
    frames: (scene: Scene) => measureFrames(side, scene, framesMs),
  };
  const inScene = Object.entries(measuring).filter(([name]) => only?.includes(name) ?? true);
  const measures: Measure[] = [];
  try {
    if (inScene.length > 0) {
      await using scene = await openScene(side, filledSizes);
      for (const [, measureOne] of inScene) measures.push(...(await measureOne(scene)));
    }
    if (only?.includes("drain") ?? true) {
      const drain = { ...size.drain, ...(options.tasks && { tasks: options.tasks }) };
      measures.push(...(await measureDrain(side, drain)));
    }
  } finally {
    await place.stop();
  }
  if (saved) saveMeasures(measures, saved);
  const count = (value: number) => value.toLocaleString("en-US");
  return {
    measures,
    notes: [
      ...sayGoals(goals, measures, store),
      `${count(rows)} tasks, ${count(filledSizes.runs)} runs, ${count(filledSizes.sessions)} sessions, ${count(filledSizes.entries)} entries of the audit`,
      `answer: the slowest that a page asks for when it is opened, over HTTP, up to its last byte`,
      `useful: from the navigation of a browser without a cache to a page that loads nothing more`,
      `drain: ${tabs} tabs watch what the overview watches, or none does; one pod with ${manySlots} slots and its server`,
      place.about,
      `Node ${process.version}, ${availableParallelism()} cores, ${cpus()[0]?.model ?? "unknown processor"}`,
    ],
  };
}

/** Figures of stores of two sizes are kept, and none in between. */
function savedAs(store: string, rows: number): MeasuresName {
  const kind = store === "postgres" ? "postgres" : "sqlite";
  if (rows === sizes.full.rows) return `dashboard-${kind}`;
  if (rows === 10 * sizes.full.rows) return `dashboard-${kind}-large`;
  throw new Error("--save keeps figures of --rows 1000000 or 10000000 alone");
}

async function openScene(
  { options, place }: DashboardSide,
  filledSizes: FilledSizes,
): Promise<Scene & AsyncDisposable> {
  const { folder, progress, profile } = options;
  const failure = getParts([parts.chromium]);
  if (failure !== undefined) throw missing([parts.chromium], failure);
  const dashboardFolder = join(folder, "dashboard");
  await buildDashboard(dashboardFolder);
  const store = await place.fresh();
  const params: FillerParams = { store, ...filledSizes };
  const filler = startRole(new URL("./dashboard/filler.ts", import.meta.url), params);
  const filled = (await filler.result) as Filled;
  await filler.gone;
  progress(`filled with ${filledSizes.tasks.toLocaleString("en-US")} tasks and the rest`);
  const hosted: HostParams = { store, dashboardFolder, tasksPerSecond };
  const host = startRole(new URL("./dashboard/host.ts", import.meta.url), hosted, { profile });
  const url = (await host.next("listens")) as string;
  const browser = await chromium.launch({
    executablePath: part("chromium"),
    // Its sandbox doesn't work for root, and containers have little shared memory.
    args: [...(process.getuid?.() === 0 ? ["--no-sandbox"] : []), "--disable-dev-shm-usage"],
  });
  return {
    filled,
    host,
    url,
    browser,
    async [Symbol.asyncDispose]() {
      await browser.close();
      host.send("stop");
      await host.result;
      await host.gone;
      await place.drop(store);
    },
  };
}

/** What each page asks for when it is opened, and lists by filters that match nothing. */
async function measureAnswers(
  { options, rounds }: DashboardSide,
  { browser, url, filled }: Scene,
  asks: number,
): Promise<Measure[]> {
  const asked: Record<string, readonly string[]> = {};
  for (const name of pageNames) {
    // Once before, so that the server has read its own files.
    await loadCold(browser, url, pages[name](filled));
    asked[name] = (await loadCold(browser, url, pages[name](filled))).asked;
  }
  for (const name of emptyListNames) asked[name] = [emptyLists[name]()];
  const measures: Measure[] = [];
  for (const [name, paths] of Object.entries(asked)) {
    const p50: number[] = [];
    const p95: number[] = [];
    let slowest = "";
    for (let round = 1; round <= rounds; round++) {
      const times = [];
      for (const path of paths) times.push(await timeAnswers(url, path, asks));
      const worst = times.toSorted((one, other) => other.p95 - one.p95)[0];
      if (!worst) throw new Error(`the page ${name} asks for nothing`);
      p50.push(worst.p50);
      p95.push(worst.p95);
      slowest = worst.path;
    }
    const of = (metric: string, ours: number[]) =>
      measure({ metric: `dashboard.${metric}.${name}`, unit: "ms", ours, better: "lower" });
    measures.push(of("answer_p50_ms", p50), of("answer_p95_ms", p95));
    const [{ value: usual }, { value: late }] = measures.slice(-2) as [Measure, Measure];
    options.progress(
      `dashboard.answer, ${name}: p50 ${usual.toFixed(1)} ms, p95 ${late.toFixed(1)} ms of ${paths.length}, slowest ${slowest}`,
    );
  }
  return measures;
}

async function measureLoads(
  { options, rounds }: DashboardSide,
  { browser, url, filled }: Scene,
): Promise<Measure[]> {
  const measures: Measure[] = [];
  for (const name of pageNames) {
    measures.push(await loads(options, { browser, url, rounds, name, path: pages[name](filled) }));
  }
  return measures;
}

/** A task and a run with very many events. */
async function measureLong(
  { options, rounds }: DashboardSide,
  { browser, url, filled: { longTaskId, longRunId } }: Scene,
): Promise<Measure[]> {
  const common = { browser, url, rounds };
  return [
    await loads(options, { ...common, name: "long_task", path: `/tasks/${longTaskId}` }),
    await loads(options, { ...common, name: "long_run", path: `/runs/${longRunId}` }),
  ];
}

type Loads = Pick<Scene, "browser" | "url"> & {
  readonly rounds: number;
  readonly name: string;
  readonly path: string;
};

async function loads(
  { progress }: BenchOptions,
  { browser, url, rounds, name, path }: Loads,
): Promise<Measure> {
  // Once before, so that the server has read its own files.
  await loadCold(browser, url, path);
  const ours: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    ours.push((await loadCold(browser, url, path)).usefulMs);
  }
  const metric = `dashboard.useful_ms.${name}`;
  const loaded = measure({ metric, unit: "ms", ours, better: "lower" });
  progress(`${metric}: ${loaded.value.toFixed(0)} ms`);
  return loaded;
}

/** The overview while hundreds of tasks a second come and go. */
async function measureFrames(
  { options }: DashboardSide,
  { browser, url, host }: Scene,
  forMs: number,
): Promise<Measure[]> {
  host.send("busy");
  const { progress } = options;
  const { longestMs, longTasks, heapMib } = await watchFrames(browser, url, { forMs, progress });
  const third = Math.max(1, Math.floor(heapMib.length / 3));
  const meanOf = (values: readonly number[]) =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  const growth = meanOf(heapMib.slice(-third)) / meanOf(heapMib.slice(0, third));
  const of = (metric: string, unit: string, value: number) =>
    measure({ metric: `dashboard.frames.${metric}`, unit, ours: [value], better: "lower" });
  return [
    of("longest_ms", "ms", longestMs),
    of("long_tasks", "tasks of 50 ms", longTasks),
    of("heap_growth", "times", growth),
  ];
}

/** The drain of a backlog by a pod with a server, with many tabs that watch and with none. */
async function measureDrain(
  side: DashboardSide,
  { tasks, cutMs }: { readonly tasks: number; readonly cutMs: number },
): Promise<Measure[]> {
  const { options, place, rounds } = side;
  const rates: Record<"watched" | "unwatched", number[]> = { watched: [], unwatched: [] };
  await takeTurns(side, ["watched", "unwatched"] as const, async (key, round) => {
    const store = await place.filled(`backlog of ${tasks}`, async (empty) => {
      const params: BacklogParams = { store: empty, tasks, parts: 1 };
      const filler = startRole(new URL("./tasks/filler.ts", import.meta.url), params);
      await filler.result;
      await filler.gone;
    });
    const params: ServedDrainerParams = { store, tasks, slots: manySlots, cutMs };
    const drainer = startRole(new URL("./dashboard/drainer.ts", import.meta.url), params, {
      profile: key === "watched" ? options.profile : undefined,
    });
    const url = (await drainer.next("listens")) as string;
    const watching: WatchersParams = { url, topics: overviewTopics.join(","), tabs };
    const watchers =
      key === "watched"
        ? startRole(new URL("./dashboard/watchers.ts", import.meta.url), watching)
        : undefined;
    await watchers?.next("watching");
    drainer.send("begin");
    const drained = (await drainer.result) as ServedDrain;
    watchers?.send("stop");
    await watchers?.gone;
    await drainer.gone;
    await place.drop(store);
    const perSecond = (drained.tasks / drained.wallMs) * 1_000;
    rates[key].push(perSecond);
    options.progress(
      `dashboard.drain, round ${round} of ${rounds}: ${key} ${Math.round(perSecond)} tasks/s`,
    );
  });
  return [
    measure({
      metric: "dashboard.drain",
      unit: "tasks/s",
      ours: rates.watched,
      others: { unwatched: rates.unwatched },
    }),
  ];
}
