import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";

/** What a folder says of its files is on disk only when the folder itself was synced. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Every folder below this one, the deepest first, and then this one. */
export async function syncFolders(path: string): Promise<void> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await syncFolders(join(path, entry.name));
  }
  await syncFolder(path);
}

/** Gives something finished its name. It is there whole or not at all, also after a power cut. */
export async function publish(temporary: string, path: string): Promise<void> {
  await rename(temporary, path);
  await syncFolder(dirname(path));
}

/**
 * The same for a folder, which can't be renamed onto another: what is in its place is put aside under
 * `aside`, to be deleted when the new one has its name.
 */
export async function publishFolder(temporary: string, path: string, aside: string): Promise<void> {
  await rm(aside, { recursive: true, force: true });
  await rename(path, aside).catch(unless("ENOENT"));
  await publish(temporary, path);
  await rm(aside, { recursive: true, force: true });
}

/** Deletes whatever is there, and makes sure that it stays deleted. */
export async function remove(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true });
  await syncFolder(dirname(path)).catch(unless("ENOENT"));
}

export async function makeFolder(path: string): Promise<void> {
  const made = await mkdir(path, { recursive: true });
  if (made !== undefined) await syncFolder(dirname(made));
}

/** For `catch`: the one error that means that there is nothing to do. */
export function unless(...codes: string[]): (thrown: unknown) => void {
  return (thrown) => {
    if (!codes.includes(codeOf(thrown))) throw thrown;
  };
}

export function codeOf(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
}
