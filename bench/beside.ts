import { existsSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** What is measured as ours: this checkout's source, or that of the checkout that `--beside` names. */
export type Build = { readonly key: "flotilla" | "beside"; readonly checkout?: string | undefined };

const benchFolder = fileURLToPath(new URL("./", import.meta.url));

/** The builds of this run, in the order of their turns. */
export function buildsOf({ beside }: { readonly beside: string | undefined }): readonly Build[] {
  return beside === undefined
    ? [{ key: "flotilla" }]
    : [{ key: "flotilla" }, { key: "beside", checkout: beside }];
}

/**
 * The same file of the bench in another checkout. Its programs know the API and the tables of their
 * own checkout, so the two may differ in both.
 */
export function inCheckout(file: URL, checkout: string | undefined): URL {
  if (checkout === undefined) return file;
  const path = join(checkout, "bench", relative(benchFolder, fileURLToPath(file)));
  if (!existsSync(path)) throw new Error(`the other checkout has no ${path}`);
  return pathToFileURL(path);
}

/** Why a folder can't be measured beside this one, or undefined if it can. */
export function whyNotBeside(checkout: string): string | undefined {
  if (!existsSync(join(checkout, "bench/roles.ts")))
    return `${checkout} is no checkout of Flotilla`;
  if (!existsSync(join(checkout, "node_modules"))) return `run npm install in ${checkout} first`;
  return undefined;
}
