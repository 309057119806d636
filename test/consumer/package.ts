import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { writeWhole } from "../../build/bundle.ts";
import { soleOwner } from "../sole-owner.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const programs = join(root, "node_modules", ".bin");

const kept = join(root, "node_modules", ".cache", "packed");

/**
 * Packs what would be published, and gives the tarball's path. Tests whose sources are the same have the
 * same tarball: the first that needs it makes it.
 */
export async function packTarball(folder: string): Promise<string> {
  const name = `${hashOfSources()}.tgz`;
  const same = join(kept, name);
  const tarball = join(folder, "flotilla.tgz");
  mkdirSync(kept, { recursive: true });
  using packing = await soleOwner(`${same}.lock`, () => existsSync(same));
  if (!packing.owned) {
    copyFileSync(same, tarball);
    return tarball;
  }
  renameSync(pack(folder), tarball);
  for (const each of readdirSync(kept))
    if (each.endsWith(".tgz") && each !== name) rmSync(join(kept, each), { force: true });
  writeWhole(same, readFileSync(tarball));
  return tarball;
}

function hashOfSources(): string {
  const hash = createHash("sha256");
  const made = ["package.json", "package-lock.json", "tsconfig.base.json", "tsconfig.build.json"];
  const all = [...made, "build/**", "src/**", ...publishedIn(root).map((each) => `${each}/**`)];
  const paths = globSync([...all, "*.md"], { cwd: root, exclude: ["dist/**"], withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name));
  for (const path of new Set(paths.toSorted())) hash.update(path).update(readFileSync(path));
  return hash.digest("hex").slice(0, 16);
}

/** Builds and packs, away from the checkout. */
function pack(folder: string): string {
  const source = join(folder, "source");
  mkdirSync(source);
  for (const name of ["package.json", ...publishedIn(root)]) {
    if (name === "dist") continue;
    cpSync(join(root, name), join(source, name), { recursive: true });
  }
  const dist = join(source, "dist");
  run(process.execPath, [join(root, "build", "run.ts"), dist], root);
  run(join(programs, "tsc"), ["-p", join(root, "tsconfig.build.json"), "--outDir", dist], root);
  run("npm", ["pack", "--offline", "--silent", "--pack-destination", folder], source);
  return join(
    folder,
    readdirSync(folder).find((name) => name.endsWith(".tgz"))!,
  );
}

/**
 * Installs a tarball as npm would, but without a registry: what it depends on is linked to what is
 * installed here. Only that is linked, so that whatever it doesn't say it needs is missed.
 */
export function installTarball(tarball: string, project: string, beside: readonly string[]): void {
  const { dependencies } = manifestOf(unpackTarball(tarball, project));
  for (const name of new Set([...Object.keys(dependencies), ...beside])) link(project, name);
}

/** Puts the package where a project finds it, without anything that it depends on. */
export function unpackTarball(tarball: string, project: string): string {
  const target = join(project, "node_modules", "flotilla");
  mkdirSync(target, { recursive: true });
  run("tar", ["-xzf", tarball, "-C", target, "--strip-components=1"], project);
  return target;
}

/** Has a project find a package here, or another that is to be there in its place. */
export function link(project: string, name: string, other = name): void {
  const path = join(project, "node_modules", name);
  mkdirSync(dirname(path), { recursive: true });
  rmSync(path, { force: true });
  symlinkSync(join(root, "node_modules", other), path);
}

export function compile(project: string): void {
  run(join(programs, "tsc"), ["-p", project], project);
}

/** A compiler says what is wrong on standard output, so that is part of the failure. */
function run(program: string, args: readonly string[], cwd: string): void {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: "utf8" });
  if (status !== 0) {
    throw new Error(`${program} failed: ${error?.message ?? ""}\n${stdout}\n${stderr}`);
  }
}

/** The files and folders that are published, as far as what is in them isn't left out. */
function publishedIn(folder: string): string[] {
  return manifestOf(folder).files.filter((each) => !each.startsWith("!"));
}

function manifestOf(folder: string) {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
    files: string[];
    dependencies: Record<string, string>;
  };
}
