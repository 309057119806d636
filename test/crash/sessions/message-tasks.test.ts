import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase, temporaryFile } from "../../../src/store/contract/kinds.ts";
import { expectWhole, startSender, waitsFor } from "../../sessions/message-tasks.ts";
import { until } from "../until.ts";

test("S13: on sqlite, a pod that is killed leaves each message with its tasks, or neither", async () => {
  const { path, remove } = temporaryFile();
  onTestFinished(remove);
  const given = { store: `sqlite:${path}`, session: "s1" };
  const acked = new Map<string, readonly string[]>();
  for (let round = 0; round < 4; round++) {
    const sender = await startSender(given);
    for (let nth = 0; nth < 30; nth++) sender.send(`${round}-${nth}`);
    // Others are on their way then.
    await until("some are acknowledged", () => sender.acked.size >= 3 * round);
    await sender.kill();
    for (const [id, taskIds] of sender.acked) acked.set(id, taskIds);
  }
  expect(acked.size).toBeGreaterThan(0);
  await expectWhole(given, acked);
});

test("S13: on postgres, a pod that dies with its connection before its tasks are stored has stored no message", async () => {
  const place = await temporaryDatabase();
  onTestFinished(() => place.remove());
  const given = { store: place.url, session: "s1" };
  const sender = await startSender(given);
  sender.send("before");
  await until("it is acknowledged", () => sender.acked.has("before"));
  const client = new pg.Client(place.url);
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("begin");
  await client.query("lock table flotilla.task in exclusive mode");
  sender.send("between");
  const waiting = await waitsFor(client, "insert into flotilla.task (");
  await sender.kill();
  // The server has the whole transaction, and would go on with it.
  await client.query("select pg_terminate_backend($1)", [waiting]);
  await client.query("commit");
  expect([...sender.acked.keys()]).toEqual(["before"]);
  expect([...(await expectWhole(given, sender.acked))]).toEqual(["before"]);
});
