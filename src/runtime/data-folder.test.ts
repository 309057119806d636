import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Logger, silentLogger } from "../base/log.ts";
import { task } from "../tasks/task.ts";
import { migrate } from "../store/migrate.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";
import { resolveConfig } from "./config.ts";
import { dataFolderOf } from "./data-folder.ts";
import { localProgressFor, outboxDiskFor } from "./local-files.ts";

const postgres = "postgres://nobody@127.0.0.1/none";
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-data-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

const storeOf = async (madeAtMs: number) => {
  const database = memoryDatabase({ now: () => madeAtMs });
  await migrate(database);
  return database;
};

test("two stores have a folder each, wherever they are", async () => {
  const [one, other] = [await storeOf(1_000), await storeOf(2_000)];
  expect(await dataFolderOf(folder, one)).toBe(await dataFolderOf(folder, one));
  expect(await dataFolderOf(folder, one)).not.toBe(await dataFolderOf(folder, other));
});

test("a folder that can't be written is refused where one was configured", () => {
  const file = join(folder, "file");
  writeFileSync(file, "");
  expect(() => resolveConfig({ dataDir: join(file, "below") })).toThrow(/isn't writable/);
  expect(() => resolveConfig({ dataDir: "" })).toThrow(/dataDir must be a folder's path/);
  expect(resolveConfig({ dataDir: false }).dataDir).toBe(false);
});

test("only a pod whose store is elsewhere has an outbox, and nothing is made for it at first", async () => {
  const database = await storeOf(1_000);
  const dataDir = join(folder, "data");
  const on = (config: object) =>
    outboxDiskFor(resolveConfig({ dataDir, ...config }), database, silentLogger);
  expect(await on({ store: "sqlite:some.db" })).toEqual({});
  expect(await on({ store: postgres, dataDir: false })).toEqual({});
  const { outboxDisk } = await on({ store: postgres });
  expect(await outboxDisk!.takeOver()).toEqual([]);
  expect(existsSync(dataDir)).toBe(false);
});

test("without a folder that can be written a pod logs it once and works without", async () => {
  const database = await storeOf(1_000);
  writeFileSync(join(folder, "file"), "");
  const warnings: string[] = [];
  const log: Logger = { ...silentLogger, warn: (_, message) => void warnings.push(message) };
  const use = [task("a", { progress: "local" }, () => 1)];
  const settings = {
    ...resolveConfig({ store: postgres, use }),
    dataDir: join(folder, "file", "below"),
  };
  expect(await outboxDiskFor(settings, database, log)).toEqual({});
  const clock = { now: () => 0, monotonic: () => 0, after: () => () => {} };
  expect(await localProgressFor(settings, database, { clock, log })).toEqual({});
  expect(warnings).toEqual([
    expect.stringContaining("outbox disabled"),
    expect.stringContaining("local progress disabled"),
  ]);
});
