import { lstat, open, readFile, statfs } from "node:fs/promises";
import { makeFolder, publish, unless } from "../disk/durable.ts";
import type { Places } from "../store/places.ts";

/** What is wrong with the pool; nothing, if it can be used. */
export type PoolState = { readonly problems: readonly string[]; readonly freeBytes: number };

/** The folders that everything lives in. It makes them, looks after them, and makes them again. */
export type PoolManager = {
  /** Makes what is missing. Gives what that was. */
  readonly ensure: () => Promise<readonly string[]>;
  readonly state: () => Promise<PoolState>;
};

export type PoolOptions = {
  /** Below this much free space nothing new is begun. */
  readonly freeBytesLeast?: number;
};

/** A pool of another layout is another program's, and is left alone. */
const layout = JSON.stringify({ layout: 1 });

export function createPool(
  places: Places,
  { freeBytesLeast = 64 * 1024 * 1024 }: PoolOptions = {},
): PoolManager {
  const folders = [places.home, places.blobs, places.images, places.snapshots];
  const markerProblem = async (): Promise<string | undefined> => {
    const found = await readFile(places.marker, "utf8").catch(unless("ENOENT"));
    if (found === undefined) return "the pool has no marker";
    return found === layout ? undefined : "the pool has another layout";
  };
  return {
    async ensure() {
      const made: string[] = [];
      for (const folder of folders) {
        if (await lstat(folder).catch(unless("ENOENT"))) continue;
        await makeFolder(folder);
        made.push(folder);
      }
      if ((await markerProblem()) === "the pool has no marker") {
        await writeWhole(places.marker, layout);
        made.push(places.marker);
      }
      return made;
    },

    async state() {
      const problems: string[] = [];
      const devices = new Set<number>();
      for (const folder of folders) {
        const found = await lstat(folder).catch(unless("ENOENT"));
        if (!found?.isDirectory()) problems.push(`${folder} isn't a folder`);
        else devices.add(found.dev);
      }
      // Neither renames nor links cross from one file system to another.
      if (devices.size > 1) problems.push("the pool lies on several file systems");
      if (problems.length > 0) return { problems, freeBytes: 0 };
      const marker = await markerProblem();
      if (marker !== undefined) problems.push(marker);
      const { bavail, bsize } = await statfs(places.home);
      const freeBytes = bavail * bsize;
      if (freeBytes < freeBytesLeast) problems.push(`only ${freeBytes} bytes are free`);
      return { problems, freeBytes };
    },
  };
}

/** Writes a line where it always does, all the way to the disk: what is full or read-only shows here. */
export async function probe(places: Places): Promise<void> {
  await writeSynced(places.probe, "can be written to\n");
}

/** There with all of its content, or not there. */
async function writeWhole(path: string, text: string): Promise<void> {
  await writeSynced(`${path}.new`, text);
  // Where another process was faster, it has written the same.
  await publish(`${path}.new`, path).catch(unless("ENOENT"));
}

async function writeSynced(path: string, text: string): Promise<void> {
  const file = await open(path, "w");
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
