import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import S3rver from "@20minutes/s3rver";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { systemRandom } from "../base/random.ts";
import { freePort } from "../../test/free-ports.ts";
import { memoryKind } from "../store/contract/kinds.ts";
import { migrate } from "../store/migrate.ts";
import { sql, table } from "../store/sql.ts";
import { createFiles, defaultFileSettings } from "./files.ts";
import { createFilesLeader } from "./leader.ts";
import { createS3Storage, type S3Config } from "./s3.ts";
import { deleteReferencesAmong } from "./sql/files.ts";

// The keys that this server knows.
const credentials = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };
const mebibyte = 1024 * 1024;
let folder: string;
let server: S3rver;
let endpoint: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-s3-"));
  const options = { address: "127.0.0.1", port: 0, silent: true, directory: folder };
  server = new S3rver({ ...options, configureBuckets: [{ name: "chats", configs: [] }] });
  endpoint = `http://127.0.0.1:${(await server.run()).port}`;
});
afterAll(async () => {
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Another server of the same bucket. */
async function another(port: number) {
  const options = { address: "127.0.0.1", port, silent: true, directory: folder };
  const started = new S3rver({ ...options, configureBuckets: [] });
  await started.run();
  return { close: () => started.close() };
}

const open = (more: Partial<S3Config> = {}) =>
  createS3Storage({ bucket: "chats", endpoint, credentials, ...more });
const bytesOf = (length: number, seed = 1) =>
  Uint8Array.from({ length }, (_, at) => (at * 7 + seed) % 251);
const stored = () =>
  readdirSync(join(folder, "chats"), { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile() && each.name.endsWith("_object"))
    .map((each) => each.name);

test("parts come back in part and whole, also where one is stored again, and only the file's own are removed", async () => {
  const storage = open({ prefix: "a folder/ü+%/" });
  const [first, last] = [bytesOf(mebibyte), bytesOf(100, 5)];
  for (const fileId of ["file-1", "file-10"]) {
    await storage.write(fileId, 0, bytesOf(mebibyte, 9));
    await storage.write(fileId, 0, first);
    await storage.write(fileId, 1, last);
    await storage.flush(fileId);
  }
  expect(await storage.read("file-1", 0, { from: 0, to: mebibyte - 1 })).toEqual(first);
  expect(await storage.read("file-1", 0, { from: 10, to: 19 })).toEqual(first.subarray(10, 20));
  expect(await storage.read("file-1", 1, { from: 0, to: 99 })).toEqual(last);
  await storage.remove("file-1");
  await storage.remove("file-1");
  const gone = storage.read("file-1", 0, { from: 0, to: 9 });
  await expect(gone).rejects.toMatchObject({ code: "not_found" });
  expect(await storage.read("file-10", 1, { from: 0, to: 99 })).toEqual(last);
  await storage.remove("file-10");
  expect(stored()).toEqual([]);
});

test("a service that doesn't know where a list begins is asked no more than twice", async () => {
  let asked = 0;
  const other = createServer((request, response) => {
    asked++;
    request.resume();
    if (asked > 100) return void response.writeHead(500).end();
    response.end("<ListBucketResult><Key>flotilla/file-1/0</Key></ListBucketResult>");
  });
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as AddressInfo;
  const storage = open({ endpoint: `http://127.0.0.1:${port}` });
  await expect(storage.remove("file-1")).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("begin anew"),
  });
  expect(asked).toBe(2);
  other.close();
});

test("a file is kept in the bucket, read in part across its objects, and removed when nothing refers to it", async () => {
  const { database } = await memoryKind.open();
  await migrate(database);
  const time = { clock: systemClock, random: systemRandom, ids: uuidv7(systemClock, systemRandom) };
  const s3 = { bucket: "chats", endpoint, credentials };
  const settings = { ...defaultFileSettings, s3 };
  const files = createFiles({ ...time, database, settings });
  const bytes = bytesOf(2 * mebibyte + 500);
  const { url } = await files.upload("t", "s", [bytes]);
  expect(stored()).toHaveLength(3);
  const hash = url.split(":")[1]!;
  const file = (await files.find("s", hash))!;
  expect(await allOf(files.read(file))).toEqual(Buffer.from(bytes));
  const range = { from: mebibyte - 5, to: 2 * mebibyte + 4 };
  expect(await allOf(files.read(file, range))).toEqual(
    Buffer.from(bytes.subarray(range.from, range.to + 1)),
  );
  const elsewhere = createFiles({ ...time, database });
  await expect(allOf(elsewhere.read(file))).rejects.toThrow("`files.s3`");

  await database.write(deleteReferencesAmong("session", ["s"]));
  await database.write([sql`update ${table("file")} set unused_at = 0`]);
  const without = createFilesLeader({ database, files: elsewhere, ...time });
  // The bytes are another leader's, that knows the bucket.
  await without.pass();
  expect(stored()).toHaveLength(3);
  await createFilesLeader({ database, files, ...time }).pass();
  expect(stored()).toEqual([]);
  await database.close();
});

test("an upload whose bucket goes away half way is refused, and what it left is removed once the bucket is back", async () => {
  const { database } = await memoryKind.open();
  await migrate(database);
  const time = { clock: systemClock, random: systemRandom, ids: uuidv7(systemClock, systemRandom) };
  // No other server takes it while this one is away.
  const port = await freePort();
  const away = await another(port);
  const s3 = { bucket: "chats", endpoint: `http://127.0.0.1:${port}`, credentials };
  const files = createFiles({ ...time, database, settings: { ...defaultFileSettings, s3 } });
  const collect = () => createFilesLeader({ database, files, ...time }).pass();
  const count = async (name: "file" | "file_reference" | "file_remnant") =>
    Number((await database.read(sql`select count(*) as found from ${table(name)}`))[0]!["found"]);
  const bytes = [bytesOf(mebibyte), bytesOf(mebibyte, 2)];
  async function* cut() {
    yield bytes[0]!;
    expect(stored()).toHaveLength(1);
    await away.close();
    yield bytes[1]!;
  }
  await expect(files.upload("t", "s", cut())).rejects.toMatchObject({ code: "unavailable" });
  await collect();
  // Its bytes can't be removed yet, so that it isn't forgotten.
  expect([stored().length, await count("file_remnant")]).toEqual([1, 1]);
  const back = await another(port);
  await collect();
  expect([stored().length, await count("file_remnant")]).toEqual([0, 0]);
  expect([await count("file"), await count("file_reference")]).toEqual([0, 0]);
  await files.upload("t", "s", bytes);
  expect([stored().length, await count("file")]).toEqual([2, 1]);
  await back.close();
  await database.close();
});

test("keys that expire are asked for each time", async () => {
  let asked = 0;
  const storage = open({
    credentials: async () => {
      asked++;
      return credentials;
    },
  });
  await storage.write("asked", 0, bytesOf(3));
  await storage.remove("asked");
  expect(asked).toBeGreaterThan(2);
});

test.each<[string, () => Partial<S3Config>, string]>([
  [
    "wrong keys",
    () => ({ credentials: { ...credentials, secretAccessKey: "other" } }),
    "403 SignatureDoesNotMatch",
  ],
  ["no such bucket", () => ({ bucket: "none" }), "404 NoSuchBucket"],
  ["no server", () => ({ endpoint: "http://127.0.0.1:1" }), "fetch failed"],
])(
  "with %s a part is neither stored nor read, and the error says why and no key",
  async (_, more, why) => {
    const storage = open(more());
    const range = { from: 0, to: 1 };
    for (const call of [
      () => storage.write("f", 0, bytesOf(2)),
      () => storage.read("f", 0, range),
    ]) {
      const error = await call().catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: "unavailable", message: expect.stringContaining(why) });
      expect(String(error)).not.toContain("S3RVER");
    }
  },
);

async function allOf(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const each of pieces) all.push(each);
  return Buffer.concat(all);
}
