import { readdirSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { systemRandom } from "../../../src/base/random.ts";
import { createFiles, defaultFileSettings } from "../../../src/files/files.ts";
import { memoryKind } from "../../../src/store/contract/kinds.ts";
import { migrate } from "../../../src/store/migrate.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { mountTinyDisk } from "../postgres/tiny-disk.ts";

test("a folder of files whose disk is full refuses an upload, keeps nothing of it, and takes the next once there is room", async () => {
  const disk = mountTinyDisk({ megabytes: 2 });
  onTestFinished(disk.remove);
  const { database } = await memoryKind.open();
  onTestFinished(() => database.close());
  await migrate(database);
  const time = { clock: systemClock, random: systemRandom, ids: uuidv7(systemClock, systemRandom) };
  const settings = { ...defaultFileSettings, folder: disk.folder };
  const files = createFiles({ ...time, database, settings });
  const upload = async (bytes: Buffer) => {
    const { url } = await files.upload("t", "s", [bytes]);
    return url.replace("flotilla-file:", "");
  };
  const bytesOf = async (hash: string) => {
    const pieces: Uint8Array[] = [];
    for await (const piece of files.read((await files.find("s", hash))!)) pieces.push(piece);
    return Buffer.concat(pieces);
  };
  const stored = () =>
    readdirSync(disk.folder, { recursive: true, withFileTypes: true }).filter(
      (each) => each.isFile() && each.name !== "ballast",
    ).length;
  const count = async (name: "file" | "file_reference" | "file_remnant") =>
    Number((await database.read(sql`select count(*) as found from ${table(name)}`))[0]!["found"]);

  const first = Buffer.alloc(600_000, 1);
  const hash = await upload(first);
  const full = { code: "store_full", message: expect.stringContaining(disk.folder) };
  // There is room for its beginning.
  await expect(upload(Buffer.alloc(3_000_000, 2))).rejects.toMatchObject(full);
  // And here not for its first byte.
  disk.fill();
  await expect(upload(Buffer.alloc(10, 3))).rejects.toMatchObject(full);
  expect([stored(), await count("file"), await count("file_reference")]).toEqual([1, 1, 1]);
  expect(await count("file_remnant")).toBe(0);
  expect(await bytesOf(hash)).toEqual(first);

  disk.free();
  const last = Buffer.alloc(600_000, 4);
  expect(await bytesOf(await upload(last))).toEqual(last);
  expect(stored()).toBe(2);
});
