import { lstat, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { type Digest, digestOfFile, digestOfTree, isDigest } from "../disk/digest.ts";
import { unless } from "../disk/durable.ts";
import { parseTemporary } from "../disk/temporary.ts";
import type { Metadata, RowKind } from "./metadata.ts";
import type { Places } from "./places.ts";

/** Something that is there and shouldn't be, or the other way round. */
export type Orphan =
  /** A file or folder that no row knows: the crash was between the two. */
  | { readonly kind: "unknown_blob" | "unknown_image" | "unknown_snapshot"; readonly path: string }
  /** A run has left it, and won't come back for it. */
  | { readonly kind: "leftover"; readonly path: string; readonly runId: string }
  /** Nothing of ours has such a name. */
  | { readonly kind: "stranger"; readonly path: string }
  /** A row whose file isn't there, or is another. */
  | {
      readonly kind: "missing" | "damaged";
      readonly path: string;
      readonly rows: RowKind;
      readonly id: string;
    }
  /** A name that leads to a snapshot that no row knows. */
  | { readonly kind: "dangling"; readonly rows: "images"; readonly id: string };

export type ReconcileOptions = {
  /** Whether a run may still come back for what it has left. Default: none does. */
  readonly isLive?: (runId: string) => boolean | Promise<boolean>;
  /** Whether to read everything, or only to see that it is there. Default: read. */
  readonly isContentRead?: boolean;
};

type Known = {
  readonly path: string;
  readonly rows: RowKind;
  readonly id: string;
  readonly digest: Digest;
};

/**
 * Compares what is on disk with what the metadata says, and reports. It changes nothing. While runs are
 * under way, what they have finished and not yet noted is reported too.
 */
export async function reconcile(
  places: Places,
  metadata: Metadata,
  { isLive = () => false, isContentRead = true }: ReconcileOptions = {},
): Promise<Orphan[]> {
  const rows = metadata.all();
  const blobs = rows.blobs.map(({ digest }) => known("blobs", digest, places.blob(digest), digest));
  const trees = rows.trees.map(({ imageId, tree }) =>
    known("trees", imageId, places.image(imageId), tree),
  );
  const snapshots = rows.snapshots.map(({ snapshotId, tree }) =>
    known("snapshots", snapshotId, places.snapshot(snapshotId), tree),
  );
  const orphans: Orphan[] = [];
  for (const each of [...blobs, ...trees, ...snapshots]) {
    const problem = await problemOf(each, isContentRead);
    if (problem) orphans.push({ kind: problem, path: each.path, rows: each.rows, id: each.id });
  }
  for (const { reference, snapshotId } of rows.images) {
    if (rows.snapshots.some((row) => row.snapshotId === snapshotId)) continue;
    orphans.push({ kind: "dangling", rows: "images", id: reference });
  }
  const folders = [
    [places.blobs, blobs, "unknown_blob", (name: string) => isDigest(`sha256:${name}`)],
    [places.images, trees, "unknown_image", isId],
    [places.snapshots, snapshots, "unknown_snapshot", isId],
  ] as const;
  for (const [folder, expected, kind, isOurs] of folders) {
    const paths = new Set(expected.map(({ path }) => path));
    const names = (await readdir(folder).catch(unless("ENOENT"))) ?? [];
    for (const name of names.toSorted()) {
      const path = join(folder, name);
      if (paths.has(path)) continue;
      const runId = parseTemporary(path)?.runId;
      if (runId === undefined) orphans.push({ kind: isOurs(name) ? kind : "stranger", path });
      else if (!(await isLive(runId))) orphans.push({ kind: "leftover", path, runId });
    }
  }
  return orphans;
}

/** Deletes what is of no use to anybody. What nobody of ours has made stays, and so does what is known. */
export async function sweep(orphans: readonly Orphan[], metadata: Metadata): Promise<number> {
  let swept = 0;
  for (const orphan of orphans) {
    if (orphan.kind === "stranger") continue;
    // The row goes first: a file without a row is found again, a row without a file is a lie.
    if ("rows" in orphan) metadata.forget(orphan.rows, orphan.id);
    if ("path" in orphan) await rm(orphan.path, { recursive: true, force: true });
    swept++;
  }
  return swept;
}

function known(rows: RowKind, id: string, path: string, digest: Digest): Known {
  return { rows, id, path, digest };
}

const isId = (name: string) => /^[0-9a-f]{32}$/.test(name);

async function problemOf(
  { path, rows, digest }: Known,
  isContentRead: boolean,
): Promise<"missing" | "damaged" | undefined> {
  const found = await lstat(path).catch(unless("ENOENT"));
  if (!found) return "missing";
  const isBlob = rows === "blobs";
  if (isBlob ? !found.isFile() : !found.isDirectory()) return "damaged";
  if (!isContentRead) return undefined;
  const read = await (isBlob ? digestOfFile(path) : digestOfTree(path));
  return read === digest ? undefined : "damaged";
}
