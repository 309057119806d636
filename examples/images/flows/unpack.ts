import { type Flow, flow, unrecoverable } from "flotilla";
import { z } from "zod";
import { digestOfTree } from "../disk/digest.ts";
import { publishFolder, remove } from "../disk/durable.ts";
import { removeLeftovers, temporaryPath } from "../disk/temporary.ts";
import { type Home, queueLimits } from "../home.ts";
import { digest } from "../registry/manifest.ts";
import { isTree } from "../store/tree.ts";
import { unpackLayers } from "../tar/unpack.ts";
import { type FlowsOptions, interceptorsOf } from "./options.ts";

export const unpackInput = z.object({
  imageId: z.string().regex(/^[0-9a-f]{32}$/),
  /** The lowest first. They are here already. */
  layers: z.array(digest).min(1),
});
type Input = z.infer<typeof unpackInput>;

export const tree = z.object({
  imageId: z.string(),
  tree: digest,
  entries: z.number(),
  bytes: z.number(),
});
type Tree = z.infer<typeof tree>;

/** Unpacks the layers of an image over each other. */
export function unpackFlow(
  { places, metadata, guard, limits }: Home,
  options: FlowsOptions,
): Flow<Input, Input, Tree> {
  return flow("unpack", {
    version: 1,
    input: unpackInput,
    output: tree,
    queue: { name: "unpacking", limit: queueLimits.unpacking },
    interceptors: interceptorsOf(options),
    backoff: { baseMs: 200, maxMs: 10_000 },
  })
    .to("check", { attempts: 3 }, async ({ input: { imageId }, signal, handoff }) => {
      const row = metadata.tree(imageId);
      if (!row || !(await isTree(places.image(imageId), row.tree, signal))) return;
      return handoff({ ...row });
    })
    .to("extract", { attempts: 3, timeoutMs: 30 * 60_000 }, async (context) => {
      const { input, runId, token, signal, progress } = context;
      const target = places.image(input.imageId);
      const extract = async () => {
        await removeLeftovers(target, runId);
        const folder = temporaryPath(target, { runId, token }, "tree");
        const used = await unpackLayers(input.layers.map(places.blob), folder, {
          limits,
          signal,
          onLayer: (layers) => progress({ layers, of: input.layers.length }),
        });
        const made = await digestOfTree(folder, signal);
        // Another run may have been faster; then its tree stays, since others may be reading it.
        if (await isTree(target, made, signal)) await remove(folder);
        else await publishFolder(folder, target, temporaryPath(target, { runId, token }, "old"));
        return { imageId: input.imageId, tree: made, ...used };
      };
      return guard.run("unpack", input.imageId, extract, signal);
    })
    .to("verify", { attempts: 2 }, async ({ input, state, signal }) => {
      if (await isTree(places.image(input.imageId), state.tree, signal)) return;
      throw unrecoverable(`the tree of ${input.imageId} isn't what was unpacked`);
    })
    .to("store", { attempts: 5 }, ({ state: { imageId, tree, entries, bytes } }) => {
      metadata.putTree({ imageId, tree, entries, bytes });
    })
    .finally("tidy", async ({ input: { imageId }, runId, outcome }) => {
      await removeLeftovers(places.image(imageId), runId);
      if (outcome.type === "completed" || metadata.tree(imageId)) return;
      await remove(places.image(imageId));
    })
    .end();
}
