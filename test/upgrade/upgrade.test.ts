import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { FlotillaError } from "../../src/base/errors.ts";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { task } from "../../src/tasks/task.ts";
import { connect } from "../../src/runtime/connect.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { migrate, schemaState } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { migrations } from "../../src/store/schema.ts";
import { kinds, type Place } from "./places.ts";
import { dialects } from "./plain.ts";
import { kept, schemaSql, versions } from "./versions.ts";

const newest = migrations.length;
const firstWithSteps = 2;
const firstWithLinks = 3;
const firstWithVersions = 4;
const firstWithKeys = 5;
const firstWithFacts = 6;
const firstWithAliases = 7;
const double = task("old", {}, ({ input }: { input: number }) => ({ doubled: input * 2 }));
// Each row of a journal answers, and nothing that it holds is called again.
const calls: string[] = [];
const called = (name: string) => void calls.push(name);
const stepped = task<number, number, unknown>("steps", { attempts: 1 }, async ({ step }) => [
  await step("first", { input: { url: "a" } }, () => called("first")),
  await step.loop<{ n: number }, number>("loop", { n: 0 }, ({ n }, { done }) => done(n * 10)),
  await step("outer", (outer) => outer.step("inner", () => called("inner"))),
  await step("each", { key: "a]b" }, () => called("each")).catch((error: Error) => error.message),
  await step("once", { once: true }, () => called("once")).catch(
    (error: FlotillaError) => error.code,
  ),
  await step("new", () => "new"),
]);
const versioned = task<number, number, unknown>(
  "versions",
  { version: 2 },
  ({ begunBy }) => begunBy,
);
const settings = {
  use: [double, stepped, versioned],
  log: silentLogger,
  heartbeatMs: 100,
  deadAfterMs: 500,
  // What the versions hold has long been finished, and is still to be seen.
  retentionMs: 3_650 * 24 * 60 * 60_000,
};
const cases = kinds.flatMap((kind) => versions.map((version) => ({ ...kind, version })));

describe.each(cases)("schema version $version on $dialect", ({ dialect, version, empty }) => {
  let place: Place;
  beforeEach(async () => {
    place = await empty();
  });
  afterEach(() => place.remove());

  test("is kept as it was, and the steps to it still make the same", async () => {
    await place.exec(kept(version, dialect, "schema"));
    const shape = await place.shape();
    expect(shape.length).toBeGreaterThan(10);
    const made = await empty();
    await made.exec(schemaSql(version, dialects[dialect]!));
    const present = await made.shape();
    await made.remove();
    const changed = [
      ...shape.filter((each) => !present.includes(each)),
      ...present.filter((each) => !shape.includes(each)),
    ];
    const advice = `add another step, or, if version ${version} was never released: npx node test/upgrade/write.ts ${version}`;
    expect([...changed, ...(changed.length > 0 ? [advice] : [])]).toEqual([]);
  });

  test("becomes the newest, and whatever it held goes on", async () => {
    await place.exec(kept(version, dialect, "schema"));
    await place.exec(kept(version, dialect, "rows"));
    await using pod = await startPod({ ...settings, store: place.url });

    const runs = ["pending", "overdue", "retrying", "poison", "claimed", "orphaned", "traced"];
    const ends = runs.map((taskId) => pod.tasks.settled(taskId, { timeoutMs: 90_000 }));
    expect(await Promise.all(ends)).toEqual(
      runs.map((taskId) =>
        expect.objectContaining({ taskId, status: "completed", result: { doubled: 2 } }),
      ),
    );
    const steps = [
      ...(version >= firstWithSteps ? ["stepped"] : []),
      ...(version >= firstWithVersions ? ["versioned"] : []),
    ];
    for (const taskId of steps) await pod.tasks.settled(taskId, { timeoutMs: 90_000 });
    const goesOn = { version: 2, result: 1 };
    expect([await pod.tasks.get("versioned")]).toMatchObject([
      version >= firstWithVersions ? goesOn : undefined,
    ]);
    const ended = await pod.tasks.settled("cancelling", { timeoutMs: 90_000 });
    expect(ended.status).toBe("cancelled");
    expect(await pod.tasks.get("claimed")).toMatchObject({ deaths: 1 });
    expect(await pod.tasks.get("waiting")).toMatchObject({ status: "pending" });
    expect(await pod.tasks.get("completed")).toMatchObject({
      result: { doubled: 2 },
      progress: "half",
    });
    const promised = version >= firstWithAliases ? { taskId: "completed" } : undefined;
    expect([await pod.tasks.get("promised")]).toMatchObject([promised]);
    expect(await pod.enqueue(double, 1, { key: "once" })).toEqual({
      taskId: "completed",
      created: false,
    });

    expect((await pod.tasks.events("failed")).map(({ type }) => type)).toEqual(["retry", "failed"]);
    await pod.tasks.retry("failed");
    expect(await pod.waitFor("failed")).toEqual({ doubled: 2 });
    const { tasks } = await pod.tasks.list();
    expect(tasks).toHaveLength(runs.length + steps.length + 5);
    expect((await pod.tasks.stats()).byStatus).toEqual({
      pending: 1,
      claimed: 0,
      completed: runs.length + steps.length + 2,
      failed: 0,
      cancelled: 2,
    });

    const answered = steps.filter((taskId) => taskId === "stepped");
    expect(await Promise.all(answered.map((taskId) => pod.waitFor(taskId)))).toEqual(
      answered.map(() => [{ words: 3 }, 20, "inner", "no such page", "unknown_outcome", "new"]),
    );
    expect(calls).toEqual([]);

    const talk = pod.sessions.open("talk", { user: "ada" });
    expect(await talk.send("again")).toMatchObject({ seq: 2 });
    expect((await talk.entries()).entries.map(({ seq }) => seq)).toEqual([1, 2]);
    expect((await pod.sessions.list()).sessions).toMatchObject([{ sessionId: "talk", lastSeq: 2 }]);

    const startedBy = version >= firstWithLinks ? { what: "session", id: "talk" } : null;
    expect(await pod.tasks.links("completed")).toMatchObject({ startedBy, started: [] });
    const turn = { epoch: 1, attempt: 1, usage: { model: "small", cost: 1.5 } };
    expect((await talk.turns()).turns).toMatchObject(version >= firstWithLinks ? [turn] : []);

    await using flotilla = connect(place.url);
    const hasKeys = version >= firstWithKeys;
    expect((await flotilla.keys.list()).keys).toMatchObject(hasKeys ? [{ name: "web" }] : []);
    // It was not used for more than an hour.
    expect((await flotilla.signIns.list()).signIns).toEqual([]);
    const { entries } = await flotilla.audit.list({ actor: "key/web" });
    expect(entries).toMatchObject(hasKeys ? [{ subject: "failed" }] : []);
    const { bulks } = await flotilla.bulk.list();
    const stopped = { bulkId: "bulk-1", state: "stopped", matched: 9, done: 1 };
    expect(bulks).toMatchObject(version >= firstWithFacts ? [stopped] : []);
  });

  test("can be upgraded by a release that checks only, once it was migrated", async () => {
    await place.exec(kept(version, dialect, "schema"));
    const checked = await openStore(place.url, { migrate: "check" }).then(
      (database) => database.close(),
      (error: FlotillaError) => error.code,
    );
    expect(checked).toBe(version < newest ? "store_outdated" : undefined);
    await (await openStore(place.url)).close();
    const database = await openStore(place.url, { migrate: "check" });
    expect(await schemaState(database)).toMatchObject({ version: newest, pending: [] });
    await database.close();
  });

  test("is that of pods that work beside the newest, where the newest allows it", async () => {
    const database = await openStore(place.url);
    const { needs } = await schemaState(database);
    const refused = await migrate(database, { migrations: migrations.slice(0, version) }).then(
      () => undefined,
      (error: FlotillaError) => error.code,
    );
    await database.close();
    expect(refused).toBe(needs > version ? "store_newer" : undefined);
    if (refused !== undefined) return;

    await place.exec(kept(version, dialect, "rows"));
    await place.exec(kept(version, dialect, "work"));
    await using tasks = connect(place.url);
    expect(await tasks.tasks.get("worked-1")).toMatchObject({
      status: "completed",
      result: { doubled: 2 },
      progress: "half",
    });
    expect((await tasks.tasks.events("worked-1")).map(({ type }) => type)).toEqual(["noted"]);
    // It was recovered, cancelled, retried, given back, finished, and then deleted, unless it is so
    // young that pods of this version leave it alone.
    const last = await tasks.tasks.get("worked-2");
    expect(last?.status).toBe("completed");
    await until("the rows", async () => (await tasks.tasks.stats()).byStatus.claimed === 3);
  });
});

describe.each(kinds)("tables from before the first release on $dialect", ({ dialect, empty }) => {
  test("are refused with what to do, and left as they are", async () => {
    const place = await empty();
    const migration = dialects[dialect]!.table("migration");
    if (dialect === "postgres") await place.exec("create schema flotilla");
    await place.exec(`create table ${migration} (
      id integer primary key, name text not null, needs integer not null, applied_at bigint not null)`);
    await place.exec(`insert into ${migration} values (1, 'tasks and pods', 1, 1)`);
    const before = await place.shape();
    for (const migrate of ["auto", "check"] as const) {
      await expect(openStore(place.url, { migrate })).rejects.toMatchObject({
        code: "store_outdated",
        message: expect.stringContaining("before its first release, and can't be upgraded: name"),
      });
    }
    expect(await place.shape()).toEqual(before);
    await place.remove();
  });
});
