import { stat } from "node:fs/promises";
import { type Flow, flow } from "flotilla";
import { z } from "zod";
import { remove } from "../disk/durable.ts";
import { removeLeftovers, type Writer } from "../disk/temporary.ts";
import { type Home, queueLimits } from "../home.ts";
import { digest } from "../registry/manifest.ts";
import { download, isThere } from "../registry/download.ts";
import { inspectLayer } from "../tar/inspect.ts";
import { type FlowsOptions, interceptorsOf } from "./options.ts";

export const downloadInput = z.object({
  repository: z.string(),
  digest,
  bytes: z.int().min(0),
});
type Input = z.infer<typeof downloadInput>;

export const blob = z.object({ digest, bytes: z.number() });
type Blob = z.infer<typeof blob>;

/** Brings one layer here. Ends at once where it is here already, and is what it should be. */
export function downloadFlow(
  { places, metadata, guard, limits }: Home,
  { registry, ...options }: FlowsOptions,
): Flow<Input, Input, Blob> {
  const fetched = (
    input: Input,
    { signal, onProgress, ...writer }: Writer & { signal: AbortSignal } & Progress,
  ) =>
    guard.run(
      "download",
      input.digest,
      () =>
        download({
          url: `${registry}/v2/${input.repository}/blobs/${input.digest}`,
          digest: input.digest,
          bytes: input.bytes,
          target: places.blob(input.digest),
          writer,
          limits,
          signal,
          ...(onProgress && { onProgress }),
        }),
      signal,
    );

  return flow("download", {
    version: 1,
    input: downloadInput,
    output: blob,
    queue: { name: "downloads", limit: queueLimits.downloads },
    interceptors: interceptorsOf(options),
    backoff: { baseMs: 200, maxMs: 10_000 },
  })
    .to("check", { attempts: 3 }, async ({ input, signal, handoff }) => {
      const row = metadata.blob(input.digest);
      if (!row || row.bytes !== input.bytes) return;
      if (!(await isThere(places.blob(input.digest), { ...input, signal }))) return;
      return handoff({ digest: input.digest, bytes: input.bytes });
    })
    .to("download", { attempts: 5, timeoutMs: 30 * 60_000 }, async (context) => {
      const { input, runId, token, signal, progress } = context;
      await fetched(input, { runId, token, signal, onProgress: (bytes) => progress({ bytes }) });
    })
    .to("validate", { attempts: 2 }, async ({ input, runId, token, signal }) => {
      // It may have been lost since, and this looks at all of it anyway.
      await fetched(input, { runId, token, signal });
      const { entries } = await inspectLayer(places.blob(input.digest), limits, signal);
      return { entries };
    })
    .to("store", { attempts: 5 }, async ({ input }) => {
      const { size } = await stat(places.blob(input.digest));
      metadata.putBlob({ digest: input.digest, bytes: size });
      return { digest: input.digest, bytes: size };
    })
    .finally("tidy", async ({ input, runId, outcome }) => {
      await removeLeftovers(places.blob(input.digest), runId);
      // What was refused, or came in vain, isn't kept. What another run has noted is.
      if (outcome.type === "completed" || metadata.blob(input.digest)) return;
      await remove(places.blob(input.digest));
    })
    .end();
}

type Progress = { readonly onProgress?: (bytes: number) => void };
