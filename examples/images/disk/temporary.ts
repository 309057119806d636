import { readdir, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { unless } from "./durable.ts";

/**
 * Who writes. A pod that was thought dead may still be writing when another has claimed its run, so
 * each claim writes to names of its own, beside the target: only there a rename is atomic.
 */
export type Writer = { readonly runId: string; readonly token: number };

const pattern = /^(?<target>.+)~(?<runId>[^~]+)~(?<token>\d+)~(?<use>[a-z]+)$/;

/** Where something is made that will be renamed to `target`, or put when it leaves it. */
export function temporaryPath(target: string, { runId, token }: Writer, use: string): string {
  return join(dirname(target), `${basename(target)}~${runId}~${token}~${use}`);
}

export type Temporary = Writer & {
  readonly path: string;
  readonly target: string;
  readonly use: string;
};

export function parseTemporary(path: string): Temporary | undefined {
  const found = pattern.exec(basename(path))?.groups;
  if (!found) return undefined;
  return {
    path,
    target: join(dirname(path), found["target"]!),
    runId: found["runId"]!,
    token: Number(found["token"]),
    use: found["use"]!,
  };
}

/** What this run has left beside the target, under any of its claims, the newest first. */
export async function leftovers(target: string, runId: string): Promise<Temporary[]> {
  const folder = dirname(target);
  const names = (await readdir(folder).catch(unless("ENOENT"))) ?? [];
  return names
    .map((name) => parseTemporary(join(folder, name)))
    .filter((found) => found?.target === target && found.runId === runId)
    .map((found) => found!)
    .toSorted((a, b) => b.token - a.token);
}

/** Deletes what this run has left there, under any of its claims. */
export async function removeLeftovers(target: string, runId: string): Promise<void> {
  for (const { path } of await leftovers(target, runId)) {
    await rm(path, { recursive: true, force: true });
  }
}
