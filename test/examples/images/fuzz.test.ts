import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { expect, test } from "vitest";
import { imageLimits } from "../../../examples/images/limits.ts";
import { Refused } from "../../../examples/images/refused.ts";
import { endMarker, packEntry } from "../../../examples/images/tar/pack.ts";
import { unpackLayers } from "../../../examples/images/tar/unpack.ts";
import { fileOf, temporaryFolder } from "./places.ts";

const names = [
  "a",
  "b",
  "a/b",
  "a/b/c",
  "b/c",
  ".wh.a",
  "a/.wh.b",
  "a/.wh..wh..opq",
  "../out",
  "/out",
];
const name = fc.constantFrom(...names);
const target = fc.constantFrom("a", "b", "../b", "..", "../../out", "/out", "a/../..", ".");
const type = fc.constantFrom("File", "Directory", "SymbolicLink", "Link", "FIFO" as const);
const entry = fc
  .record({ path: name, type, target, content: fc.constantFrom("", "x", "y".repeat(600)) })
  .map(({ path, type, target, content }) => {
    const isLink = type === "SymbolicLink" || type === "Link";
    return packEntry({ path, type, ...(isLink ? { target } : { content }) });
  });
/** Flips in headers that keep the checksum right would need two: so there are pairs of them too. */
const flip = fc.record({ at: fc.nat(), bit: fc.nat({ max: 7 }) });

test(
  "whatever an archive holds, it is unpacked or refused, and nothing else is touched",
  { timeout: 300_000 },
  async () => {
    const folder = temporaryFolder();
    const outcomes = new Map<string, number>();
    const layer = fc.array(entry, { minLength: 1, maxLength: 6 });
    const property = fc.asyncProperty(
      fc.array(layer, { minLength: 1, maxLength: 3 }),
      fc.array(flip, { maxLength: 2 }),
      async (layers, flips) => {
        const files = layers.map((entries, at) => {
          const archive = Buffer.concat([...entries, endMarker]);
          if (at === 0) {
            for (const each of flips) archive[each.at % archive.length]! ^= 1 << each.bit;
          }
          return fileOf(folder, `${at}.tgz`, gzipSync(archive));
        });
        const root = join(folder, "deep/er/root");
        const thrown = await unpackLayers(files, root, { limits: imageLimits }).then(
          () => undefined,
          (error: unknown) => error,
        );
        if (thrown !== undefined && !(thrown instanceof Refused)) throw thrown;
        const outcome = thrown?.reason ?? "unpacked";
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        const outside = readdirSync(folder).filter((each) => !each.endsWith(".tgz"));
        expect([
          outside,
          readdirSync(join(folder, "deep")),
          readdirSync(join(folder, "deep/er")),
        ]).toEqual([["deep"], ["er"], ["root"]]);
        for (const file of files) rmSync(file);
      },
    );
    await fc.assert(property, { numRuns: Number(process.env["IMAGES_ARCHIVES"] ?? 200) });
    expect([...outcomes.keys()]).toContain("unpacked");
    expect(outcomes.size).toBeGreaterThan(4);
  },
);
