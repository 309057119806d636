import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../base/log.ts";
import type { Database } from "../store/database.ts";
import { memoryKind } from "../store/contract/kinds.ts";
import { createDeadLetters } from "./dead-letters.ts";
import { createDeadLetterLeader } from "./leader.ts";
import { openDeadLetters, type DeadLettersHarness } from "./contract/harness.ts";
import { indexFilesIn } from "./index-files.ts";

const most = 100_000;

describe("a view of failed tasks in a file", () => {
  let folder: string;
  let scene: DeadLettersHarness;
  /** How many errors were read from the store. */
  let read: number;
  let counted: Database;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), "flotilla-views-"));
    scene = await openDeadLetters(memoryKind);
    read = 0;
    const { database } = scene.queue;
    counted = {
      ...database,
      async read(statement) {
        const rows = await database.read(statement);
        read += rows.filter((row) => "error" in row).length;
        return rows;
      },
    };
  });
  afterEach(async () => {
    await scene.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const views = () => indexFilesIn(async () => join(folder, "store"), silentLogger);
  const leader = (place = views()) =>
    createDeadLetterLeader({ ...scene.queue, database: counted, views: place });
  const files = () => readdirSync(join(folder, "store")).filter((each) => each.endsWith(".db"));
  const follow = async (lead: ReturnType<typeof leader>) => {
    for (let passes = 0; lead.kept === undefined && passes < 20; passes++) await lead.pass();
    return lead.kept!.index.page({}, undefined, most);
  };

  test("is gone on with by the next leader, which reads only what is new", async () => {
    const all = await scene.failed("a", 1_500, (at) => `boom ${at}`);
    const first = leader();
    await follow(first);
    expect(read).toBe(1_500);
    first.rest();

    // Meanwhile no pod leads.
    await scene.complete(all.slice(0, 300));
    await scene.queue.retry(all[301]!);
    await scene.fail([all[301]!], "another");
    await scene.failed("b", 7, "boom");
    read = 0;
    const second = leader();
    expect(await follow(second)).toEqual(await scene.fresh());
    expect(read).toBe(8);
    expect(files()).toEqual(["failed-1.db"]);
    second.rest();
  });

  test("isn't made for a few, and is once there are many", async () => {
    await scene.failed("a", 20, "boom");
    const lead = leader();
    await follow(lead);
    expect(readdirSync(folder)).toEqual([]);
    await scene.failed("a", 1_000, "boom");
    await scene.queue.pass(5_000);
    await lead.pass();
    await scene.queue.pass(5_000);
    await lead.pass();
    expect(files()).toEqual(["failed-1.db"]);
    expect(await follow(lead)).toEqual(await scene.fresh());
    lead.rest();
  });

  test("belongs to one at a time: others have their own", async () => {
    await scene.failed("a", 1_000, "boom");
    const place = views();
    const lead = leader(place);
    await follow(lead);
    const letters = createDeadLetters({ ...scene.queue, views: place });
    expect(await letters.groups()).toMatchObject({ count: 1, tasks: 1_000 });
    expect(files()).toEqual(["failed-1.db", "failed-2.db"]);
    letters.close();
    lead.rest();
  });

  test.each(["no database at all", ""])("that holds %j is rebuilt", async (content) => {
    await scene.failed("a", 1_000, "boom");
    const before = leader();
    await follow(before);
    before.rest();
    writeFileSync(join(folder, "store", "failed-1.db"), content);
    const lead = leader();
    expect(await follow(lead)).toEqual(await scene.fresh());
    expect(files()).toEqual(["failed-1.db"]);
    lead.rest();
  });

  test("that fails under a leader is thrown away, and the next pass begins again in memory", async () => {
    await scene.failed("a", 1_000, "boom");
    const place = views();
    let failing = false;
    const lead = leader({
      ...place,
      async open(size) {
        const view = await place.open(size);
        const put: typeof view.put = (letters) => {
          // As on a disk that has gone bad.
          if (!failing || view.path === undefined) return view.put(letters);
          throw Object.assign(new Error("disk I/O error"), { code: "ERR_SQLITE_ERROR" });
        };
        return Object.create(view, { put: { value: put } }) as typeof view;
      },
    });
    await follow(lead);
    failing = true;
    await scene.failed("b", 1, "boom");
    await scene.queue.pass(5_000);
    await lead.pass();
    expect(files()).toEqual([]);
    expect(await follow(lead)).toEqual(await scene.fresh());
    lead.rest();
  });
});
