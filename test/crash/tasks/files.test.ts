import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { hourMs } from "../../../src/base/durations.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { between, seededRandom, systemRandom } from "../../../src/base/random.ts";
import { createFiles } from "../../../src/files/files.ts";
import { createFilesLeader } from "../../../src/files/leader.ts";
import { fileUrl } from "../../../src/protocol/file.ts";
import { openStore } from "../../../src/store/open.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import type { PodProcess } from "../pod-handle.ts";
import { pauseFor, until } from "../until.ts";
import { contentOf, type TurnedFile, turned, type TurningGiven } from "./file-contents.ts";

const script = fileURLToPath(new URL("./files-process.ts", import.meta.url));
const rounds = 4;
/** About as long as a task takes, from its upload to the file of its result. */
const killWithinMs = 150;
const acksBeforeKill = 3;
const acksPerPass = 2;
const lanes = 2;

type Collector = { pass(): Promise<void> };
type Turning = PodProcess & { readonly acked: () => string[] };

describe.each(storeKinds)("on %s, files of tasks", (on) => {
  test("are whole and leave nothing, however often pods are killed and whenever the collector comes", async () => {
    const fleet = await createFleet({ on });
    await using collector = await collectorOn(fleet);
    const random = seededRandom(77);
    const all: Turning[] = [];
    const start = async (producing = lanes): Promise<Turning> => {
      const pod = await startTurning(fleet, { at: all.length, producing });
      all.push(pod);
      return pod;
    };
    const acked = () => all.flatMap((pod) => pod.acked());

    const pods = await Promise.all([start(), start()]);
    await using collecting = collectDuring(collector, () => acked().length);
    for (let round = 0; round < rounds; round++) {
      const at = round % pods.length;
      const victim = pods[at]!;
      await until("the pod to store tasks, and to run some", async () => {
        if (victim.acked().length < acksBeforeKill) return false;
        return (
          (await countOf(fleet, "task", `status = 'claimed' and claimed_by = '${victim.podId}'`)) >
          0
        );
      });
      await pauseFor(between(random, 0, killWithinMs));
      await victim.kill();
      pods[at] = await start();
    }
    await Promise.all(pods.map((pod) => pod.kill()));
    await collecting.stop();

    const last = await start(0);
    await until("the end of all tasks", async () => {
      return (await countOf(fleet, "task", "status in ('pending', 'claimed')")) === 0;
    });
    await last.kill();
    // Else no pod was killed while it had something to do.
    expect(await countOf(fleet, "task", "deaths > 0")).toBeGreaterThan(0);
    await collectAll(fleet, collector);
    await expectWhole(fleet, acked());
    await expectNoneLeft(fleet);

    await fleet.sql("update flotilla_task set created_at = 0, last_update = 0");
    await fleet.flotilla.tasks.prune({ olderThanMs: 60_000 });
    await collectAll(fleet, collector);
    for (const table of ["task", "file", "file_part", "file_reference"]) {
      expect([table, await countOf(fleet, table)]).toEqual([table, 0]);
    }
    expect(await fleet.sql("select files, bytes from flotilla_file_count")).toEqual([
      { files: 0, bytes: 0 },
    ]);
  });
});

/** Every task that is there, acked or not, has the files that it was given and those that it has returned. */
async function expectWhole(fleet: Fleet, acked: readonly string[]): Promise<void> {
  const rows = await fleet.sql("select task_id, status, deaths from flotilla_task");
  const ids = new Set(rows.map((row) => String(row["task_id"])));
  expect(acked.filter((taskId) => !ids.has(taskId))).toEqual([]);
  let files = 0;
  const unfinished: number[] = [];
  const check = async (taskId: string, doc: TurnedFile["doc"], content: Uint8Array) => {
    expect(doc).toMatchObject({ url: fileUrl(hashOf(content)), size: content.length });
    const read = await fleet.flotilla.tasks.files.read(taskId, doc);
    expect([taskId, hashOf(read)]).toEqual([taskId, hashOf(content)]);
    files++;
  };
  for (const taskId of ids) {
    const task = (await fleet.flotilla.tasks.get(taskId))!;
    const { seed, doc } = task.payload as TurnedFile;
    const content = contentOf(seed);
    await check(taskId, doc, content);
    // One that has seen too many pods die fails.
    if (task.status === "completed") {
      const result = task.result as TurnedFile;
      await check(taskId, result.doc, turned(content));
    } else unfinished.push(task.deaths);
  }
  expect(unfinished.filter((deaths) => deaths <= 2)).toEqual([]);
  // A task refers to these alone: also one that was replaced, and one that was tried more than once.
  expect(await countOf(fleet, "file_reference", "owner_kind = 'task' and kept = 1")).toBe(files);
}

/** After the hour that uploads have: every part is of a file, and every file is referred to. */
async function expectNoneLeft(fleet: Fleet): Promise<void> {
  const left = {
    uploads: await countOf(fleet, "file_reference", "kept = 0 or owner_kind <> 'task'"),
    remnants: await countOf(fleet, "file_remnant"),
    parts: await countOf(fleet, "file_part", "file_id not in (select file_id from flotilla_file)"),
    files: await countOf(
      fleet,
      "file",
      "file_id not in (select file_id from flotilla_file_reference)",
    ),
  };
  expect(left).toEqual({ uploads: 0, remnants: 0, parts: 0, files: 0 });
  const [sum] = await fleet.sql("select count(*) as files, sum(size) as bytes from flotilla_file");
  expect(await fleet.sql("select tenant, files, bytes from flotilla_file_count")).toEqual([
    { tenant: "default", files: Number(sum!["files"]), bytes: Number(sum!["bytes"]) },
  ]);
}

async function startTurning(
  fleet: Fleet,
  { at, producing }: { at: number; producing: number },
): Promise<Turning> {
  const acksPath = join(fleet.folder, `pod-${at}.acks`);
  const given: TurningGiven = { acksPath, firstSeed: (at + 1) * 10_000, lanes: producing };
  const pod = await fleet.start({ script, given });
  const acked = () => {
    if (!existsSync(acksPath)) return [];
    // What follows the last line break is empty, or the line that a kill has torn.
    return readFileSync(acksPath, "utf8").split("\n").slice(0, -1);
  };
  return Object.assign(pod, { acked });
}

/** The leader's work on files, two hours after everything that was stored until then. */
async function collectorOn(fleet: Fleet) {
  const database = await openStore(fleet.store as `sqlite:${string}`, { migrate: "check" });
  const time = { clock: systemClock, random: systemRandom, ids: uuidv7(systemClock, systemRandom) };
  const files = createFiles({ ...time, database });
  const leader = createFilesLeader({ database, files, clock: systemClock });
  const age = (table: string, column: string) =>
    fleet.sql(`update flotilla_${table} set ${column} = ${column} - ${2 * hourMs}`);
  return {
    async pass() {
      await age("file_reference", "at");
      await age("file_remnant", "began_at");
      await age("file", "unused_at");
      await leader.pass();
    },
    [Symbol.asyncDispose]: () => database.close(),
  };
}

/** What one pass drops is what the next one finds unused, and those behind it remove, some at a time. */
async function collectAll(fleet: Fleet, collector: Collector): Promise<void> {
  for (let pass = 0; pass < 4; pass++) await collector.pass();
  await until("the bytes to be removed", async () => {
    if ((await countOf(fleet, "file_remnant")) === 0) return true;
    await collector.pass();
    return false;
  });
}

/** No upload is too young for these passes. Between them some get through, or tasks would wait for ever. */
function collectDuring(collector: Collector, acked: () => number) {
  let over = false;
  const collect = async () => {
    for (let seen = 0; !over; await pauseFor(10)) {
      if (acked() < seen + acksPerPass) continue;
      seen = acked();
      await collector.pass();
    }
  };
  const ended = collect();
  // It is told when the test asks for it.
  ended.catch(() => {});
  const stop = () => {
    over = true;
    return ended;
  };
  return { stop, [Symbol.asyncDispose]: stop };
}

async function countOf(fleet: Fleet, table: string, where = "1 = 1"): Promise<number> {
  const text = `select count(*) as found from flotilla_${table} where ${where}`;
  return Number((await fleet.sql(text))[0]!["found"]);
}

const hashOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
