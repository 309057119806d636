/**
 * Builds the dashboard. `node build/dashboard.ts` does so for a checkout, into `dist/dashboard`, if anything
 * that it is made of has changed since the last time.
 */
import { createHash } from "node:crypto";
import { existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import react from "@vitejs/plugin-react";
import { build, defaultClientConditions } from "vite";
import { dashboardFolder } from "../src/base/package-files.ts";
import { root } from "./entries.ts";

const dashboardSources = [
  "src/dashboard/**",
  "src/{base,protocol}/**/*.ts",
  "build/dashboard.ts",
  "package-lock.json",
];

/** Builds it into a folder: a page, and files beside it whose names change with their content. */
export async function buildDashboard(folder: string): Promise<void> {
  // Else a run of tests would build React as it is for development.
  process.env["NODE_ENV"] = "production";
  await build({
    configFile: false,
    logLevel: "error",
    root: join(root, "src/dashboard"),
    // Wherever the page is served, its files are found by links that are relative to it.
    base: "./",
    plugins: [react()],
    resolve: { conditions: ["flotilla:source", ...defaultClientConditions] },
    build: {
      outDir: folder,
      emptyOutDir: true,
      assetsDir: dashboardFolder,
      // A file of its own for everything, so that the policy of the page allows no data in it.
      assetsInlineLimit: 0,
      // Without it a page would write a script into itself.
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
    },
  });
}

/** Tells one state of the sources from another. */
function hashOfDashboard(): string {
  const hash = createHash("sha256");
  const paths = globSync(dashboardSources, { cwd: root, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name));
  for (const path of paths.toSorted()) hash.update(path).update(readFileSync(path));
  return hash.digest("hex").slice(0, 16);
}

if (import.meta.main) {
  const folder = join(root, "dist/dashboard");
  const stamp = join(root, "node_modules/.cache/dashboard");
  const wanted = hashOfDashboard();
  const isBuilt = existsSync(join(folder, "index.html")) && existsSync(stamp);
  if (!isBuilt || readFileSync(stamp, "utf8") !== wanted) {
    await buildDashboard(folder);
    mkdirSync(dirname(stamp), { recursive: true });
    writeFileSync(stamp, wanted);
  }
}
