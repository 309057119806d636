import { constants } from "node:fs";
import { chmod, link, lstat, mkdir, open, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import type { ReadEntry } from "tar";
import { unless } from "../disk/durable.ts";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";
import { layerChecker, type Planned, type Used } from "./check.ts";
import { tarEntries } from "./entries.ts";
import { hideLower } from "./whiteout.ts";

/** Nobody else may write, nothing runs as somebody else, and we can always read and delete it. */
const folderRights = (mode: number) => (mode & 0o755) | 0o700;
const fileRights = (mode: number) => (mode & 0o755) | 0o600;

/** Unpacks one layer over what lower layers left in `root`, which nobody else writes to. */
export async function applyLayer(
  path: string,
  root: string,
  { limits, used, signal }: { limits: ImageLimits; used: Used; signal?: AbortSignal },
): Promise<void> {
  const check = layerChecker(limits, used);
  // Whiteouts hide what lower layers had and nothing of this one, wherever in it they stand.
  const own = new Set<string>();
  for await (const entry of tarEntries(path, limits, signal)) {
    const planned = check(entry);
    const isWhiteout = planned.kind === "whiteout" || planned.kind === "opaque";
    const parents = await checkParents(root, planned.parts, { areMade: !isWhiteout });
    if (!isWhiteout) {
      for (const each of [...parents, planned.parts.join("/")]) own.add(each);
    }
    await put(root, planned, entry, own);
  }
}

async function put(
  root: string,
  planned: Planned,
  entry: ReadEntry,
  own: ReadonlySet<string>,
): Promise<void> {
  const path = join(root, ...planned.parts);
  switch (planned.kind) {
    case "folder": {
      const found = await kindAt(path);
      if (found !== "folder" && found !== undefined) await rm(path);
      if (found !== "folder") await mkdir(path);
      return chmod(path, folderRights(planned.mode));
    }
    case "file":
      await rm(path, { recursive: true, force: true });
      return writeFile(path, planned, entry);
    case "symlink":
      await rm(path, { recursive: true, force: true });
      return symlink(planned.target, path);
    case "hardlink": {
      const target = join(root, ...planned.target);
      await checkParents(root, planned.target, { areMade: false });
      if (target === path || (await kindAt(target)) !== "file") {
        throw new Refused("escape", `"${entry.path}" links to what isn't a file of the image`);
      }
      await rm(path, { recursive: true, force: true });
      return link(target, path);
    }
    case "whiteout":
    case "opaque":
      return hideLower(root, planned.parts.join("/"), own, planned.kind === "opaque");
  }
}

async function writeFile(
  path: string,
  { bytes, mode }: Planned & { kind: "file" },
  entry: ReadEntry,
): Promise<void> {
  // It fails if there is anything, also a link that leads to nothing.
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const file = await open(path, flags, fileRights(mode));
  try {
    let written = 0;
    for await (const chunk of entry as AsyncIterable<Buffer>) {
      written += chunk.length;
      await file.writeFile(chunk);
    }
    if (written !== bytes) throw new Refused("bad_archive", `"${entry.path}" was cut`);
    await file.chmod(fileRights(mode));
    await file.sync();
  } finally {
    await file.close();
  }
}

/**
 * Every folder above is a real one: nothing is written through a link, whichever layer has made it.
 * Gives the paths above.
 */
async function checkParents(
  root: string,
  parts: readonly string[],
  { areMade }: { areMade: boolean },
): Promise<string[]> {
  const paths = parts.slice(0, -1).map((_, at) => parts.slice(0, at + 1).join("/"));
  for (const path of paths) {
    const found = await kindAt(join(root, path));
    if (found === "folder") continue;
    if (found !== undefined) {
      throw new Refused("through_link", `"${parts.join("/")}" lies behind "${path}", a ${found}`);
    }
    if (!areMade) return paths;
    await mkdir(join(root, path), { mode: 0o755 });
  }
  return paths;
}

async function kindAt(path: string): Promise<"folder" | "file" | "link" | undefined> {
  const found = await lstat(path).catch(unless("ENOENT"));
  if (!found) return undefined;
  return found.isDirectory() ? "folder" : found.isFile() ? "file" : "link";
}
