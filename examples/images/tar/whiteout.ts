import { lstat, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { unless } from "../disk/durable.ts";

/**
 * Deletes what lower layers have at `path` (or only below it) and leaves what `own` holds: paths of the
 * layer that is being unpacked, with all folders above them.
 */
export async function hideLower(
  root: string,
  path: string,
  own: ReadonlySet<string>,
  isOnlyBelow: boolean,
): Promise<void> {
  const found = await lstat(join(root, path)).catch(unless("ENOENT"));
  if (!found) return;
  if (!isOnlyBelow && !own.has(path)) {
    await rm(join(root, path), { recursive: true, force: true });
    return;
  }
  if (!found.isDirectory()) return;
  for (const name of await readdir(join(root, path))) {
    await hideLower(root, path === "" ? name : `${path}/${name}`, own, false);
  }
}
