import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { type Role, sharedMs, startRole } from "../roles.ts";
import { loadSystem } from "../systems/system.ts";
import type { Variant } from "../systems/variants.ts";
import { serverOf, type SideBySide, takeTurns } from "./bench.ts";
import { countCost, shownCost } from "./cost.ts";
import { collect, type Work } from "./figures.ts";
import { countDeadRows, countWrites } from "./writes.ts";
import type { FillerParams } from "./filler.ts";
import type { Worked, WorkerParams } from "./worker.ts";

export type DrainWork = {
  readonly metric: string;
  /** Who takes part. */
  readonly keys: readonly string[];
  readonly tasks: number;
  readonly processes?: number;
  /** How long each task takes, waiting. */
  readonly taskMs?: number;
  /** Finished tasks that lie in the table already. */
  readonly finished?: number;
  /** Whether somebody holds a transaction open meanwhile, whose snapshot keeps dead rows alive. */
  readonly snapshotHeld?: boolean;
  /** Whether ours has all content encrypted, by turns with ourselves in plain text. */
  readonly codec?: boolean;
  /** Whether ours records changes, by turns with ourselves without. */
  readonly feed?: boolean;
  /** Longer than this nobody is watched, at its defaults or not: what was done until then counts. */
  readonly cutMs: number;
  readonly cutDefaultsMs: number;
};

type Drained = {
  readonly perSecond: number;
  readonly cut: boolean;
  readonly nodeCpuUs: number;
  readonly serverCpuUs: number | undefined;
  readonly rssMib: number;
  /** On Postgres. */
  readonly walBytes: number | undefined;
  readonly commits: number | undefined;
  /** How many dead rows were left while a snapshot was held. */
  readonly deadRows: number | undefined;
};

const startLimitMs = 60_000;

/** Working off a backlog: tasks stored as finished, by the time since the first of them started. */
export async function measureDrain(side: SideBySide, work: DrainWork): Promise<Work[]> {
  const { progress } = side.options;
  const rate = collect(work.metric, "tasks/s");
  const nodeCpu = collect(`${work.metric}.cpu`, "us/task", "lower");
  const serverCpu = collect(`${work.metric}.server_cpu`, "us/task", "lower");
  const memory = collect(`${work.metric}.rss`, "MiB", "lower");
  const wal = collect(`${work.metric}.wal_bytes`, "bytes/task", "lower");
  const commits = collect(`${work.metric}.commits`, "commits/task", "lower");
  const dead = collect(`${work.metric}.dead_rows`, "rows/task", "lower");
  await takeTurns(side, entrantsOf(side, work), async ({ key, variant, ...own }, round) => {
    const drained = await drainOnce(side, variant, { ...work, ...own });
    const { perSecond, cut, nodeCpuUs, serverCpuUs, rssMib } = drained;
    rate.add(key, { value: perSecond, ...(cut && { cut }) });
    nodeCpu.add(key, { value: nodeCpuUs });
    if (serverCpuUs !== undefined) serverCpu.add(key, { value: serverCpuUs });
    memory.add(key, { value: rssMib });
    if (drained.walBytes !== undefined) wal.add(key, { value: drained.walBytes });
    if (drained.commits !== undefined) commits.add(key, { value: drained.commits });
    if (drained.deadRows !== undefined) dead.add(key, { value: drained.deadRows });
    progress(
      `${work.metric}, round ${round} of ${side.rounds}: ${key} ${Math.round(perSecond)}/s${cut ? ", cut" : ""}; ` +
        shownCost(nodeCpuUs, serverCpuUs),
    );
  });
  const all = [rate, nodeCpu, serverCpu, memory, wal, commits, dead].map(({ work: each }) => each);
  return all.filter(({ figures }) => Object.keys(figures).length > 0);
}

type Entrant = {
  readonly key: string;
  readonly variant: Variant;
  readonly finished: number;
  readonly codec: boolean;
  readonly feed: boolean;
};

/** Where finished tasks lie in the way, content is encrypted or changes are recorded, we also take turns with ourselves without. */
function entrantsOf(side: SideBySide, work: DrainWork): Entrant[] {
  const { keys, finished = 0, codec = false, feed = false } = work;
  const own = { finished, codec, feed };
  const all = side.only(keys).map((variant) => ({ key: variant.key, variant, ...own }));
  const ours = all.find(({ key }) => key === "flotilla");
  if (!ours) return all;
  return [
    ...all,
    ...(finished > 0 ? [{ ...ours, key: "empty_table", finished: 0 }] : []),
    ...(codec ? [{ ...ours, key: "plain", codec: false }] : []),
    ...(feed ? [{ ...ours, key: "unrecorded", feed: false }] : []),
  ];
}

async function drainOnce(side: SideBySide, variant: Variant, work: DrainWork): Promise<Drained> {
  const server = serverOf(side, variant);
  const { system: name, checkout } = variant;
  const { tasks, processes = 1, taskMs = 0, finished = 0, snapshotHeld = false } = work;
  const usual = (taskMs > 0 ? variant.waiting : undefined) ?? variant.settings;
  const coded = work.codec ? { ...usual, codec: true } : usual;
  const settings = work.feed ? { ...coded, feed: true } : coded;
  const backlog = `${variant.backlog}${work.codec ? " encrypted" : ""} ${tasks} ${finished}`;
  const url = await server.filled(backlog, async (empty) => {
    side.options.progress(`storing a backlog of ${tasks} for ${variant.key}`);
    const params: FillerParams = { system: name, settings, url: empty, tasks, finished };
    const filler = startRole(new URL("./filler.ts", import.meta.url), params, { checkout });
    await filler.result;
    await filler.gone;
  });
  const watch = await (await loadSystem(name, checkout)).watch(url);
  const holder = snapshotHeld ? await holdSnapshot(url) : undefined;
  const params: WorkerParams = { system: name, settings, url, taskMs };
  const { profile } = side.options;
  const cost = await countCost(server);
  const writes = url.startsWith("postgres") ? await countWrites(url) : undefined;
  const workers = Array.from({ length: processes }, () =>
    startRole(new URL("./worker.ts", import.meta.url), params, {
      profile: name === "flotilla" ? profile : undefined,
      checkout,
    }),
  );
  const cutMs = variant.defaults ? work.cutDefaultsMs : work.cutMs;
  const seen = await observe(workers, watch.unfinished, { tasks, cutMs });
  const serverCpuUs = await cost.per(seen.finished, side.options);
  const written = await writes?.();
  await watch.close();
  for (const worker of workers) worker.send("stop");
  const worked: Worked[] = await Promise.all(workers.map((worker) => worker.result));
  await Promise.all(workers.map((worker) => worker.gone));
  const deadRows = holder && (await countDeadRows(url));
  await holder?.end();
  await server.drop(url);
  const cpuMs = worked.reduce((sum, each) => sum + each.cpuMs, 0);
  return {
    perSecond: (seen.finished / seen.wallMs) * 1_000,
    cut: seen.finished < tasks,
    nodeCpuUs: (cpuMs * 1_000) / seen.finished,
    serverCpuUs,
    rssMib: Math.max(...worked.map((each) => each.rssMib)),
    walBytes: written && written.walBytes / seen.finished,
    commits: written && written.commits / seen.finished,
    deadRows: deadRows && deadRows / seen.finished,
  };
}

/** Watches from outside, and asks the store only once all tasks have run, so as not to be in the way. */
async function observe(
  workers: readonly Role[],
  unfinished: () => Promise<number>,
  { tasks, cutMs }: { tasks: number; cutMs: number },
): Promise<{ finished: number; wallMs: number }> {
  const ran = workers.map(() => 0);
  let firstMs = Infinity;
  workers.forEach((worker, at) => {
    worker.on("first", (atMs: number) => (firstMs = Math.min(firstMs, atMs)));
    worker.on("ran", (count: number) => (ran[at] = count));
  });
  const failed = Promise.race(workers.map((worker) => worker.result));
  const startedMs = sharedMs();
  for (;;) {
    await Promise.race([wait(5), failed]);
    const nowMs = sharedMs();
    if (nowMs - firstMs > cutMs) {
      return { finished: tasks - (await unfinished()), wallMs: nowMs - firstMs };
    }
    if (ran.reduce((sum, count) => sum + count, 0) >= tasks && (await unfinished()) === 0) {
      return { finished: tasks, wallMs: sharedMs() - firstMs };
    }
    if (firstMs === Infinity && nowMs - startedMs > startLimitMs) {
      throw new Error(`no task was started within ${startLimitMs} ms`);
    }
  }
}

async function holdSnapshot(url: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  client.on("error", () => {});
  await client.connect();
  await client.query("begin isolation level repeatable read");
  await client.query("select 1");
  return client;
}
