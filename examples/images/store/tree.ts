import { lstat } from "node:fs/promises";
import { type Digest, digestOfTree } from "../disk/digest.ts";
import { unless } from "../disk/durable.ts";

/** Whether there is a folder, and it is just this tree. */
export async function isTree(path: string, tree: Digest, signal?: AbortSignal): Promise<boolean> {
  const found = await lstat(path).catch(unless("ENOENT"));
  if (!found?.isDirectory()) return false;
  try {
    return (await digestOfTree(path, signal)) === tree;
  } catch (thrown) {
    // It was replaced while it was read.
    unless("ENOENT")(thrown);
    return false;
  }
}
