import { constants } from "node:fs";
import {
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  readdir,
  readlink,
  rm,
  symlink,
} from "node:fs/promises";
import { join } from "node:path";
import { codeOf, syncFolders } from "../disk/durable.ts";

/**
 * `reflink`: files share their blocks until one is written to. `hardlink`: they are the same files, so
 * whatever runs on a snapshot must not write to them. `copy` is for tests and for other file systems.
 */
export type SnapshotKind = "reflink" | "hardlink" | "copy";

/** Says that this file system can't do it that way. */
const unable = ["ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EINVAL", "ENOTTY", "EPERM", "EMLINK"];

/** The same tree again at `target`, which is empty at the beginning, whatever was there. */
export async function snapshotTree(
  source: string,
  target: string,
  { kinds = ["reflink", "hardlink", "copy"], signal }: SnapshotOptions = {},
): Promise<SnapshotKind> {
  await rm(target, { recursive: true, force: true });
  let [kind, ...others] = kinds;
  const file = async (from: string, to: string): Promise<void> => {
    try {
      await makeFile[kind!](from, to);
    } catch (thrown) {
      if (others.length === 0 || !unable.includes(codeOf(thrown))) throw thrown;
      [kind, ...others] = others;
      await rm(to, { force: true });
      await file(from, to);
    }
  };
  const folder = async (from: string, to: string): Promise<void> => {
    await mkdir(to);
    for (const entry of await readdir(from, { withFileTypes: true })) {
      signal?.throwIfAborted();
      const [inner, copy] = [join(from, entry.name), join(to, entry.name)];
      if (entry.isDirectory()) await folder(inner, copy);
      else if (entry.isSymbolicLink()) await symlink(await readlink(inner), copy);
      else if (entry.isFile()) await file(inner, copy);
      else throw new Error(`"${inner}" is neither a file nor a folder nor a link`);
    }
    // Last, since it may take away the right to write.
    await chmod(to, (await lstat(from)).mode & 0o7777);
  };
  await folder(source, target);
  await syncFolders(target);
  return kind!;
}

export type SnapshotOptions = {
  /** What to try, in this order. */
  readonly kinds?: readonly SnapshotKind[];
  readonly signal?: AbortSignal;
};

const makeFile: Record<SnapshotKind, (from: string, to: string) => Promise<void>> = {
  reflink: (from, to) => copyFile(from, to, constants.COPYFILE_FICLONE_FORCE),
  hardlink: (from, to) => link(from, to),
  copy: (from, to) => copyFile(from, to, constants.COPYFILE_EXCL),
};
