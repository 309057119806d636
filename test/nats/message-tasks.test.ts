import pg from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/runtime/connect.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { until } from "../crash/until.ts";
import { expectWhole, startSender, waitsFor } from "../sessions/message-tasks.ts";
import { type NatsCluster, startNatsCluster } from "./server.ts";

let cluster: NatsCluster;
beforeAll(async () => {
  cluster = await startNatsCluster();
});
afterAll(() => cluster.stop());

test.each([
  ["log_watermark", "update flotilla.log_watermark set"],
  ["task", "insert into flotilla.task ("],
])(
  "S13: with logs on NATS, a pod that is killed while the table %s can't be written has its messages and their tasks stored once by the next one",
  async (locked, statement) => {
    const place = await temporaryDatabase();
    onTestFinished(() => place.remove());
    const monitor = cluster.servers.map((each) => each.monitorUrl);
    const namespace = `tasks_${locked}`;
    const nats = { servers: cluster.urls, use: "all", monitor, namespace } as const;
    const given = { store: place.url, nats, session: "s1" };
    const sender = await startSender(given);
    sender.send("before");
    await using web = connect(place.url, { nats });
    await until("it is acknowledged", () => sender.acked.has("before"));
    const [first] = sender.acked.get("before")!;
    await until("its tasks are in the database", async () => web.tasks.get(first!));
    const client = new pg.Client(place.url);
    await client.connect();
    onTestFinished(() => client.end());
    await client.query("begin");
    await client.query(`lock table flotilla.${locked} in exclusive mode`);
    sender.send("between");
    await until("it is acknowledged", () => sender.acked.has("between"));
    const [taskId] = sender.acked.get("between")!;
    expect(await web.tasks.get(taskId!)).toBeUndefined();
    await waitsFor(client, statement);
    await sender.kill();
    await client.query("commit");
    expect([...(await expectWhole(given, sender.acked))]).toEqual(["before", "between"]);
  },
  180_000,
);
