import crypto from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { hourMs } from "../../base/durations.ts";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom, systemRandom } from "../../base/random.ts";
import { fileUrl } from "../../protocol/file.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { now, sql, type Statement, table } from "../../store/sql.ts";
import { createFiles, defaultFileSettings, type FilesConfig } from "../files.ts";
import { createFilesLeader } from "../leader.ts";
import { beginUpload, closeRemnants, deleteReferencesAmong, keepReferences } from "../sql/files.ts";
import { usualPartBytes as partBytes } from "../storage.ts";
import type { TakenFiles } from "../take.ts";

const ids = uuidv7(systemClock, systemRandom);
const tables = [
  "file",
  "file_part",
  "file_remnant",
  "file_reference",
  "file_count",
  "session",
] as const;
const time = { clock: systemClock, random: seededRandom(1), ids };

/** What files of conversations promise on every store. */
export function filesContract(kind: StoreKind): void {
  describe(`files on ${kind.name}`, () => {
    let store: OpenStore;
    let database: Database;
    beforeAll(async () => {
      store = await kind.open();
      await migrate(store.database);
      ({ database } = store);
    });
    afterAll(async () => {
      await store.database.close();
      await store.remove();
    });
    beforeEach(() => emptyTables(store, tables));

    const open = (config: FilesConfig = {}, through: Database = database) =>
      createFiles({ ...time, database: through, settings: { ...defaultFileSettings, ...config } });
    const collect = (graceMs = hourMs, files = open()) =>
      createFilesLeader({ database, files, clock: systemClock, graceMs }).pass();
    const count = async (name: (typeof tables)[number], where: Statement = sql`1 = 1`) =>
      Number(
        (await database.read(sql`select count(*) as found from ${table(name)} where ${where}`))[0]![
          "found"
        ],
      );
    const counted = async (tenant = "t") => {
      const [row] = await database.read(
        sql`select files, bytes from ${table("file_count")} where tenant = ${tenant}`,
      );
      return { files: Number(row!["files"]), bytes: Number(row!["bytes"]) };
    };
    /** As if everything had been stored two hours ago. */
    const age = () =>
      database.write([
        sql`update ${table("file_reference")} set at = ${now} - ${2 * hourMs}`,
        sql`update ${table("file_remnant")} set began_at = ${now} - ${2 * hourMs}`,
        sql`update ${table("file")} set unused_at = ${now} - ${2 * hourMs}
          where unused_at is not null`,
      ]);

    test("come back as they were stored, in part and whole, and are found by their session alone", async () => {
      const files = open();
      const bytes = noise(partBytes * 2 + 1_000);
      const part = await files.upload("t", "s", slices(bytes, 70_001), {
        mediaType: "Image/PNG; q=1",
        filename: "Fähre 1.png",
        size: bytes.length,
        hash: hashOf(bytes).toUpperCase(),
      });
      expect(part).toEqual({
        type: "file",
        url: fileUrl(hashOf(bytes)),
        mediaType: "image/png",
        filename: "Fähre 1.png",
        size: bytes.length,
      });
      const file = (await files.find("s", hashOf(bytes)))!;
      expect(await allOf(files.read(file))).toEqual(bytes);
      const [from, to] = [partBytes - 10, partBytes + 9];
      expect(await allOf(files.read(file, { from, to }))).toEqual(bytes.subarray(from, to + 1));
      expect(await files.find("other", hashOf(bytes))).toBeUndefined();
      expect(await files.find("s", hashOf(noise(3)))).toBeUndefined();
    });

    test("are stored once for a tenant, also where both copies arrive at once", async () => {
      const files = open();
      const bytes = noise(partBytes + 5);
      await Promise.all([
        files.upload("t", "a", [bytes]),
        files.upload("t", "b", [bytes]),
        files.upload("other", "c", [bytes]),
      ]);
      await files.upload("t", "a", [bytes]);
      expect(await counted()).toEqual({ files: 1, bytes: bytes.length });
      expect(await count("file")).toBe(2);
      expect(await count("file_part")).toBe(4);
      expect(await count("file_remnant")).toBe(0);
    });

    test.each<[string, Parameters<ReturnType<typeof open>["upload"]>[3], number, string]>([
      ["longer than it was said", { size: 9 }, 10, "invalid_input"],
      ["shorter than it was said", { size: 11 }, 10, "invalid_input"],
      ["of another hash", { hash: "0".repeat(64) }, 10, "invalid_input"],
      ["with a hash that is none", { hash: "abc" }, 10, "invalid_input"],
      ["empty", {}, 0, "invalid_input"],
      ["too large", {}, 1_001, "payload_too_large"],
      ["said to be too large", { size: 1_001 }, 10, "payload_too_large"],
      ["of a name that is none", { filename: "a\0b" }, 10, "invalid_option"],
    ])("a file that is %s is refused, and leaves nothing", async (_, said, length, code) => {
      const files = open({ maxFileBytes: 1_000 });
      await expect(files.upload("t", "s", [noise(length)], said)).rejects.toMatchObject({ code });
      expect(await count("file_part")).toBe(0);
      expect(await count("file_remnant")).toBe(0);
      expect(await count("file_reference")).toBe(0);
    });

    test("an upload that is cut off is gone at once, and after an hour where its process died", async () => {
      const files = open();
      async function* cut() {
        yield noise(partBytes);
        throw new Error("the connection was reset");
      }
      await expect(files.upload("t", "s", cut())).rejects.toThrow("reset");
      expect(await count("file_part")).toBe(0);

      // Its process dies: nothing more comes of it.
      let dead = false;
      const dying: Database = {
        ...database,
        write: (...args) => (dead ? new Promise(() => {}) : database.write(...args)),
      };
      async function* dies() {
        yield noise(partBytes);
        yield noise(10);
        dead = true;
        yield noise(partBytes);
      }
      void open({}, dying).upload("t", "s", dies());
      await expect.poll(() => dead).toBe(true);
      await expect.poll(() => count("file_part")).toBe(1);
      await collect();
      expect(await count("file_part")).toBe(1);
      await age();
      await collect();
      expect(await count("file_part")).toBe(0);
      expect(await count("file_remnant")).toBe(0);
    });

    test("the beginning of an upload that lands after its end leaves the file alone", async () => {
      const files = open();
      const bytes = noise(partBytes + 5);
      await files.upload("t", "s", [bytes]);
      await database.write(keepReferences({ tenant: "t", sessionId: "s" }, [hashOf(bytes)]));
      const file = (await files.find("s", hashOf(bytes)))!;
      await database.write(beginUpload("t", file.fileId, "store"));
      await age();
      await collect();
      await collect();
      expect(await count("file_remnant")).toBe(0);
      expect(await allOf(files.read(file))).toEqual(bytes);
    });

    test("an upload that was given up for dead makes no file of what is left", async () => {
      const files = open();
      async function* paused() {
        yield noise(partBytes);
        await age();
        await collect();
        yield noise(partBytes);
      }
      await expect(files.upload("t", "s", paused())).rejects.toMatchObject({ code: "timeout" });
      // The collector has got no further than to say so.
      async function* closed() {
        yield noise(partBytes);
        await database.write([closeRemnants(-hourMs)]);
      }
      await expect(files.upload("t", "s", closed())).rejects.toMatchObject({ code: "timeout" });
      for (const name of ["file", "file_part", "file_remnant"] as const)
        expect(await count(name)).toBe(0);
    });

    test("an upload whose beginning lands again, once its first part was collected, makes no file", async () => {
      const files = open();
      async function* collected() {
        yield noise(partBytes);
        const [row] = await database.read(sql`select file_id from ${table("file_remnant")}`);
        await database.write([closeRemnants(-hourMs)]);
        await collect();
        expect(await count("file_part")).toBe(0);
        await store.clock?.advance(1);
        await database.write(beginUpload("t", row!["file_id"] as string, "store"));
        yield noise(partBytes);
      }
      await expect(files.upload("t", "s", collected())).rejects.toMatchObject({ code: "timeout" });
      for (const name of ["file", "file_part", "file_remnant"] as const)
        expect(await count(name)).toBe(0);
    });

    test("a session and a tenant have only so many, and what is stored already takes nothing", async () => {
      const one = noise(10, 1);
      const two = noise(10, 2);
      const files = open({ sessionFiles: 1, tenantBytes: 15 });
      await files.upload("t", "a", [one]);
      await expect(files.upload("t", "a", [two])).rejects.toMatchObject({ code: "quota_exceeded" });
      await expect(files.upload("t", "b", [two])).rejects.toMatchObject({
        code: "quota_exceeded",
        details: { tenantBytes: 15 },
      });
      await files.upload("t", "b", [one]);
      await expect(open({ sessionBytes: 15 }).upload("t", "a", [two])).rejects.toMatchObject({
        details: { sessionBytes: 15 },
      });
      expect(await count("file_part")).toBe(1);
      expect(await counted()).toEqual({ files: 1, bytes: 10 });
    });

    test("one that no message has is deleted after an hour, and one that a message has is not", async () => {
      const files = open();
      const bytes = noise(10);
      await files.upload("t", "unsent", [bytes]);
      await files.upload("t", "sent", [bytes]);
      await files.upload("t", "unsent", [noise(20)]);
      await files.keep("t", "sent", taken({ references: [hashOf(bytes)] }));
      await collect();
      expect(await count("file_reference")).toBe(3);
      await age();
      await collect();
      expect(await files.find("unsent", hashOf(bytes))).toBeUndefined();
      expect(await files.find("sent", hashOf(bytes))).toBeDefined();
      await age();
      await collect();
      expect(await allOf(files.read((await files.find("sent", hashOf(bytes)))!))).toEqual(bytes);
      expect(await counted()).toEqual({ files: 1, bytes: 10 });
      await expect(
        files.keep("t", "unsent", taken({ references: [hashOf(bytes)] })),
      ).rejects.toMatchObject({ code: "not_found" });
    });

    test("goes with the last session that refers to it, also where the collector dies in between", async () => {
      const files = open();
      const bytes = noise(partBytes + 1);
      const message = taken({ inline: [{ bytes, hash: hashOf(bytes), mediaType: "image/png" }] });
      await files.keep("t", "a", message);
      await files.keep("t", "b", message);
      await database.write(deleteReferencesAmong("session", ["a"]));
      await age();
      await collect();
      expect(await allOf(files.read((await files.find("b", hashOf(bytes)))!))).toEqual(bytes);
      await database.write(deleteReferencesAmong("session", ["b"]));
      await age();
      for (let writes = 0; writes < 8; writes++) {
        let left = writes;
        const dying: Database = {
          ...database,
          write: (...args) =>
            left-- > 0 ? database.write(...args) : Promise.reject(new Error("killed")),
        };
        await createFilesLeader({ database: dying, files: open({}, dying), ...time }).pass();
      }
      for (const name of ["file", "file_part", "file_remnant"] as const)
        expect(await count(name)).toBe(0);
      expect(await counted()).toEqual({ files: 0, bytes: 0 });
    });

    test("is never collected while a send refers to it, whichever comes first", async () => {
      const files = open();
      const bytes = noise(10);
      const references = taken({ references: [hashOf(bytes)] });
      // The send comes between what the collector has found and what it deletes.
      await files.upload("t", "s", [bytes]);
      await age();
      const between = before(database, "file_reference", () => files.keep("t", "s", references));
      await createFilesLeader({ database: between, files, ...time }).pass();
      await age();
      await collect(0);
      expect(await allOf(files.read((await files.find("s", hashOf(bytes)))!))).toEqual(bytes);

      // Another session refers to it when the collector has found that none does.
      await database.write(deleteReferencesAmong("session", ["s"]));
      await age();
      const again = before(database, "file_remnant", async () => {
        await files.upload("t", "other", [bytes]);
      });
      await createFilesLeader({ database: again, files, ...time }).pass();
      await collect();
      expect(await allOf(files.read((await files.find("other", hashOf(bytes)))!))).toEqual(bytes);
      expect(await counted()).toEqual({ files: 1, bytes: 10 });
    });

    test("what was kept for a session that was deleted meanwhile is found and deleted", async () => {
      const files = open();
      const bytes = noise(10);
      await files.keep(
        "t",
        "gone",
        taken({ inline: [{ bytes, hash: hashOf(bytes), mediaType: "a/b" }] }),
      );
      await files.keep(
        "t",
        "here",
        taken({ inline: [{ bytes, hash: hashOf(bytes), mediaType: "a/b" }] }),
      );
      await database.write([sessionRow("gone", "deleted"), sessionRow("here", "active")]);
      await collect();
      expect(await files.find("gone", hashOf(bytes))).toBeUndefined();
      expect(await files.find("here", hashOf(bytes))).toBeDefined();
    });

    test("an upload whose process was paused until the collector had forgotten it leaves nothing in a folder", async () => {
      const folder = mkdtempSync(join(tmpdir(), "flotilla-files-"));
      try {
        const files = open({ folder });
        async function* paused() {
          await age();
          await collect(hourMs, files);
          expect(await count("file_remnant")).toBe(0);
          yield noise(partBytes);
        }
        await expect(files.upload("t", "s", paused())).rejects.toMatchObject({ code: "timeout" });
        expect(filesIn(folder)).toEqual([]);
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });

    test("are kept in a folder where the config says so, and are read and removed there", async () => {
      const folder = mkdtempSync(join(tmpdir(), "flotilla-files-"));
      try {
        const files = open({ folder });
        const bytes = noise(partBytes * 2 + 7);
        await files.upload("t", "s", slices(bytes, 100_000));
        expect(await count("file_part")).toBe(0);
        const file = (await files.find("s", hashOf(bytes)))!;
        expect(await allOf(files.read(file))).toEqual(bytes);
        await expect(allOf(open().read(file))).rejects.toMatchObject({ code: "unavailable" });
        await age();
        await collect(0, files);
        await collect(-1, files);
        expect(filesIn(folder)).toEqual([]);
        expect(existsSync(folder)).toBe(true);
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });
  });
}

function filesIn(folder: string): string[] {
  const all = readdirSync(folder, { recursive: true, withFileTypes: true });
  return all.filter((each) => each.isFile()).map(({ name }) => name);
}

/** The same database, where something happens right before the first write to a table. */
function before(database: Database, name: string, act: () => Promise<unknown>): Database {
  let done = false;
  return {
    ...database,
    async write(statements, options) {
      const text = JSON.stringify(statements, (_, value: unknown) => value);
      if (!done && text.includes(`"table":"${name}"`)) {
        done = true;
        await act();
      }
      return database.write(statements, options);
    },
  };
}

function sessionRow(sessionId: string, status: string): Statement {
  return sql`insert into ${table("session")}
    (session_id, log_id, last_offset, status, header, created_at, active_at)
    values (${sessionId}, 0, 0, ${status}, '{}', 0, 0)`;
}

function taken(files: Partial<TakenFiles>): TakenFiles {
  return { parts: [], inline: [], references: [], ...files };
}

function noise(length: number, seed = 7): Buffer {
  const random = seededRandom(seed + length);
  return Buffer.from(Uint8Array.from({ length }, () => random.uint32() & 0xff));
}

function* slices(bytes: Buffer, length: number): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

function hashOf(bytes: Uint8Array): string {
  return crypto.hash("sha256", bytes, "hex");
}

async function allOf(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const each of pieces) all.push(each);
  return Buffer.concat(all);
}
