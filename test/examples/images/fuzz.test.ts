import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { expect, test } from "vitest";
import { imageLimits } from "../../../examples/images/limits.ts";
import { Refused } from "../../../examples/images/refused.ts";
import { endMarker, packEntry, type PackEntry } from "../../../examples/images/tar/pack.ts";
import { unpackLayers } from "../../../examples/images/tar/unpack.ts";
import { fileOf, temporaryFolder } from "./places.ts";

const inside = ["a", "b", "c/d", "a/b", "a/b/c", "b/c", ".wh.a", "a/.wh.b", "a/.wh..wh..opq"];
const name = fc.oneof(
  { weight: 20, arbitrary: fc.constantFrom(...inside) },
  { weight: 1, arbitrary: fc.constantFrom("../out", "/out", "a/../../out") },
);
const target = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom("a", "b", "c/d", ".") },
  { weight: 1, arbitrary: fc.constantFrom("../b", "..", "../../out", "/out", "a/../..") },
);
const type = fc.oneof(
  { weight: 20, arbitrary: fc.constantFrom("File", "Directory", "SymbolicLink", "Link" as const) },
  { weight: 1, arbitrary: fc.constant("FIFO" as const) },
);
const content = fc.constantFrom("", "x", "y".repeat(600));
const entry = fc
  .record({ path: name, type, target, content })
  .map(({ target: leadsTo, content: holds, ...rest }): PackEntry => {
    const isLink = rest.type === "SymbolicLink" || rest.type === "Link";
    return { ...rest, ...(isLink ? { target: leadsTo } : { content: holds }) };
  });
const layers = fc.array(fc.array(entry, { minLength: 1, maxLength: 4 }), {
  minLength: 1,
  maxLength: 3,
});
/** One flip in a header is seen by its checksum; two may not be. */
const flip = fc.record({ at: fc.nat(), bit: fc.nat({ max: 7 }) });
const flips = fc.oneof(
  { weight: 4, arbitrary: fc.constant([]) },
  { weight: 1, arbitrary: fc.array(flip, { minLength: 1, maxLength: 2 }) },
);
const runs = Number(process.env["IMAGES_ARCHIVES"] ?? 400);

test(
  "whatever an archive holds, it is unpacked or refused, and nothing else is touched",
  { timeout: 300_000 },
  async () => {
    const folder = temporaryFolder();
    const outcomes = new Set<string>();
    const unpackOne = async (entries: PackEntry[][], flipped: readonly Flip[]) => {
      const files = entries.map((each, at) => {
        const archive = Buffer.concat([...each.map(packEntry), endMarker]);
        if (at === 0) for (const bit of flipped) archive[bit.at % archive.length]! ^= 1 << bit.bit;
        return fileOf(folder, `${at}.tgz`, gzipSync(archive));
      });
      const root = join(folder, "deep/er/root");
      const thrown = await unpackLayers(files, root, { limits: imageLimits }).then(
        () => undefined,
        (error: unknown) => error,
      );
      if (thrown !== undefined && !(thrown instanceof Refused)) throw thrown;
      outcomes.add(thrown?.reason ?? "unpacked");
      const around = [folder, join(folder, "deep"), join(folder, "deep/er")].map((path) =>
        readdirSync(path).filter((each) => !each.endsWith(".tgz")),
      );
      expect(around).toEqual([["deep"], ["er"], ["root"]]);
      for (const file of files) rmSync(file);
    };
    await fc.assert(fc.asyncProperty(layers, flips, unpackOne), { numRuns: runs });
    expect([...outcomes]).toContain("unpacked");
    expect(outcomes.size).toBeGreaterThan(4);
  },
);

type Flip = { readonly at: number; readonly bit: number };
