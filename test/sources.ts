import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type Source = { readonly path: string; readonly text: string };

const root = fileURLToPath(new URL("..", import.meta.url));

/** What ships from `src/`. Tests and contract suites beside it may import and do what they like. */
export function shippedSources(): Source[] {
  return globSync("src/**/*.{ts,tsx}", { cwd: root })
    .filter((path) => !/\.test\.tsx?$|\/contract\//.test(path))
    .map((path) => ({ path, text: readFileSync(root + path, "utf8") }));
}

export type Import = { readonly from: string; readonly kind: "static" | "type" | "dynamic" };

/** Finds imports by their shape at the start of a line, which our formatter guarantees. */
export function importsOf(text: string): Import[] {
  const clause = String.raw`(?:[\w$]+\s*,\s*)?(?:[\w$]+|\{[^}]*\}|\*(?:\s+as\s+[\w$]+)?)`;
  const named = new RegExp(
    String.raw`^\s*(?:import|export)\s+(type\s+)?${clause}\s+from\s*["']([^"']+)["']`,
    "gm",
  );
  const found: Import[] = [];
  for (const [, type, from] of text.matchAll(named)) {
    found.push({ from: from!, kind: type ? "type" : "static" });
  }
  for (const [, from] of text.matchAll(/^\s*import\s*["']([^"']+)["']/gm)) {
    found.push({ from: from!, kind: "static" });
  }
  for (const [, from] of text.matchAll(/(?<!\/\/.*|^\s*\*.*)\bimport\(\s*["'`]([^"'`]+)/gm)) {
    found.push({ from: from!, kind: "dynamic" });
  }
  return found;
}
