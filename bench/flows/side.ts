import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { installPeers } from "../peers.ts";
import type { BenchOptions } from "../run.ts";
import { type Place, placeOn, sqlitePlace } from "../servers/place.ts";
import { startBenchPostgres } from "../servers/postgres.ts";
import { restatePlace } from "../servers/restate.ts";
import type { About } from "../side-by-side/open.ts";
import { type FlowVariant, flowVariants, type PlaceKind } from "./variants.ts";

/** Who takes part in a run, and where. */
export type FlowSide = {
  readonly options: BenchOptions;
  readonly rounds: number;
  readonly variants: readonly FlowVariant[];
  readonly about: About;
  placeOf(variant: FlowVariant): Place;
  [Symbol.asyncDispose](): Promise<void>;
};

const open: Readonly<Record<PlaceKind, (options: BenchOptions) => Place | Promise<Place>>> = {
  postgres: async ({ profile }) =>
    placeOn(await startBenchPostgres({ counting: profile !== undefined })),
  sqlite: ({ folder }) => sqlitePlace(folder),
  "restate-24": () => restatePlace({}),
  "restate-2": () => restatePlace({ partitions: 2 }),
};

/** Installs the peers and opens the places that the systems of this run need. */
export async function openFlowSide(
  options: BenchOptions,
  rounds: number,
  known: Readonly<Record<string, readonly FlowVariant[]>> = flowVariants,
): Promise<FlowSide> {
  const { store, systems, progress, beside } = options;
  const all = known[store]!;
  const ours = all.find(({ key }) => key === "flotilla")!;
  const about = `${ours.about}, of the other checkout`;
  const variants = [
    ...all.filter(
      ({ key }) => systems?.includes(key) ?? (beside === undefined || key === ours.key),
    ),
    ...(beside === undefined ? [] : [{ ...ours, key: "beside", about, checkout: beside }]),
  ];
  const versions = variants.some((each) => each.package) ? installPeers(progress) : {};
  const places = new Map<PlaceKind, Place>();
  for (const { place: kind } of variants) {
    if (places.has(kind)) continue;
    const place = await open[kind](options);
    places.set(kind, place);
    progress(`opened ${place.about}`);
  }
  const aboutOf = ({ package: name, about: settings }: FlowVariant) =>
    name ? `${name} ${versions[name]}: ${settings}` : settings;
  return {
    options,
    rounds,
    variants,
    placeOf: ({ place }) => places.get(place)!,
    about: {
      machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
      servers: Object.fromEntries([...places].map(([kind, place]) => [kind, place.about])),
      systems: Object.fromEntries(variants.map((each) => [each.key, aboutOf(each)])),
    },
    async [Symbol.asyncDispose]() {
      for (const place of places.values()) await place.stop();
    },
  };
}
