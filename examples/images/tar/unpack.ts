import { mkdir, rm } from "node:fs/promises";
import { syncFolders } from "../disk/durable.ts";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";
import { applyLayer } from "./apply.ts";
import type { Used } from "./check.ts";

export type UnpackOptions = {
  readonly limits: ImageLimits;
  readonly signal?: AbortSignal;
  /** Told after each layer. */
  readonly onLayer?: (done: number) => void;
};

/** Unpacks layers over each other, into a folder that is empty at the beginning, whatever was there. */
export async function unpackLayers(
  layers: readonly string[],
  folder: string,
  { limits, signal, onLayer }: UnpackOptions,
): Promise<Used> {
  if (layers.length > limits.layers) {
    throw new Refused("too_many", `the image has more than ${limits.layers} layers`);
  }
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { mode: 0o755, recursive: true });
  const used = { entries: 0, bytes: 0 };
  for (const [at, layer] of layers.entries()) {
    await applyLayer(layer, folder, { limits, used, ...(signal && { signal }) });
    onLayer?.(at + 1);
  }
  await syncFolders(folder);
  return used;
}
