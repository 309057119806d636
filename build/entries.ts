import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { threads } from "../src/base/package-files.ts";

export const root = fileURLToPath(new URL("../", import.meta.url));

/** What each file that something starts from is made of, by its name in a build. */
export type Entries = Record<string, string>;

/** Entries of the package that run in browsers or at the edge too, so that nothing of Node may come with them. */
const forBrowsers = ["client", "react", "ai-sdk", "agent"];

type Exported = string | { "flotilla:source"?: string; default: string };

/** All that the package is started from: what `package.json` exports, the command, and threads. */
export function packageEntries(): Entries {
  const { exports } = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as {
    exports: Record<string, Exported>;
  };
  const entries: Entries = { cli: "src/cli/main.ts" };
  for (const [name, file] of Object.entries(threads)) entries[name] = `src/${file}`;
  for (const exported of Object.values(exports)) {
    // A stylesheet or `package.json` is shipped as it is.
    if (typeof exported === "string" || exported["flotilla:source"] === undefined) continue;
    const name = /^\.\/dist\/([^/]+)\.js$/.exec(exported.default)?.[1];
    if (name === undefined) throw new Error(`${exported.default} isn't a file right below dist/`);
    entries[name] = exported["flotilla:source"];
  }
  return entries;
}

export const isForBrowsers = (name: string): boolean => forBrowsers.includes(name);
