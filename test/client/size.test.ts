import { gzipSync } from "node:zlib";
import { rolldown, type OutputChunk } from "rolldown";
import { beforeAll, describe, expect, test } from "vitest";
import { root } from "../../build/entries.ts";

/** What a page loads at once, and what it loads beside as soon as there is a connection. */
const maxBytes = { atOnce: 12_500, beside: 7_000 };

let chunks: OutputChunk[];

beforeAll(async () => {
  await using build = await rolldown({
    cwd: root,
    input: "src/client/index.ts",
    platform: "browser",
  });
  const { output } = await build.generate({ format: "esm", minify: true });
  chunks = output.filter((file) => file.type === "chunk");
});

const zipped = (some: readonly OutputChunk[]) =>
  some.reduce((sum, { code }) => sum + gzipSync(code, { level: 9 }).length, 0);

describe("the client in a page", () => {
  test("is small, minified and zipped", () => {
    const entry = chunks.find(({ isEntry }) => isEntry)!;
    const names = new Set([entry.fileName]);
    for (const name of names) {
      for (const each of chunks.find(({ fileName }) => fileName === name)?.imports ?? []) {
        names.add(each);
      }
    }
    const atOnce = zipped(chunks.filter(({ fileName }) => names.has(fileName)));
    const beside = zipped(chunks.filter(({ fileName }) => !names.has(fileName)));
    console.info(`the client: ${atOnce} bytes at once, ${beside} beside`);
    expect(atOnce).toBeLessThan(maxBytes.atOnce);
    expect(beside).toBeLessThan(maxBytes.beside);
  });

  test("brings nothing of Node, and nothing that must be installed", () => {
    const outside = chunks.flatMap(({ imports, dynamicImports }) => [
      ...imports,
      ...dynamicImports,
    ]);
    const own = chunks.map(({ fileName }) => fileName);
    expect(outside.filter((name) => !own.includes(name))).toEqual([]);
    expect(chunks.filter(({ code }) => /node:|\brequire\(/.test(code))).toEqual([]);
  });
});
