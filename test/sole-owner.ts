import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import process from "node:process";

const lookEveryMs = 100;
const ownedMostMs = 300_000;

/**
 * Files of tests begin at the same time, and what several need may take longer to make than most of what
 * they do with it. So one of their processes owns the work, by a file with its number, and the others wait
 * until the work is done or its owner is gone.
 */
export async function soleOwner(
  path: string,
  isDone: () => boolean,
): Promise<Disposable & { owned: boolean }> {
  while (!isDone()) {
    try {
      writeFileSync(path, String(process.pid), { flag: "wx" });
      return { owned: true, [Symbol.dispose]: () => rmSync(path, { force: true }) };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    if (isAbandoned(path)) rmSync(path, { force: true });
    await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
  }
  return { owned: false, [Symbol.dispose]: () => {} };
}

function isAbandoned(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found) return false;
  if (Date.now() - found.mtimeMs > ownedMostMs) return true;
  try {
    // A process that has just made the file hasn't written its number yet.
    process.kill(Number(readFileSync(path, "utf8")) || process.pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}
