import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, readdir, readlink } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";

export type Digest = `sha256:${string}`;

const pattern = /^sha256:[0-9a-f]{64}$/;

/** Digests become file names, so they are never believed. */
export function isDigest(value: unknown): value is Digest {
  return typeof value === "string" && pattern.test(value);
}

export function hexOf(digest: Digest): string {
  return digest.slice("sha256:".length);
}

export function digestOf(content: string | Uint8Array): Digest {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

export async function digestOfFile(path: string, signal?: AbortSignal): Promise<Digest> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash, { ...(signal && { signal }) });
  return `sha256:${hash.digest("hex")}`;
}

/** One line for each thing in a folder: kind, rights, and what is in it. Times are left out. */
export async function listTree(root: string, signal?: AbortSignal): Promise<string[]> {
  const lines: string[] = [];
  const visit = async (folder: string): Promise<void> => {
    for (const name of (await readdir(join(root, folder))).toSorted()) {
      signal?.throwIfAborted();
      const path = folder === "" ? name : `${folder}/${name}`;
      const found = await lstat(join(root, path));
      const rights = (found.mode & 0o7777).toString(8);
      if (found.isDirectory()) {
        lines.push(`folder ${rights} ${path}`);
        await visit(path);
      } else if (found.isSymbolicLink()) {
        lines.push(`link ${path} -> ${await readlink(join(root, path))}`);
      } else if (found.isFile()) {
        lines.push(`file ${rights} ${path} ${await digestOfFile(join(root, path), signal)}`);
      } else {
        lines.push(`other ${path}`);
      }
    }
  };
  await visit("");
  return lines;
}

/** What tells one tree from another. */
export async function digestOfTree(root: string, signal?: AbortSignal): Promise<Digest> {
  return digestOf((await listTree(root, signal)).join("\n"));
}
