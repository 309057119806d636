import { readdirSync } from "node:fs";
import { packageFile } from "../../base/package-files.ts";

const first = "quickstart.md";

/** The pages of the docs that came with the package, by their names; none where a bundler left them out. */
export function findDocs(folder = packageFile("docs/")): ReadonlyMap<string, URL> {
  const names = namesIn(folder).filter((name) => name.endsWith(".md"));
  const ordered = names.toSorted(
    (a, b) => Number(b === first) - Number(a === first) || (a < b ? -1 : 1),
  );
  return new Map(ordered.map((name) => [name, new URL(name, folder)]));
}

function namesIn(folder: URL): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
