import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const programs = join(root, "node_modules", ".bin");

/** Builds and packs what would be published, away from the checkout, and gives the tarball's path. */
export function packTarball(folder: string): string {
  const source = join(folder, "source");
  mkdirSync(source);
  const { files } = manifestOf(root);
  for (const name of ["package.json", ...files.filter((each) => each !== "dist")]) {
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
  const target = join(project, "node_modules", "flotilla");
  mkdirSync(target, { recursive: true });
  run("tar", ["-xzf", tarball, "-C", target, "--strip-components=1"], project);
  const { dependencies } = manifestOf(target);
  for (const name of new Set([...Object.keys(dependencies), ...beside])) link(project, name);
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

function manifestOf(folder: string) {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
    files: string[];
    dependencies: Record<string, string>;
  };
}
