import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { installPeers } from "../peers.ts";
import type { BenchOptions } from "../run.ts";
import { startBenchPostgres } from "../servers/postgres.ts";
import { startBenchRedis } from "../servers/redis.ts";
import type { Server } from "../servers/server.ts";
import { type ServerKind, type Variant, variants, variantsBeside } from "../systems/variants.ts";
import type { SideBySide } from "./bench.ts";

/** The conditions of a run, for people. */
export type About = {
  readonly machine: string;
  readonly servers: Readonly<Record<string, string>>;
  readonly systems: Readonly<Record<string, string>>;
};

export type OpenSideBySide = SideBySide & {
  readonly about: About;
  /** Who takes part: all, those at their best, and of these the ones on Postgres. */
  readonly keys: Readonly<Record<"everybody" | "best" | "ofPostgres", readonly string[]>>;
  [Symbol.asyncDispose](): Promise<void>;
};

const start: Readonly<Record<ServerKind, (options: BenchOptions) => Promise<Server>>> = {
  postgres: ({ profile }) => startBenchPostgres({ counting: profile !== undefined }),
  redis: () => startBenchRedis("nothing"),
  "redis-aof": () => startBenchRedis("everything"),
};

/** Installs the peers and starts the servers that the systems of this run need. */
export async function openSideBySide(
  options: BenchOptions,
  rounds: number,
): Promise<OpenSideBySide> {
  const { systems, beside } = options;
  const ours = ["flotilla", "limit"];
  const wanted = ({ key, system }: Variant) =>
    systems?.includes(key) ?? (beside === undefined || system === "flotilla");
  const taking = [
    ...variants.filter(wanted),
    ...(beside === undefined ? [] : variantsBeside(beside)),
  ];
  const peers = taking.some(({ system }) => !ours.includes(system));
  const versions = peers ? installPeers(options.progress) : {};
  const servers: Partial<Record<ServerKind, Server>> = {};
  for (const kind of new Set<ServerKind>(["postgres", ...taking.map(({ server }) => server)])) {
    servers[kind] = await start[kind](options);
    options.progress(`started ${servers[kind].about}`);
  }
  const keysOf = (those: readonly Variant[]) => those.map(({ key }) => key);
  const atBest = taking.filter(({ defaults }) => !defaults);
  return {
    options,
    servers,
    rounds,
    only: (keys) => taking.filter(({ key }) => keys.includes(key)),
    keys: {
      everybody: keysOf(taking),
      best: keysOf(atBest),
      ofPostgres: keysOf(atBest.filter(({ server }) => server === "postgres")),
    },
    about: {
      machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
      servers: Object.fromEntries(
        Object.entries(servers).map(([kind, server]) => [kind, server.about]),
      ),
      systems: Object.fromEntries(
        taking.map(({ key, system, about }) => {
          const version = versions[system];
          return [key, version ? `${system} ${version}: ${about}` : about];
        }),
      ),
    },
    async [Symbol.asyncDispose]() {
      for (const server of Object.values(servers)) await server.stop();
    },
  };
}
