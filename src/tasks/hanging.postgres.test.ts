import pg from "pg";
import { afterAll, expect, test } from "vitest";
import { openPostgres } from "../store/postgres/postgres.ts";
import { lockWaits, temporaryDatabase } from "../store/contract/kinds.ts";
import { closeStores, openTasks } from "./contract/harness.ts";
import { task } from "./task.ts";

afterAll(closeStores);

const hangingCount = 6;

test("handlers that hang in their own transactions after `complete` don't take all connections", async () => {
  const { url, remove } = await temporaryDatabase();
  const queue = await openTasks({
    name: "Postgres with little patience",
    open: async () => ({ database: await openPostgres({ url, lockTimeoutMs: 2_000 }), remove }),
  });
  const clients: pg.Client[] = [];
  let completed = 0;
  const hanging = task<number>("hanging", { timeoutMs: 5_000, attempts: 1 }, async (context) => {
    const client = new pg.Client(url);
    clients.push(client);
    await client.connect();
    await client.query("begin");
    await context.complete(client, "never committed");
    completed++;
    await new Promise(() => {});
  });
  const quick = task("quick", {}, () => "done");
  await queue.work("pod-1", [hanging, quick], { graceMs: 100 });
  const inputs = Array.from({ length: hangingCount }, (_, at) => at);
  const stuck = await queue.enqueueMany("hanging", inputs);
  await queue.until("all hang", () => completed === hangingCount);
  await queue.clock.advance(5_000);
  await queue.clock.advance(200);

  const watcher = new pg.Client(url);
  await watcher.connect();
  let most = 0;
  const waits = async () => {
    const { rows } = await watcher.query(lockWaits);
    most = Math.max(most, rows.length);
    return rows.length;
  };
  await queue.until("some wait", async () => (await waits()) > 0);
  for (let round = 0; round < 5; round++) {
    const { taskId } = await queue.enqueue("quick", round);
    await queue.until(`${taskId} has ended`, async () => {
      await waits();
      return (await queue.get(taskId))?.status === "completed";
    });
  }
  expect(most).toBeLessThanOrEqual(2);
  const statuses = await Promise.all(stuck.map(async ({ taskId }) => queue.get(taskId)));
  expect(statuses.map((each) => each!.status)).toEqual(stuck.map(() => "claimed"));

  await watcher.end();
  for (const client of clients) await client.end();
  for (const { taskId } of stuck) {
    await queue.until("it fails", async () => {
      await queue.clock.advance(1_000);
      return (await queue.get(taskId))?.status === "failed";
    });
  }
  await queue.close();
});
