import { globSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { bundle, writeWhole } from "../build/bundle.ts";
import { packageEntries, root } from "../build/entries.ts";
import { built } from "./built.ts";

const dayMs = 86_400_000;
// Every process loads these, in dozens of small files, which is a fourth of what its start takes.
const inline = ["@opentelemetry/api", "pino"];

/** Makes what `built` points at. Runs may do so at the same time, and none sees half of anything. */
export async function makeBuild(): Promise<void> {
  const programs = globSync("test/**/*-process.ts", { cwd: root });
  const entries = programs.map((path) => [path.replace(/\.ts$/, ""), path]);
  const copied = globSync("examples/**", { cwd: root, withFileTypes: true })
    .filter((file) => file.isFile())
    .map((file) => join(file.parentPath, file.name).slice(root.length));
  for (const path of ["package.json", ...copied]) {
    writeWhole(join(built.folder, path), readFileSync(join(root, path)));
  }
  const dist = join(built.folder, "dist");
  await bundle({ ...packageEntries(), ...Object.fromEntries(entries) }, dist, { inline });
  removeOld(dist);
}

/** What no build has written for a day, no process is going to load any more. */
function removeOld(folder: string): void {
  const nowMs = Date.now();
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const found = statSync(path, { throwIfNoEntry: false });
    if (found?.isFile() && nowMs - found.mtimeMs > dayMs) rmSync(path, { force: true });
  }
}
