import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** What a page has its readers write. */
export type Guide = {
  /** Files, by the name that begins the paragraph in front of the block. */
  readonly files: ReadonlyMap<string, string>;
  /** The one block that isn't a file, and has this in it. */
  block(containing: string): string;
  /** Writes all files. */
  writeInto(folder: string): void;
};

export function readGuide(path: string): Guide {
  const page = readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), "utf8");
  const blocks = [...page.matchAll(/(?:^`([\w./-]+)`(?::.*)?\n\n)?^```\w+\n([^]*?)^```$/gm)];
  const named = blocks.flatMap(([, name, text]) => (name ? [[name, text!] as const] : []));
  const files = new Map(named);
  if (files.size < named.length) throw new Error(`${path} has a file twice`);
  return {
    files,
    block(containing) {
      const found = blocks.filter(([, name, text]) => !name && text!.includes(containing));
      if (found.length !== 1) throw new Error(`${found.length} blocks have ${containing}`);
      return found[0]![2]!;
    },
    writeInto(folder) {
      for (const [name, text] of files) {
        const path = join(folder, name);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, text);
      }
    },
  };
}
