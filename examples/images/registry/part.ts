import { copyFile, readFile, rm, stat, writeFile } from "node:fs/promises";
import { constants } from "node:fs";
import { unless } from "../disk/durable.ts";
import { leftovers, temporaryPath, type Writer } from "../disk/temporary.ts";

/** The beginning of a download, and the tag of what it is the beginning of. */
export type Part = {
  readonly path: string;
  readonly bytes: number;
  /** Null where it isn't known, and then there is nothing to go on with. */
  readonly etag: string | null;
};

export async function findPart(target: string, writer: Writer): Promise<Part> {
  await takeOver(target, writer);
  const path = temporaryPath(target, writer, "part");
  const etag = await readFile(temporaryPath(target, writer, "etag"), "utf8").catch(
    unless("ENOENT"),
  );
  const bytes = (await stat(path).catch(unless("ENOENT")))?.size ?? 0;
  return { path, bytes, etag: etag || null };
}

export async function noteEtag(target: string, writer: Writer, etag: string | null): Promise<void> {
  await writeFile(temporaryPath(target, writer, "etag"), etag ?? "");
}

/**
 * Goes on with what an earlier claim of this run has left, by copying: whoever had that claim may not
 * know yet that it is gone, and would write into what is ours. A copy that a crash cuts short is the
 * beginning of a download as well.
 */
async function takeOver(target: string, writer: Writer): Promise<void> {
  const found = await leftovers(target, writer.runId);
  if (found.some(({ token, use }) => token === writer.token && use === "etag")) return;
  const earlier = found.filter(({ token }) => token < writer.token);
  // One without a tag was itself being copied when its pod died, and what it was copied from is there.
  const etag = earlier.find(({ use }) => use === "etag");
  const newest = earlier.find(({ use, token }) => use === "part" && token === etag?.token);
  if (newest && etag) {
    const reflink = constants.COPYFILE_FICLONE;
    const part = temporaryPath(target, writer, "part");
    await copyFile(newest.path, part, reflink).catch(unless("ENOENT"));
    // The tag comes last: with it, what is there counts.
    const tag = temporaryPath(target, writer, "etag");
    await copyFile(etag.path, tag).catch(unless("ENOENT"));
  }
  for (const { path } of earlier) await rm(path, { force: true });
}
