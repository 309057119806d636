import type { ImageLimits } from "../limits.ts";
import { layerChecker, type Used } from "./check.ts";
import { tarEntries } from "./entries.ts";

/** Reads a packed layer to its end and refuses it or not, before any of it is written. */
export async function inspectLayer(
  path: string,
  limits: ImageLimits,
  signal?: AbortSignal,
): Promise<Used> {
  const used = { entries: 0, bytes: 0 };
  const check = layerChecker(limits, used);
  for await (const entry of tarEntries(path, limits, signal)) check(entry);
  return used;
}
