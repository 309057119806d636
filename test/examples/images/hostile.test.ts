import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { Pax } from "tar";
import { describe, expect, test } from "vitest";
import { type ImageLimits, imageLimits } from "../../../examples/images/limits.ts";
import type { Refused } from "../../../examples/images/refused.ts";
import { inspectLayer } from "../../../examples/images/tar/inspect.ts";
import {
  endMarker,
  packEntry,
  type PackEntry,
  packLayer,
} from "../../../examples/images/tar/pack.ts";
import { unpackLayers } from "../../../examples/images/tar/unpack.ts";
import { fileOf, temporaryFolder } from "./places.ts";

type Case = readonly [reason: string, entries: readonly PackEntry[], lower?: readonly PackEntry[]];

const link = (path: string, target: string): PackEntry => ({ path, target, type: "SymbolicLink" });
const hard = (path: string, target: string): PackEntry => ({ path, target, type: "Link" });

/** Each is refused, by its own reason, and nothing outside the folder is touched. */
const corpus: Record<string, Case> = {
  "an absolute path": ["escape", [{ path: "/tmp/evil", content: "x" }]],
  "a path upwards": ["escape", [{ path: "../evil", content: "x" }]],
  "a path that goes in and out again": ["escape", [{ path: "a/b/../../../evil", content: "x" }]],
  "a path upwards that stays inside": ["escape", [{ path: "a/../b", content: "x" }]],
  "a folder upwards": ["escape", [{ path: "../evil/" }]],
  "an absolute symbolic link": ["escape", [link("a", "/etc/passwd")]],
  "a symbolic link out of the root": ["escape", [link("a/b", "../../outside")]],
  "a symbolic link out of the root, from the root": ["escape", [link("a", "..")]],
  "a link upwards behind a name, which could be a link": [
    "escape",
    [link("a/b/c/top", "../../.."), link("y", "a/b/c/top/../..")],
  ],
  "a hard link to an absolute path": ["escape", [hard("a", "/etc/passwd")]],
  "a hard link out of the root": ["escape", [hard("a", "../outside/secret")]],
  "a hard link to a symbolic link": ["escape", [{ path: "a" }, link("b", "a"), hard("c", "b")]],
  "a hard link to a folder": ["escape", [{ path: "a/" }, hard("b", "a")]],
  "a hard link to nothing": ["escape", [hard("a", "b")]],
  "a hard link to itself": ["escape", [hard("a", "a")]],
  "a hard link through a symbolic link": [
    "through_link",
    [{ path: "a/b", content: "x" }, link("l", "a"), hard("c", "l/b")],
  ],
  "a file written through a link of the same layer": [
    "through_link",
    [link("a", "b"), { path: "a/file", content: "x" }],
  ],
  "a file written through a link of a lower layer": [
    "through_link",
    [{ path: "l/file", content: "x" }],
    [{ path: "real/" }, link("l", "real")],
  ],
  "a folder made through a link": [
    "through_link",
    [{ path: "l/folder/" }],
    [{ path: "real/" }, link("l", "real")],
  ],
  "a whiteout through a link": [
    "through_link",
    [{ path: "l/.wh.file" }],
    [{ path: "real/file" }, link("l", "real")],
  ],
  "a file inside a file": ["through_link", [{ path: "a", content: "x" }, { path: "a/b" }]],
  "a character device": ["special_file", [{ path: "dev/null", type: "CharacterDevice" }]],
  "a block device": ["special_file", [{ path: "dev/sda", type: "BlockDevice" }]],
  "a fifo": ["special_file", [{ path: "pipe", type: "FIFO" }]],
  "a folder's dump": ["special_file", [{ path: "dump", type: "GNUDumpDir" }]],
  "a sparse file": ["special_file", [{ path: "sparse", type: "SparseFile", content: "x" }]],
  "the same file twice": [
    "duplicate",
    [
      { path: "a", content: "1" },
      { path: "a", content: "2" },
    ],
  ],
  "the same file, spelt otherwise": ["duplicate", [{ path: "a/b" }, { path: "./a//b" }]],
  "a folder that becomes a link": ["duplicate", [{ path: "a/" }, link("a", "b")]],
  "a link that becomes a folder": ["duplicate", [link("a", "b"), { path: "a/" }]],
  "a link that becomes a file": ["duplicate", [link("a", "b"), { path: "a", content: "x" }]],
  "a name that is too long": ["bad_path", [{ path: `${"n".repeat(256)}`, content: "x" }]],
  "a path that is too long": ["bad_path", [{ path: `${"nnn/".repeat(1_100)}x` }]],
  "a path that is too deep": ["bad_path", [{ path: `${"n/".repeat(120)}x`, content: "x" }]],
  "a line break in a name": ["bad_path", [{ path: "a\nb", content: "x" }]],
  "a root that is a file": ["bad_path", [{ path: ".", content: "x", type: "File" }]],
  "a whiteout of the folder above": ["bad_whiteout", [{ path: "a/.wh..." }]],
  "a whiteout of the folder itself": ["bad_whiteout", [{ path: "a/.wh.." }]],
  "a whiteout of nothing": ["bad_whiteout", [{ path: "a/.wh." }]],
  "a whiteout with content": ["bad_whiteout", [{ path: ".wh.a", content: "x" }]],
  "a whiteout that is a link": ["bad_whiteout", [link(".wh.a", "b")]],
  "a whiteout of an unknown kind": ["bad_whiteout", [{ path: ".wh..wh.plnk" }]],
};

type Attempt = { readonly reason: unknown; readonly root: string };

/** Unpacks next to a folder that hostile archives aim at, and checks that they missed it. */
async function refusal(layers: readonly Buffer[], limits = imageLimits): Promise<Attempt> {
  const folder = temporaryFolder();
  mkdirSync(join(folder, "outside"));
  writeFileSync(join(folder, "outside/secret"), "untouched");
  const files = layers.map((bytes, at) => fileOf(folder, `${at}.tgz`, bytes));
  const root = join(folder, "root");
  const before = readdirSync(folder);
  const thrown = await unpackLayers(files, root, { limits }).then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(readdirSync(folder).filter((name) => name !== "root")).toEqual(before);
  expect(readdirSync(join(folder, "outside"))).toEqual(["secret"]);
  expect(readFileSync(join(folder, "outside/secret"), "utf8")).toBe("untouched");
  expect(existsSync("/tmp/evil")).toBe(false);
  return { reason: (thrown as Partial<Refused>)?.reason ?? thrown, root };
}

const raw = (...parts: Buffer[]) => gzipSync(Buffer.concat(parts));
const small = (changed: Partial<ImageLimits>): ImageLimits => ({ ...imageLimits, ...changed });
const refusedBy = async (bytes: Buffer, limits = imageLimits) =>
  (await refusal([bytes], limits)).reason;

describe("a hostile archive is refused", () => {
  test.each(Object.entries(corpus))("%s", async (_name, [reason, entries, lower]) => {
    const layers = [...(lower ? [packLayer(lower)] : []), packLayer(entries)];
    expect((await refusal(layers)).reason).toBe(reason);
  });

  test("what can be seen without writing is seen before anything is written", async () => {
    const folder = temporaryFolder();
    const missed: string[] = [];
    for (const [name, [reason, entries, lower]] of Object.entries(corpus)) {
      if (lower) continue;
      const layer = fileOf(folder, "layer.tgz", packLayer(entries));
      const seen = await inspectLayer(layer, imageLimits).catch((thrown: Refused) => thrown.reason);
      if (seen !== reason) missed.push(name);
    }
    // What a hard link leads to is known only when it is there.
    expect(missed).toEqual([
      "a hard link to a symbolic link",
      "a hard link to a folder",
      "a hard link to nothing",
      "a hard link to itself",
      "a hard link through a symbolic link",
    ]);
  });
});

describe("a bomb is refused", () => {
  const zeros = (bytes: number) => packLayer([{ path: "zeros", content: Buffer.alloc(bytes) }]);

  test("by the size of all files together, and before the one that is too much is written", async () => {
    const limits = small({ unpackedBytes: 10_000 });
    const entries = ["a", "b", "c"].map((path) => ({ path, content: "x".repeat(4_000) }));
    const { reason, root } = await refusal([packLayer(entries)], limits);
    expect(reason).toBe("too_large");
    expect(readdirSync(root)).toEqual(["a", "b"]);
  });

  test("by the size of all layers together", async () => {
    const limits = small({ unpackedBytes: 10_000 });
    const layers = ["a", "b", "c"].map((path) => packLayer([{ path, content: "x".repeat(4_000) }]));
    expect((await refusal(layers, limits)).reason).toBe("too_large");
  });

  test("by the size of one file in its header, before it is read", async () => {
    const layer = packLayer([{ path: "a", content: Buffer.alloc(200_000) }]);
    const { reason, root } = await refusal([layer], small({ fileBytes: 100_000 }));
    expect([reason, readdirSync(root)]).toEqual(["too_large", []]);
  });

  test("by a size that is only in a pax header", async () => {
    const pax = new Pax({ path: "a", size: 2 ** 50 }).encode();
    expect(await refusedBy(raw(pax, packEntry({ path: "a" }), endMarker))).toBe("too_large");
  });

  test("by how many entries there are, and empty files count", async () => {
    const entries = Array.from({ length: 30 }, (_, at) => ({ path: `${at}` }));
    expect(await refusedBy(packLayer(entries), small({ entries: 20 }))).toBe("too_many");
    expect(await refusedBy(packLayer(entries), small({ entries: 30 }))).toBeUndefined();
  });

  test("by how many layers there are", async () => {
    const layers = Array.from({ length: 4 }, (_, at) => packLayer([{ path: `${at}` }]));
    expect((await refusal(layers, small({ layers: 3 }))).reason).toBe("too_many");
  });

  test("by how well it was packed, unless it is small", async () => {
    const limits = small({ ratio: 50, ratioFromBytes: 1_000_000 });
    expect(await refusedBy(zeros(3_000_000), limits)).toBe("bomb");
    expect(await refusedBy(zeros(900_000), limits)).toBeUndefined();
  });

  test("by what stands after the last entry", async () => {
    const tail = Buffer.alloc(3_000_000);
    const limits = small({ ratio: 50, ratioFromBytes: 1_000_000 });
    expect(await refusedBy(raw(packEntry({ path: "a" }), endMarker, tail), limits)).toBe("bomb");
  });

  test("when it is packed twice", async () => {
    expect(await refusedBy(gzipSync(zeros(100_000)))).toBe("bad_archive");
  });
});

describe("a broken archive is refused", () => {
  const whole = Buffer.concat([
    packEntry({ path: "a", content: "x".repeat(5_000) }),
    packEntry({ path: "b", content: "y" }),
    endMarker,
  ]);

  test.each(
    [100, 512, 700, 3_000, 5_632, 6_000, 6_144, 6_656, 7_000].map((bytes) => [bytes] as const),
  )("that ends after %i bytes of its 7,680", async (bytes) => {
    expect(whole.length).toBe(7_680);
    expect(await refusedBy(gzipSync(whole.subarray(0, bytes)))).toBe("bad_archive");
  });

  test("whose packing ends too early", async () => {
    const packed = gzipSync(whole);
    for (const bytes of [0, 5, 20, packed.length - 9, packed.length - 1]) {
      expect(await refusedBy(packed.subarray(0, bytes)), `${bytes}`).toBe("bad_archive");
    }
  });

  test("whose packing has a flipped bit", async () => {
    const packed = gzipSync(whole);
    packed[packed.length - 6]! ^= 1;
    expect(await refusedBy(packed)).toBe("bad_archive");
  });

  test("that isn't packed at all, or is no archive", async () => {
    expect(await refusedBy(whole)).toBe("bad_archive");
    expect(await refusedBy(gzipSync("hello".repeat(1_000)))).toBe("bad_archive");
    expect(await refusedBy(Buffer.alloc(0))).toBe("bad_archive");
  });

  test.each([0, 1, 100, 124, 148, 257, 345])(
    "with a header whose byte %i was changed after its checksum",
    async (at) => {
      const changed = Buffer.from(whole);
      changed[at]! ^= 4;
      expect(await refusedBy(gzipSync(changed))).toBe("bad_archive");
    },
  );

  test("with a link that has content, where another archive could be hidden", async () => {
    const hidden = packEntry({ path: "../evil", content: "x" });
    const entry = packEntry({ path: "l", type: "SymbolicLink", target: "a", content: hidden });
    expect(await refusedBy(raw(entry, endMarker))).toBe("bad_archive");
  });

  test("with a global header that names every file", async () => {
    const pax = new Pax({ linkpath: "../../etc/passwd" }, true).encode();
    expect(await refusedBy(raw(pax, packEntry({ path: "a" }), endMarker))).toBe("bad_archive");
  });

  test("with a name that is upwards only in its long form", async () => {
    const pax = new Pax({ path: "../evil" }).encode();
    expect(await refusedBy(raw(pax, packEntry({ path: "ok" }), endMarker))).toBe("escape");
    const long = packEntry({ path: "x", type: "NextFileHasLongPath", content: "/tmp/evil\0" });
    expect(await refusedBy(raw(long, packEntry({ path: "ok" }), endMarker))).toBe("escape");
    const target = { path: "x", type: "NextFileHasLongLinkpath", content: "../..\0" } as const;
    const entry = packEntry({ path: "l", type: "SymbolicLink", target: "ok" });
    expect(await refusedBy(raw(packEntry(target), entry, endMarker))).toBe("escape");
  });

  test("with a name of a megabyte, instead of taking the short one", async () => {
    const content = "n".repeat(1_100_000);
    const long = packEntry({ path: "x", type: "NextFileHasLongPath", content });
    expect(await refusedBy(raw(long, packEntry({ path: "ok" }), endMarker))).toBe("special_file");
  });

  test("with a sparse file in pax form, whose content would be wrong", async () => {
    const record = "22 GNU.sparse.major=1\n";
    const header = packEntry({ path: "PaxHeader/a", content: record });
    header[156] = "x".charCodeAt(0);
    header.write("        ", 148);
    const sum = header.subarray(0, 512).reduce((total, byte) => total + byte, 0);
    header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    expect(await refusedBy(raw(header, packEntry({ path: "a" }), endMarker))).toBe("bad_archive");
  });
});
