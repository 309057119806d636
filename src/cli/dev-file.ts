import { mkdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { systemClock } from "../base/clock.ts";

/**
 * A running `flotilla dev` announces itself in a file of its working folder, so that commands which are run
 * there use its store and its config, also where it was started with flags.
 */
export type RunningDev = {
  readonly pid: number;
  readonly url: string;
  /** Missing where the config has a store that isn't a URL. */
  readonly store?: string;
  readonly config?: string;
};

const file = join(".flotilla", "dev.json");
const answerTimeoutMs = 1_000;

/** Returns what takes the announcement back. A folder that can't be written only has no announcement. */
export function announceDev(dev: RunningDev): () => void {
  const path = join(process.cwd(), file);
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const written = `${path}.${dev.pid}`;
    // The URL of the store may have a password.
    writeFileSync(written, JSON.stringify(dev), { mode: 0o600 });
    renameSync(written, path);
  } catch {
    return () => {};
  }
  return () => {
    try {
      if (read(path)?.pid !== dev.pid) return;
      rmSync(path);
      rmdirSync(dirname(path));
    } catch {
      // Other files are in the folder, or another process has removed it.
    }
  };
}

let finding: Promise<RunningDev | undefined> | undefined;

/** The `flotilla dev` that runs in this folder. One that was killed left its file: it doesn't count. */
export function findDev(): Promise<RunningDev | undefined> {
  return (finding ??= findOnce());
}

async function findOnce(): Promise<RunningDev | undefined> {
  const dev = read(join(process.cwd(), file));
  if (!dev || !isAlive(dev.pid)) return undefined;
  const { network } = await import("../throttles/fetch.ts");
  const late = new AbortController();
  const cancel = systemClock.after(answerTimeoutMs, () => late.abort());
  try {
    // Another process may have its id by now, but hardly its port as well.
    const { ok } = await network(`${dev.url}/health/live`, { signal: late.signal });
    return ok ? dev : undefined;
  } catch {
    return undefined;
  } finally {
    cancel();
  }
}

function read(path: string): RunningDev | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as RunningDev;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
