import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";
import { rolldown, type OutputChunk } from "rolldown";
import { type Entries, isForBrowsers, root } from "./entries.ts";

/**
 * Bundles entries into files that share what they have in common, so that a class is one class
 * whichever way it is imported. What npm installs stays outside, but for the packages in `inline` and
 * what those need, and names stay as they are written.
 */
export async function bundle(
  entries: Entries,
  folder: string,
  { inline = [] }: { inline?: readonly string[] } = {},
): Promise<void> {
  await using build = await rolldown({
    cwd: root,
    input: entries,
    platform: "node",
    // Helpers that an older language needs are bundled with what needs them.
    external: (id, from) => {
      if (/^[./]/.test(id) || id.includes("@oxc-project")) return false;
      return isBuiltin(id) || !(inline.includes(id) || from?.includes("node_modules"));
    },
    // The oldest Node that is supported doesn't know `using`, and browsers are older still.
    transform: { target: "es2023" },
    // Only what can't be known is worth a word, and that fails here instead.
    onLog: (level, log) => {
      // What a file says to React's bundlers in its first line is put back below.
      if (log.code === "MODULE_LEVEL_DIRECTIVE") return;
      if (level === "warn") throw new Error(log.message);
    },
  });
  const { output } = await build.generate({
    format: "esm",
    entryFileNames: "[name].js",
    chunkFileNames: "[name]-[hash].js",
    // The type declarations have them, for editors.
    comments: { jsdoc: false },
  });
  const chunks = output.filter((file) => file.type === "chunk");
  for (const chunk of chunks) {
    if (chunk.isEntry && isForBrowsers(chunk.name)) checkBrowser(chunk, chunks);
  }
  // Entries come last, and nothing is removed: a process that starts meanwhile finds a whole build,
  // this one or the one before.
  for (const chunk of chunks.toSorted((a, b) => Number(a.isEntry) - Number(b.isEntry))) {
    // A comment has the name of a helper, which begins with a character that makes a file binary.
    writeWhole(join(folder, chunk.fileName), withDirective(chunk).replaceAll("\0", ""));
  }
}

/** An entry for React's client side says so in its first line, also where other parts come first. */
function withDirective({ isEntry, facadeModuleId, code }: OutputChunk): string {
  const directive = /^"use \w+";\n/;
  const [said] = (isEntry && directive.exec(readFileSync(facadeModuleId!, "utf8"))) || [""];
  return directive.test(code) ? code : said + code;
}

/** Writes a file so that others see all of it or none. */
export function writeWhole(path: string, content: string | Uint8Array): void {
  mkdirSync(dirname(path), { recursive: true });
  const unfinished = `${path}.${process.pid}`;
  try {
    writeFileSync(unfinished, content);
    renameSync(unfinished, path);
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw error;
  }
}

/** A browser loads whatever is imported from here, at once or later. */
function checkBrowser(entry: OutputChunk, chunks: readonly OutputChunk[]): void {
  const seen = new Set([entry.fileName]);
  for (const name of seen) {
    const chunk = chunks.find((each) => each.fileName === name);
    if (name.startsWith("node:")) {
      throw new Error(`${entry.fileName} is for browsers, and would import ${name}`);
    }
    for (const each of [...(chunk?.imports ?? []), ...(chunk?.dynamicImports ?? [])])
      seen.add(each);
  }
}
