import { mkdirSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

// What Linux calls tmpfs and ramfs. A flush costs nothing there, so a figure would mean nothing.
const inMemory = [0x01021994, 0x858458f6];

/** A place for temporary files that is on a real disk. */
export function diskFolder(): string {
  const beside = fileURLToPath(new URL("../node_modules/.cache/", import.meta.url));
  const parent = [tmpdir(), beside].find((path) => {
    mkdirSync(path, { recursive: true });
    return !inMemory.includes(statfsSync(path).type);
  });
  if (parent === undefined) {
    throw new Error(
      `neither ${tmpdir()} nor ${beside} is on a disk: set TMPDIR to a folder that is`,
    );
  }
  return parent;
}

/** A folder on a real disk that is gone when the process ends, however it ends by itself. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(diskFolder(), "flotilla-bench-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
