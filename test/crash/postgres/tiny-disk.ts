import { execFileSync, spawnSync } from "node:child_process";
import { chownSync, closeSync, mkdtempSync, openSync, rmSync, rmdirSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { unprivileged } from "../../postgres/user.ts";

export type TinyDisk = {
  readonly folder: string;
  /** Takes every byte that is left, so that nothing new can be written. */
  fill(): void;
  /** Gives that space back. */
  free(): void;
  /** Unmounts it, with all that it holds. */
  remove(): void;
};

/** A file system of its own of this size, which can be filled. */
export function mountTinyDisk({ megabytes }: { megabytes: number }): TinyDisk {
  if (process.getuid?.() !== 0) {
    throw new Error("this test mounts a small file system, which only root may: run it as root");
  }
  const folder = mkdtempSync(join(tmpdir(), "flotilla-disk-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", folder]);
  const owner = unprivileged();
  if (owner) chownSync(folder, owner.uid, owner.gid);
  const unmount = () => spawnSync("umount", ["--lazy", folder]);
  process.once("exit", unmount);
  const ballast = join(folder, "ballast");
  const block = Buffer.alloc(64 * 1_024);
  return {
    folder,
    fill() {
      const file = openSync(ballast, "a");
      for (let size = block.length; size >= 1;) {
        try {
          writeSync(file, block, 0, size);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
          size = Math.floor(size / 2);
        }
      }
      closeSync(file);
    },
    free: () => rmSync(ballast, { force: true }),
    remove() {
      process.off("exit", unmount);
      unmount();
      rmdirSync(folder);
    },
  };
}
