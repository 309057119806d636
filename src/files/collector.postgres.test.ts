import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import { lockWaits, temporaryDatabase } from "../store/contract/kinds.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { openPostgres } from "../store/postgres/postgres.ts";
import { sql } from "../store/sql.ts";
import { deleteUnused, dropUnsent } from "./sql/files.ts";

let server: Awaited<ReturnType<typeof temporaryDatabase>>;
let database: Database;
let session: pg.Client;
let watcher: pg.Client;
beforeAll(async () => {
  server = await temporaryDatabase();
  database = await openPostgres({ url: server.url });
  await migrate(database);
  session = new pg.Client(server.url);
  watcher = new pg.Client(server.url);
  await Promise.all([session.connect(), watcher.connect()]);
});
afterAll(async () => {
  await Promise.all([session.end(), watcher.end(), database.close()]);
  await server.remove();
});

const waiting = async () => (await watcher.query(lockWaits)).rows.length > 0;

test("a file whose last reference goes while the collector looks at it is still known to be unused", async () => {
  await database.write([
    sql`insert into flotilla.file_count (tenant, files, bytes) values ('t', 1, 3)`,
    sql`insert into flotilla.file (file_id, tenant, hash, size, place, unused_at)
      values ('f', 't', 'h', 3, 'store', 1)`,
    sql`insert into flotilla.file_reference (owner_kind, owner_id, hash, file_id, size, metadata, kept)
      values ('session', 's', 'h', 'f', 3, '{}', 1)`,
  ]);
  // As a deletion of the session does it.
  await session.query("begin");
  const droppedMs = Date.now();
  await session.query("update flotilla.file set unused_at = $1", [droppedMs]);
  await session.query("delete from flotilla.file_reference");
  const collected = database.write(deleteUnused(["f"], 3_600_000));
  await until("the collector to wait", waiting);
  await session.query("commit");
  await collected;
  // One that is referred to was marked as in use here, and would never have been looked at again.
  const left = async () => database.read(sql`select unused_at from flotilla.file`);
  expect(await left()).toMatchObject([{ unused_at: droppedMs }]);
  await database.write(deleteUnused(["f"], -60_000));
  expect(await left()).toEqual([]);
});

test("a task that is completed while the collector looks at the files of its result keeps them", async () => {
  await database.write([
    sql`insert into flotilla.file (file_id, tenant, hash, size, place) values ('g', 't', 'h', 3, 'store')`,
    sql`insert into flotilla.task (task_id, name, payload, status, claim_token)
      values ('running', 'work', 'null', 'claimed', 1), ('done', 'work', 'null', 'completed', 1)`,
    sql`insert into flotilla.file_reference
        (owner_kind, owner_id, hash, file_id, size, metadata, kept, token, at)
      values ('task', 'running', 'h', 'g', 3, '{}', 0, 1, 1), ('task', 'done', 'h', 'g', 3, '{}', 0, 1, 1)`,
  ]);
  // The collector comes to wait in its first statement, which sees one of the tasks as still running.
  await session.query("begin");
  await session.query("select from flotilla.file_reference where owner_id = 'done' for update");
  const found = ["running", "done"].map((id) => ({ kind: "task", id, hash: "h" }) as const);
  const collected = database.write(dropUnsent(found, 3_600_000));
  await until("the collector to wait", waiting);
  await watcher.query("update flotilla.task set status = 'completed' where task_id = 'running'");
  await session.query("commit");
  await collected;
  const left = async () =>
    database.read(sql`select owner_id, kept from flotilla.file_reference order by owner_id`);
  expect(await left()).toMatchObject([
    { owner_id: "done", kept: 1 },
    { owner_id: "running", kept: 0 },
  ]);
  await database.write(dropUnsent(found, -60_000));
  expect(await left()).toMatchObject([{ kept: 1 }, { kept: 1 }]);
});
