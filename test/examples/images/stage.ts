import { join } from "node:path";
import { type Pod, startPod } from "flotilla";
import { onTestFinished } from "vitest";
import type { Digest } from "../../../examples/images/disk/digest.ts";
import { imageFlows } from "../../../examples/images/flows/image.ts";
import type { FlowsOptions } from "../../../examples/images/flows/options.ts";
import { type Home, type HomeOptions, openHome } from "../../../examples/images/home.ts";
import { type Registry, startRegistry } from "../../../examples/images/registry/registry.ts";
import { sampleLayers } from "../../../examples/images/sample.ts";
import { fingerprint } from "../../../examples/images/store/fingerprint.ts";
import { type Orphan, reconcile } from "../../../examples/images/store/reconcile.ts";
import { temporaryFolder } from "./places.ts";

const silent = () => {};
const log = { debug: silent, info: silent, warn: silent, error: silent };

export type Stage = {
  readonly folder: string;
  readonly registry: Registry;
  readonly home: Home;
  readonly pod: Pod;
  readonly flows: ReturnType<typeof imageFlows>;
  /** The digests of the sample's layers. */
  readonly layers: Digest[];
  readonly run: (reference?: string) => ReturnType<Pod["runs"]["wait"]>;
  readonly print: () => Promise<string[]>;
  readonly orphans: () => Promise<Orphan[]>;
};

export type StageOptions = HomeOptions &
  Pick<FlowsOptions, "interceptors"> & {
    folder?: string;
    registry?: Registry;
    /** Puts something else in its place. */
    changed?: (home: Home) => Home;
  };

/** A registry with a sample image, a home and a pod that runs the flows. */
export async function stage(options: StageOptions = {}): Promise<Stage> {
  const { folder = temporaryFolder(), interceptors = [], changed = (home) => home } = options;
  const registry = options.registry ?? (await startRegistry());
  const { layers } = registry.push("demo/sample:1", sampleLayers());
  const home = await openHome(join(folder, "home"), options);
  const flows = imageFlows(changed(home), { registry: registry.url, interceptors });
  const pod = await startPod({
    store: `sqlite:${join(folder, "runs.db")}`,
    use: [flows.image, flows.download, flows.unpack, flows.activate],
    dataDir: false,
    shutdownMs: 0,
    log,
  });
  onTestFinished(async () => {
    await pod.stop();
    home.close();
    await registry.close();
  });
  return {
    folder,
    registry,
    home,
    pod,
    flows,
    layers: layers.map(({ digest }) => digest),
    run: async (reference = "demo/sample:1") =>
      pod.runs.wait((await pod.runs.start(flows.image, { reference })).runId),
    print: () => fingerprint(home.places.home),
    orphans: () => reconcile(home.places, home.metadata),
  };
}

let clean: Promise<string[]> | undefined;

/** What a run without any trouble leaves. */
export function cleanPrint(): Promise<string[]> {
  clean ??= stage().then(async ({ run, print }) => {
    await run();
    return print();
  });
  return clean;
}
