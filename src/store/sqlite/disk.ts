import { statfsSync } from "node:fs";

/** What is left on the disk that holds a folder, or undefined where there is no such folder. */
export function freeBytes(folder: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}
