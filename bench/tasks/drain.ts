import { copyFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Build, buildsOf } from "../beside.ts";
import { measure, type Measure } from "../report.ts";
import { startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { inTurn } from "../side-by-side/bench.ts";
import type { Drained, DrainerParams } from "./drainer.ts";
import type { FillerParams } from "./filler.ts";
import type { Limit, LimitPhase } from "./limit.ts";
import { manySlots } from "./work.ts";

export type DrainSizes = {
  readonly rounds: number;
  readonly tasks: number;
  /** A round that takes longer is cut, and counts with what it did until then. */
  readonly cutMs: number;
};

const usualSlots = 100;

type Backlog = Build["key"] | "codec";
type Drainer = {
  readonly key: Backlog;
  readonly checkout?: string | undefined;
  readonly codec?: boolean | undefined;
  readonly feed?: boolean | undefined;
};
/** Ours with all content encrypted, by turns with the same in plain text. */
const encoded: Drainer = { key: "codec", codec: true };
/** Ours while changes are recorded, on a copy of the same file. */
const recorded: Drainer = { key: "flotilla", feed: true };

/** Running a backlog of no-op tasks in one pod, in turns with the limit on a copy of the same file. */
export async function measureDrain(
  { folder, profile, progress, late, beside }: BenchOptions,
  { rounds, tasks, cutMs }: DrainSizes,
): Promise<Measure[]> {
  const builds = buildsOf({ beside });
  const full = (key: Backlog) => join(folder, `backlog-${key}.db`);
  const drainers: readonly Drainer[] = [...builds, encoded];
  for (const { key, checkout, codec } of drainers) {
    const filler: FillerParams = { store: `sqlite:${full(key)}`, tasks, parts: 1, codec };
    await startRole(new URL("./filler.ts", import.meta.url), filler, { checkout }).result;
  }
  progress(`drain: a backlog of ${tasks} tasks is stored`);

  let copies = 0;
  // Every copy has its own name: a log that was left behind must not meet another file.
  const copy = (key: Backlog): string => {
    const path = join(folder, `drain-${++copies}.db`);
    copyFileSync(full(key), path);
    return path;
  };
  const drain = async (drainer: Drainer, slots: number): Promise<Drained> => {
    const { key, checkout, codec, feed } = drainer;
    const store = `sqlite:${copy(key)}`;
    const params: DrainerParams = { store, tasks, slots, cutMs, codec, feed };
    const options = { profile, checkout };
    return startRole(new URL("./drainer.ts", import.meta.url), params, options).result;
  };
  const drainLimit = async (): Promise<Limit> => {
    const phase: LimitPhase = { work: "drain", path: copy("flotilla"), batch: 100, tasks, cutMs };
    const [limit] = await startRole(new URL("./limit.ts", import.meta.url), [phase]).result;
    return limit;
  };

  const many: Record<Build["key"], Drained[]> = { flotilla: [], beside: [] };
  const usual: Record<Build["key"], Drained[]> = { flotilla: [], beside: [] };
  const codec: Drained[] = [];
  const feed: Drained[] = [];
  const limits: Limit[] = [];
  for (let round = 1; round <= rounds && !(round > 1 && late(0.5)); round++) {
    for (const build of inTurn(round, builds)) {
      many[build.key].push(await drain(build, manySlots));
      usual[build.key].push(await drain(build, usualSlots));
    }
    codec.push(await drain(encoded, manySlots));
    feed.push(await drain(recorded, manySlots));
    limits.push(await drainLimit());
    const shown = (all: readonly { tasks: number; wallMs: number }[]) =>
      `${Math.round(perSecond(all.at(-1)!))}/s`;
    const figures = builds.map(
      ({ key }) => `${key} ${shown(many[key])}, with ${usualSlots} slots ${shown(usual[key])}`,
    );
    progress(
      `drain, round ${round} of ${rounds}: ${figures.join("; ")}; encrypted ${shown(codec)}; recorded ${shown(feed)}; limit ${shown(limits)}`,
    );
    for (const name of readdirSync(folder)) {
      if (name.startsWith("drain-")) rmSync(join(folder, name));
    }
  }
  const limit = limits.map(perSecond);
  const compared = (
    metric: string,
    unit: string,
    drained: Record<Build["key"], Drained[]>,
    figure: (each: Drained) => number,
  ) =>
    measure({
      metric,
      unit,
      ours: drained.flotilla.map(figure),
      ...(unit === "tasks/s" ? {} : { better: "lower" }),
      others: {
        ...(unit === "tasks/s" && { limit }),
        ...(beside && { beside: drained.beside.map(figure) }),
      },
    });
  const cpuUs = ({ cpuMs, tasks: done }: Drained) => (cpuMs * 1_000) / done;
  return [
    compared("tasks.drain", "tasks/s", many, perSecond),
    compared("tasks.drain.default_slots", "tasks/s", usual, perSecond),
    measure({
      metric: "tasks.drain.codec",
      unit: "tasks/s",
      ours: codec.map(perSecond),
      others: { plain: many.flotilla.map(perSecond) },
    }),
    measure({
      metric: "tasks.drain.feed",
      unit: "tasks/s",
      ours: feed.map(perSecond),
      others: { unrecorded: many.flotilla.map(perSecond) },
    }),
    compared("tasks.drain.cpu", "us/task", many, cpuUs),
    compared("tasks.drain.rss", "MiB", many, ({ rssMib }) => rssMib),
  ];
}

function perSecond({ tasks, wallMs }: { tasks: number; wallMs: number }): number {
  return (tasks / wallMs) * 1_000;
}
