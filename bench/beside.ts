import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** What is measured as ours: this checkout's source, or that of the checkout that `--beside` names. */
export type Build = { readonly key: "flotilla" | "beside"; readonly checkout?: string | undefined };

const benchFolder = fileURLToPath(new URL("./", import.meta.url));

/** As many rounds with one build first as with the other, so that the order favours neither. */
export function evenRounds(rounds: number, beside: string | undefined): number {
  return beside === undefined ? rounds : rounds + (rounds % 2);
}

/** The conditions of a comparison, for people. */
export function besideNotes({ beside }: { readonly beside: string | undefined }): string[] {
  if (beside === undefined) return [];
  const differing = differingPrograms(beside);
  return [
    `beside: ${beside}, by its own programs; ` +
      (differing.length === 0
        ? "all of them are the same as ours"
        : `other than ours are ${differing.join(", ")}, which is fair only where its API asks for it`),
  ];
}

function differingPrograms(checkout: string): string[] {
  const programs = readdirSync(benchFolder, { recursive: true, encoding: "utf8" }).filter(
    (path) => path.endsWith(".ts") && !path.includes("node_modules"),
  );
  const textOf = (root: string, path: string) => readFileSync(join(root, path), "utf8");
  return programs.filter((path) => {
    const other = join(checkout, "bench");
    if (!existsSync(join(other, path))) return false;
    const text = textOf(benchFolder, path);
    return text.includes("playRole") && text !== textOf(other, path);
  });
}

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
