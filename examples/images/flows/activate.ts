import { type Flow, flow } from "flotilla";
import { z } from "zod";
import { publishFolder, remove } from "../disk/durable.ts";
import { removeLeftovers, temporaryPath } from "../disk/temporary.ts";
import type { Home } from "../home.ts";
import { digest } from "../registry/manifest.ts";
import { snapshotIdOf } from "../store/places.ts";
import { snapshotTree } from "../store/snapshot.ts";
import { isTree } from "../store/tree.ts";
import { type FlowsOptions, interceptorsOf } from "./options.ts";

export const activateInput = z.object({
  reference: z.string(),
  imageId: z.string().regex(/^[0-9a-f]{32}$/),
  tree: digest,
});
type Input = z.infer<typeof activateInput>;

export const snapshot = z.object({ snapshotId: z.string() });
type Snapshot = z.infer<typeof snapshot>;

/** Gives a name a snapshot of an unpacked image, and registers both. */
export function activateFlow(
  { places, metadata, guard }: Home,
  options: FlowsOptions,
): Flow<Input, Input, Snapshot> {
  const idOf = ({ reference, imageId }: Input) => snapshotIdOf(reference, imageId);
  return flow("activate", {
    version: 1,
    input: activateInput,
    output: snapshot,
    interceptors: interceptorsOf(options),
    backoff: { baseMs: 200, maxMs: 10_000 },
  })
    .to("check", { attempts: 3 }, async ({ input, signal, handoff }) => {
      const snapshotId = idOf(input);
      const isKnown = metadata.snapshot(snapshotId)?.tree === input.tree;
      const isNamed = metadata.image(input.reference)?.snapshotId === snapshotId;
      if (!isKnown || !isNamed) return;
      if (!(await isTree(places.snapshot(snapshotId), input.tree, signal))) return;
      return handoff({ snapshotId });
    })
    .to("snapshot", { attempts: 3 }, async ({ input, runId, token, signal }) => {
      const snapshotId = idOf(input);
      const target = places.snapshot(snapshotId);
      const make = async () => {
        await removeLeftovers(target, runId);
        const folder = temporaryPath(target, { runId, token }, "tree");
        await snapshotTree(places.image(input.imageId), folder, { signal });
        if (!(await isTree(folder, input.tree, signal))) {
          throw new Error(`the tree of ${input.imageId} isn't what was unpacked`);
        }
        if (await isTree(target, input.tree, signal)) await remove(folder);
        else await publishFolder(folder, target, temporaryPath(target, { runId, token }, "old"));
      };
      await guard.run("activate", snapshotId, make, signal);
      return { snapshotId };
    })
    .to("register", { attempts: 5 }, ({ input, state: { snapshotId } }) => {
      const { reference, imageId, tree } = input;
      metadata.register({ snapshotId, imageId, tree }, { reference, imageId, snapshotId });
    })
    .finally("tidy", async ({ input, runId, outcome }) => {
      const target = places.snapshot(idOf(input));
      await removeLeftovers(target, runId);
      if (outcome.type === "completed" || metadata.snapshot(idOf(input))) return;
      await remove(target);
    })
    .end();
}
