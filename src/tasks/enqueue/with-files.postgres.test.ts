import pg from "pg";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { hourMs } from "../../base/durations.ts";
import { createFiles } from "../../files/files.ts";
import { createFilesLeader } from "../../files/leader.ts";
import { file } from "../../files/new-file.ts";
import { lockWaits, temporaryDatabase } from "../../store/contract/kinds.ts";
import { openPostgres } from "../../store/postgres/postgres.ts";
import { sql, table } from "../../store/sql.ts";
import { closeStores, openTasks } from "../contract/harness.ts";

afterAll(closeStores);

test("the collector waits for an enqueue that has begun, and takes none of its files", async () => {
  const { url, remove } = await temporaryDatabase();
  const queue = await openTasks({
    name: "Postgres with a watcher",
    open: async () => ({ database: await openPostgres({ url }), remove }),
  });
  const session = new pg.Client(url);
  const watcher = new pg.Client(url);
  onTestFinished(async () => {
    await Promise.all([session.end(), watcher.end()]);
    await queue.close();
  });
  await Promise.all([session.connect(), watcher.connect()]);
  const waits = async () => (await watcher.query(lockWaits)).rows.length;
  const leader = createFilesLeader({ ...queue, files: createFiles(queue) });
  const collected = async () => {
    await queue.database.write([
      sql`update ${table("file_reference")} set at = at - ${2 * hourMs}`,
      sql`update ${table("file")} set unused_at = unused_at - ${2 * hourMs}`,
    ]);
    await leader.pass();
  };

  const tasks = queue.client();
  const doc = await tasks.files.store(file(new TextEncoder().encode("in time")));
  await queue.database.write([sql`update ${table("file_reference")} set at = at - ${2 * hourMs}`]);
  // The insert waits for another one with its key, which is rolled back in the end.
  await session.query("begin");
  await session.query(
    "insert into flotilla.task (task_id, name, payload, unique_key) values ('t', 'read', 'null', 'k')",
  );
  const enqueued = tasks.enqueue("read", { doc }, { key: "k" });
  await until("the enqueue to wait", async () => (await waits()) === 1);
  let isCollected = false;
  const pass = leader.pass().then(() => (isCollected = true));
  await until("the collector", async () => isCollected || (await waits()) === 2);
  await session.query("rollback");
  await pass;

  const { taskId } = await enqueued;
  for (let passes = 0; passes < 3; passes++) await collected();
  expect(new TextDecoder().decode(await tasks.files.read(taskId, doc))).toBe("in time");
});
