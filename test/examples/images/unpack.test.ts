import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { listTree } from "../../../examples/images/disk/digest.ts";
import { imageLimits } from "../../../examples/images/limits.ts";
import { tarEntries } from "../../../examples/images/tar/entries.ts";
import { inspectLayer } from "../../../examples/images/tar/inspect.ts";
import {
  endMarker,
  packEntry,
  type PackEntry,
  packLayer,
  padded,
} from "../../../examples/images/tar/pack.ts";
import { unpackLayers } from "../../../examples/images/tar/unpack.ts";
import { fileOf, temporaryFolder } from "./places.ts";

/** Unpacks layers and gives the paths of all files and links. */
async function unpack(...layers: PackEntry[][]): Promise<{ root: string; paths: string[] }> {
  const folder = temporaryFolder();
  const root = join(folder, "root");
  const files = layers.map((entries, at) => fileOf(folder, `${at}.tgz`, packLayer(entries)));
  await unpackLayers(files, root, { limits: imageLimits });
  const lines = await listTree(root);
  const paths = lines.map((line) => /^(?:folder|file) \d+ (\S+)|^link (.+)$/.exec(line)!);
  return { root, paths: paths.map(([, path, link]) => path ?? link!) };
}

const read = (root: string, path: string) => readFileSync(join(root, path), "utf8");

describe("layers are unpacked", () => {
  test("files, folders and links come out as they were packed", async () => {
    const { root, paths } = await unpack([
      { path: "./" },
      { path: "./etc/" },
      { path: "etc/name", content: "ada\n" },
      { path: "usr/bin/tool", content: "#!/bin/sh\n", mode: 0o755 },
      { path: "bin", target: "usr/bin" },
      { path: "usr/bin/again", type: "Link", target: "usr/bin/tool" },
      { path: "usr/lib/up", target: "../../etc/name" },
      { path: "empty", content: "" },
    ]);
    expect(paths).toEqual([
      "bin -> usr/bin",
      "empty",
      "etc",
      "etc/name",
      "usr",
      "usr/bin",
      "usr/bin/again",
      "usr/bin/tool",
      "usr/lib",
      "usr/lib/up -> ../../etc/name",
    ]);
    expect(read(root, "usr/lib/up")).toBe("ada\n");
    expect(read(root, "bin/again")).toBe("#!/bin/sh\n");
    expect(statSync(join(root, "bin/tool")).mode & 0o777).toBe(0o755);
    expect(statSync(join(root, "bin/tool")).ino).toBe(statSync(join(root, "bin/again")).ino);
  });

  test("nothing runs as another user, and no other user may write", async () => {
    const { root } = await unpack([
      { path: "open/", mode: 0o1777 },
      { path: "open/su", content: "x", mode: 0o6777 },
      { path: "open/hidden", content: "x", mode: 0o000 },
    ]);
    const rights = (path: string) => (statSync(join(root, path)).mode & 0o7777).toString(8);
    expect([rights("open"), rights("open/su"), rights("open/hidden")]).toEqual([
      "755",
      "755",
      "600",
    ]);
  });

  test("a file of several chunks is whole, beside many small ones", async () => {
    const large = Buffer.alloc(3_000_000, "0123456789abcdef");
    const many = Array.from({ length: 100 }, (_, at) => ({ path: `many/${at}`, content: `${at}` }));
    const { root } = await unpack([
      ...many,
      { path: "large", content: large },
      ...many.map(({ path, content }) => ({ path: `more/${path}`, content })),
    ]);
    expect(readFileSync(join(root, "large")).equals(large)).toBe(true);
    expect(readdirSync(join(root, "many"))).toHaveLength(100);
    expect(read(root, "more/many/99")).toBe("99");
  });

  test("names that are too long for a header come as pax or as GNU has them", async () => {
    const deep = `${"folder/".repeat(30)}a-file-with-ä-name`;
    const long = "n".repeat(200);
    const gnu = gzipSync(
      Buffer.concat([
        packEntry({ path: "././@LongLink", type: "NextFileHasLongPath", content: `${long}\0` }),
        packEntry({ path: long.slice(0, 99), content: "gnu" }),
        packEntry({
          path: "././@LongLink",
          type: "NextFileHasLongLinkpath",
          content: `folder/${long}\0`,
        }),
        packEntry({ path: "link", type: "SymbolicLink", target: "short" }),
        endMarker,
      ]),
    );
    const folder = temporaryFolder();
    const root = join(folder, "root");
    const pax = fileOf(folder, "pax", packLayer([{ path: deep, content: "pax" }]));
    await unpackLayers([pax, fileOf(folder, "gnu", gnu)], root, { limits: imageLimits });
    expect([read(root, deep), read(root, long)]).toEqual(["pax", "gnu"]);
    expect(readlinkSync(join(root, "link"))).toBe(`folder/${long}`);
  });

  test("unpacking again begins with an empty folder", async () => {
    const folder = temporaryFolder();
    const root = join(folder, "root");
    const one = fileOf(folder, "one", packLayer([{ path: "one", content: "1" }]));
    const two = fileOf(folder, "two", packLayer([{ path: "two", content: "2" }]));
    await unpackLayers([one], root, { limits: imageLimits });
    await unpackLayers([two], root, { limits: imageLimits });
    expect(readdirSync(root)).toEqual(["two"]);
  });

  test("it stops when it is aborted, also in the middle", async () => {
    const folder = temporaryFolder();
    const entries = ["a", "b"].map((path) => ({ path, content: randomBytes(500_000) }));
    const layer = fileOf(folder, "layer", packLayer(entries));
    const stop = new AbortController();
    let seen = 0;
    const reading = async () => {
      for await (const entry of tarEntries(layer, imageLimits, stop.signal)) {
        seen++;
        for await (const _chunk of entry) stop.abort(new Error("enough"));
      }
    };
    await expect(reading()).rejects.toThrow("enough");
    expect(seen).toBe(1);
    const options = { limits: imageLimits, signal: stop.signal };
    await expect(unpackLayers([layer], join(folder, "root"), options)).rejects.toThrow("enough");
    await expect(inspectLayer(layer, imageLimits, stop.signal)).rejects.toThrow("enough");
  });

  test("what a layer needs is counted without unpacking it", async () => {
    const entries = [{ path: "a/" }, { path: "a/b", content: "12345" }, { path: ".wh.c" }];
    const layer = fileOf(temporaryFolder(), "layer", packLayer(entries));
    expect(await inspectLayer(layer, imageLimits)).toEqual({ entries: 3, bytes: 5 });
  });

  test("padding after the end is no content", async () => {
    const entries = [
      packEntry({ path: "a", content: "1" }),
      endMarker,
      padded(Buffer.alloc(9_000)),
    ];
    const layer = fileOf(temporaryFolder(), "layer", gzipSync(Buffer.concat(entries)));
    expect(await inspectLayer(layer, imageLimits)).toEqual({ entries: 1, bytes: 1 });
  });
});

describe("layers over each other", () => {
  const lower: PackEntry[] = [
    { path: "keep", content: "lower" },
    { path: "file", content: "lower" },
    { path: "folder/one", content: "1" },
    { path: "folder/two", content: "2" },
    { path: "folder/deep/three", content: "3" },
    { path: "link", target: "keep" },
  ];

  test("a later file, link or folder replaces whatever was there", async () => {
    const { root, paths } = await unpack(lower, [
      { path: "file/", mode: 0o755 },
      { path: "file/inside", content: "upper" },
      { path: "folder", content: "now a file" },
      { path: "link", content: "not through it" },
    ]);
    expect(paths).toEqual(["file", "file/inside", "folder", "keep", "link"]);
    expect([read(root, "keep"), read(root, "link")]).toEqual(["lower", "not through it"]);
  });

  test("a folder that both have keeps what is in it", async () => {
    const { paths } = await unpack(lower, [{ path: "folder/" }, { path: "folder/four" }]);
    const inside = paths.filter((path) => path.startsWith("folder/"));
    expect(inside).toEqual([
      "folder/deep",
      "folder/deep/three",
      "folder/four",
      "folder/one",
      "folder/two",
    ]);
  });

  test("a replaced file leaves its hard links as they were", async () => {
    const { root } = await unpack(
      [
        { path: "a", content: "first" },
        { path: "b", type: "Link", target: "a" },
      ],
      [{ path: "a", content: "second" }],
    );
    expect([read(root, "a"), read(root, "b")]).toEqual(["second", "first"]);
  });

  test("a whiteout deletes a file, a folder and a link, and none of it stays itself", async () => {
    const whiteouts = [{ path: ".wh.file" }, { path: ".wh.folder" }, { path: ".wh.link" }];
    const { root, paths } = await unpack(lower, [
      ...whiteouts,
      { path: ".wh.nothing" },
      { path: "no/.wh.where" },
    ]);
    expect(paths).toEqual(["keep"]);
    expect(read(root, "keep")).toBe("lower");
  });

  test.each(["before", "after"])(
    "an opaque folder hides lower layers and nothing of its own, with the marker %s its entries",
    async (where) => {
      const marker = { path: "folder/.wh..wh..opq" };
      const own = [
        { path: "folder/new", content: "new" },
        { path: "folder/deep/new", content: "new" },
      ];
      const upper = where === "before" ? [marker, ...own] : [...own, marker];
      const { paths } = await unpack(lower, upper);
      const inside = paths.filter((path) => path.startsWith("folder/"));
      expect(inside).toEqual(["folder/deep", "folder/deep/new", "folder/new"]);
    },
  );

  test.each(["before", "after"])(
    "a whiteout of what the same layer has hides only what was below, %s it",
    async (where) => {
      const marker = { path: ".wh.folder" };
      const own = [{ path: "folder/" }, { path: "folder/two", content: "upper" }];
      const upper = where === "before" ? [marker, ...own] : [...own, marker];
      const { root, paths } = await unpack(lower, upper);
      expect(paths.filter((path) => path.startsWith("folder"))).toEqual(["folder", "folder/two"]);
      expect(read(root, "folder/two")).toBe("upper");
    },
  );

  test("the root can be opaque", async () => {
    const { paths } = await unpack(lower, [{ path: "only" }, { path: ".wh..wh..opq" }]);
    expect(paths).toEqual(["only"]);
  });
});
