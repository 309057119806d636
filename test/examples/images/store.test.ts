import { mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  type Digest,
  digestOf,
  digestOfTree,
  hexOf,
} from "../../../examples/images/disk/digest.ts";
import { publishFolder } from "../../../examples/images/disk/durable.ts";
import {
  leftovers,
  parseTemporary,
  temporaryPath,
} from "../../../examples/images/disk/temporary.ts";
import { type Home, openHome } from "../../../examples/images/home.ts";
import { compare, fingerprint } from "../../../examples/images/store/fingerprint.ts";
import { imageIdOf, snapshotIdOf } from "../../../examples/images/store/places.ts";
import { reconcile, sweep } from "../../../examples/images/store/reconcile.ts";
import { type SnapshotKind, snapshotTree } from "../../../examples/images/store/snapshot.ts";
import { temporaryFolder } from "./places.ts";

function smallTree(root: string): string {
  mkdirSync(join(root, "bin"), { recursive: true });
  writeFileSync(join(root, "bin/tool"), "#!/bin/sh\n", { mode: 0o755 });
  writeFileSync(join(root, "name"), "ada", { mode: 0o644 });
  symlinkSync("bin/tool", join(root, "tool"));
  return root;
}

describe("a snapshot", () => {
  test.each<readonly [SnapshotKind, boolean]>([
    ["hardlink", true],
    ["copy", false],
  ])("by %s is the same tree", async (kind, isShared) => {
    const folder = temporaryFolder();
    const source = smallTree(join(folder, "source"));
    const target = join(folder, "target");
    expect(await snapshotTree(source, target, { kinds: [kind] })).toBe(kind);
    expect(await digestOfTree(target)).toBe(await digestOfTree(source));
    const inode = (root: string) => statSync(join(root, "name")).ino;
    expect(inode(source) === inode(target)).toBe(isShared);
  });

  test("takes the next way where the file system can't do the first", async () => {
    const folder = temporaryFolder();
    const source = smallTree(join(folder, "source"));
    const kind = await snapshotTree(source, join(folder, "target"));
    expect(["reflink", "hardlink"]).toContain(kind);
    expect(await digestOfTree(join(folder, "target"))).toBe(await digestOfTree(source));
  });

  test("made again has nothing of what was there", async () => {
    const folder = temporaryFolder();
    const source = smallTree(join(folder, "source"));
    mkdirSync(join(folder, "target"));
    writeFileSync(join(folder, "target/old"), "old");
    await snapshotTree(source, join(folder, "target"));
    expect(await digestOfTree(join(folder, "target"))).toBe(await digestOfTree(source));
  });
});

describe("names and places", () => {
  test("a folder takes the place of another, which is deleted", async () => {
    const folder = temporaryFolder();
    const [from, to, aside] = ["from", "to", "aside"].map((name) => join(folder, name));
    for (const round of [1, 2]) {
      mkdirSync(from!);
      writeFileSync(join(from!, "round"), `${round}`);
      // What a crash between the two renames has left.
      mkdirSync(aside!, { recursive: true });
      await publishFolder(from!, to!, aside!);
      expect(readFileSync(join(to!, "round"), "utf8")).toBe(`${round}`);
    }
    expect((await digestOfTree(folder)) satisfies Digest).toMatch(/^sha256:/);
    expect(() => statSync(aside!)).toThrow("ENOENT");
  });

  test("a temporary name holds whose it is and what it is to become", async () => {
    const folder = temporaryFolder();
    const target = join(folder, "blob");
    for (const token of [2, 10, 1]) {
      writeFileSync(temporaryPath(target, { runId: "run-1", token }, "part"), "");
    }
    writeFileSync(temporaryPath(target, { runId: "run-11", token: 5 }, "part"), "");
    writeFileSync(temporaryPath(`${target}2`, { runId: "run-1", token: 5 }, "part"), "");
    expect((await leftovers(target, "run-1")).map(({ token }) => token)).toEqual([10, 2, 1]);
    expect(await leftovers(join(folder, "no/where"), "run-1")).toEqual([]);
    expect(parseTemporary(join(folder, "blob~run-1~10~part"))).toEqual({
      path: join(folder, "blob~run-1~10~part"),
      target,
      runId: "run-1",
      token: 10,
      use: "part",
    });
    expect(parseTemporary(target)).toBeUndefined();
  });
});

/** A home with one blob, one image and one snapshot, all known. */
async function filled(folder: string): Promise<Home & { digest: Digest; ids: string[] }> {
  const home = await openHome(folder);
  const { places, metadata } = home;
  const digest = digestOf("layer");
  writeFileSync(places.blob(digest), "layer");
  metadata.putBlob({ digest, bytes: 5 });
  const imageId = imageIdOf(digestOf("manifest"));
  const tree = await digestOfTree(smallTree(places.image(imageId)));
  metadata.putTree({ imageId, tree, entries: 4, bytes: 13 });
  const snapshotId = snapshotIdOf("demo:1", imageId);
  await snapshotTree(places.image(imageId), places.snapshot(snapshotId));
  const snapshot = { snapshotId, imageId, tree };
  metadata.register(snapshot, { reference: "demo:1", imageId, snapshotId });
  return { ...home, digest, ids: [imageId, snapshotId] };
}

describe("the reconciler", () => {
  test("reports nothing where every file has its row and every row its file", async () => {
    using home = await filled(temporaryFolder());
    expect(await reconcile(home.places, home.metadata)).toEqual([]);
  });

  test("finds files that no row knows, what runs have left, and strangers", async () => {
    using home = await filled(temporaryFolder());
    const { places, metadata } = home;
    const other = digestOf("other");
    const id = imageIdOf(other);
    writeFileSync(places.blob(other), "other");
    mkdirSync(places.image(id));
    mkdirSync(places.snapshot(id));
    const writer = { runId: "dead", token: 3 };
    const part = temporaryPath(places.blob(other), writer, "part");
    writeFileSync(part, "ot");
    writeFileSync(temporaryPath(places.blob(other), { ...writer, runId: "live" }, "part"), "ot");
    mkdirSync(temporaryPath(places.image(id), writer, "tree"));
    writeFileSync(join(places.images, "notes.txt"), "mine");
    const found = await reconcile(places, metadata, { isLive: (runId) => runId === "live" });
    expect(found).toEqual([
      { kind: "unknown_blob", path: places.blob(other) },
      { kind: "leftover", path: part, runId: "dead" },
      ...[
        { kind: "unknown_image", path: places.image(id) },
        { kind: "leftover", path: `${places.image(id)}~dead~3~tree`, runId: "dead" },
        { kind: "stranger", path: join(places.images, "notes.txt") },
      ].toSorted((a, b) => (a.path < b.path ? -1 : 1)),
      { kind: "unknown_snapshot", path: places.snapshot(id) },
    ]);
    expect(await sweep(found, metadata)).toBe(5);
    const left = await reconcile(places, metadata, { isLive: (runId) => runId === "live" });
    expect(left).toEqual([{ kind: "stranger", path: join(places.images, "notes.txt") }]);
  });

  test("finds rows whose files are gone, or are others", async () => {
    using home = await filled(temporaryFolder());
    const { places, metadata, digest, ids } = home;
    const [imageId, snapshotId] = ids as [string, string];
    writeFileSync(places.blob(digest), "wrong");
    rmSync(places.image(imageId), { recursive: true });
    writeFileSync(join(places.snapshot(snapshotId), "more"), "more");
    const found = await reconcile(places, metadata);
    expect(found).toEqual([
      { kind: "damaged", path: places.blob(digest), rows: "blobs", id: digest },
      { kind: "missing", path: places.image(imageId), rows: "trees", id: imageId },
      { kind: "damaged", path: places.snapshot(snapshotId), rows: "snapshots", id: snapshotId },
    ]);
    const quick = await reconcile(places, metadata, { isContentRead: false });
    expect(quick.map(({ kind }) => kind)).toEqual(["missing"]);
    await sweep(found, metadata);
    const next = await reconcile(places, metadata);
    expect(next).toEqual([{ kind: "dangling", rows: "images", id: "demo:1" }]);
    await sweep(next, metadata);
    expect([await reconcile(places, metadata), await fingerprint(places.home)]).toEqual([[], []]);
  });
});

describe("the metadata", () => {
  test("is the same after a write is repeated, and after it was opened again", async () => {
    const folder = temporaryFolder();
    const first = await filled(folder);
    const { metadata, digest } = first;
    const rows = metadata.all();
    metadata.putBlob({ digest, bytes: 5 });
    metadata.register(rows.snapshots[0]!, rows.images[0]!);
    expect(metadata.all()).toEqual(rows);
    first.close();
    using again = await openHome(folder);
    expect(again.metadata.all()).toEqual(rows);
  });

  test("registers a snapshot and its name together or not at all", async () => {
    using home = await openHome(temporaryFolder());
    const tree = digestOf("tree");
    const bad = { reference: "demo:1", imageId: "i", snapshotId: null as unknown as string };
    const snapshot = { snapshotId: "s", imageId: "i", tree };
    expect(() => home.metadata.register(snapshot, bad)).toThrow("NOT NULL");
    expect(home.metadata.all()).toMatchObject({ snapshots: [], images: [] });
    expect(home.metadata.image("demo:1")).toBeUndefined();
  });
});

describe("a fingerprint", () => {
  test("is the same for homes in the same state, however they came to it", async () => {
    const [one, two] = [temporaryFolder(), temporaryFolder()];
    const first = await filled(one);
    const { metadata, places, digest, ids } = await filled(two);
    expect(compare(await fingerprint(one), await fingerprint(two))).toEqual([]);
    const snapshotId = ids[1]!;
    writeFileSync(join(places.snapshot(snapshotId), "more"), "more");
    metadata.forget("blobs", digest);
    expect(compare(await fingerprint(one), await fingerprint(two))).toEqual([
      `missing: blobs: {"digest":"${digest}","bytes":5}`,
      `not expected: snapshots: file 644 ${snapshotId}/more sha256:${hexOf(digestOf("more"))}`,
    ]);
    first.close();
    metadata.close();
  });
});
