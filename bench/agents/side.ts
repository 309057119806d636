import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { type Build, buildsOf } from "../beside.ts";
import type { BenchOptions } from "../run.ts";
import { type Place, placeOn, sqlitePlace } from "../servers/place.ts";
import { startBenchPostgres } from "../servers/postgres.ts";
import type { About } from "../side-by-side/open.ts";

/** Which agents take part in a run, and where. */
export type AgentSide = {
  readonly options: BenchOptions;
  readonly rounds: number;
  readonly place: Place;
  readonly about: About;
  /** Ours, and the other checkout's if there is one. */
  readonly builds: readonly Build[];
  /** The durable agents of all builds, and the same one of ours without `durable`. */
  readonly entrants: readonly AgentEntrant[];
  [Symbol.asyncDispose](): Promise<void>;
};

export type AgentEntrant = {
  readonly key: Build["key"] | "plain";
  readonly durable: boolean;
  readonly checkout?: string | undefined;
};

export async function openAgentSide(options: BenchOptions, rounds: number): Promise<AgentSide> {
  const { store, folder, profile, progress, beside } = options;
  const place =
    store === "postgres"
      ? placeOn(await startBenchPostgres({ counting: profile !== undefined }))
      : sqlitePlace(folder);
  progress(`opened ${place.about}`);
  const builds = buildsOf(options);
  return {
    options,
    rounds,
    place,
    builds,
    entrants: [
      ...builds.map((build) => ({ ...build, durable: true })),
      { key: "plain", durable: false },
    ],
    about: {
      machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
      servers: { [store]: place.about },
      systems: {
        flotilla: "an agent of ten calls and ten tools in a session, with `durable`",
        plain: "the same agent without `durable`",
        ...(beside !== undefined && { beside: "with `durable`, of the other checkout" }),
      },
    },
    [Symbol.asyncDispose]: () => place.stop(),
  };
}
