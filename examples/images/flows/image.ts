import { type Flow, flow } from "flotilla";
import { z } from "zod";
import type { Home } from "../home.ts";
import { resolve } from "../registry/client.ts";
import { parseReference } from "../registry/manifest.ts";
import { imageIdOf } from "../store/places.ts";
import { isTree } from "../store/tree.ts";
import { activateFlow } from "./activate.ts";
import { downloadFlow } from "./download.ts";
import { type FlowsOptions, interceptorsOf } from "./options.ts";
import { unpackFlow } from "./unpack.ts";

export const imageInput = z.object({
  /** `repository:tag` */
  reference: z.string(),
});
type Input = z.infer<typeof imageInput>;

export const activeImage = z.object({
  reference: z.string(),
  imageId: z.string(),
  snapshotId: z.string(),
});
type ActiveImage = z.infer<typeof activeImage>;

export type ImageFlows = {
  readonly download: ReturnType<typeof downloadFlow>;
  readonly unpack: ReturnType<typeof unpackFlow>;
  readonly activate: ReturnType<typeof activateFlow>;
  /** From a name to a snapshot: the three above as its children, one after another. */
  readonly image: Flow<Input, Input, ActiveImage>;
};

/** The flows over one home. A pod takes all of them in `use`. */
export function imageFlows(home: Home, options: FlowsOptions): ImageFlows {
  const download = downloadFlow(home, options);
  const unpack = unpackFlow(home, options);
  const activate = activateFlow(home, options);

  const image = flow("image", {
    version: 1,
    input: imageInput,
    output: activeImage,
    interceptors: interceptorsOf(options),
    backoff: { baseMs: 200, maxMs: 10_000 },
  })
    .to("resolve", { attempts: 5, timeoutMs: 60_000 }, async ({ input, signal }) => {
      // What a name stands for may change, so from here on it is the image that counts.
      const { limits } = home;
      const { manifest, manifestDigest } = await resolve(options.registry, input.reference, {
        limits,
        signal,
      });
      const layers = manifest.layers.map(({ digest, size }) => ({ digest, bytes: size }));
      return { reference: input.reference, imageId: imageIdOf(manifestDigest), layers };
    })
    .to("check", { attempts: 3 }, async ({ state: { reference, imageId }, signal, handoff }) => {
      const active = home.metadata.image(reference);
      if (active?.imageId !== imageId) return;
      const snapshot = home.metadata.snapshot(active.snapshotId);
      if (!snapshot) return;
      const path = home.places.snapshot(active.snapshotId);
      if (await isTree(path, snapshot.tree, signal)) return handoff({ ...active });
      return;
    })
    .children("blobs", ({ input: { reference }, state }) => {
      const { repository } = parseReference(reference);
      // An image may have the same layer twice.
      const once = new Map(state.layers.map((layer) => [layer.digest, layer]));
      return [...once.values()].map((layer) => [download, { repository, ...layer }]);
    })
    .children("trees", ({ state: { imageId, layers } }) => [
      [unpack, { imageId, layers: layers.map(({ digest }) => digest) }],
    ])
    .children("snapshots", ({ state: { reference, imageId, trees } }) => [
      [activate, { reference, imageId, tree: trees[0].tree }],
    ])
    .to("conclude", ({ state }) => ({ snapshotId: state.snapshots[0].snapshotId }))
    .end();

  return { download, unpack, activate, image };
}
