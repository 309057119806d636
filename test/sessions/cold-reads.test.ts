import { setImmediate } from "node:timers/promises";
import pg from "pg";
import { connect, startPod, task } from "flotilla";
import { expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";

const double = task("double", {}, ({ input }: { input: number }) => input * 2);

test("on Postgres, clients that read as much as they may hold up no ack, no claim and no client that is live", async () => {
  const { url: plain, remove } = await temporaryDatabase();
  // Longer than this machine may be busy: what waits for the lock is to wait until it is given up.
  const url = `${plain}?connectTimeoutMs=120000&lockTimeoutMs=120000&statementTimeoutMs=120000&answerTimeoutMs=180000`;
  const maxPayloadBytes = 1_000_000;
  const pod = await startPod({
    store: url,
    use: [double],
    log: silentLogger,
    dataDir: false,
    maxPayloadBytes,
  });
  const web = connect(url, { maxPayloadBytes });
  const holder = new pg.Client(plain);
  await holder.connect();
  const chats = await Promise.all(
    Array.from({ length: 8 }, () => pod.sessions.create(null, { user: "ada" })),
  );
  const followed = await pod.sessions.create(null);
  const events = web.sessions.open(followed.sessionId).events();
  expect(await events.next()).toMatchObject({ value: { type: "state" } });

  // What lists read for a user, and nothing that is said or claimed touches.
  await holder.query("begin; lock table flotilla.session_user in access exclusive mode");
  let listed = 0;
  const flood = [pod.sessions, web.sessions].flatMap((sessions) =>
    Array.from({ length: 20 }, async () => {
      await sessions.list({ user: "ada" });
      listed++;
    }),
  );
  let joined = false;
  const join = chats[0]!.entries().then(() => (joined = true));
  for (const chat of chats) {
    expect(await chat.send("hello")).toMatchObject({ seq: 1 });
    expect(await web.sessions.open(chat.sessionId).send("again")).toMatchObject({ seq: 2 });
  }
  expect(await web.waitFor(await web.enqueue(double, 21))).toBe(42);
  // More than an envelope between processes holds, so that it is read where it is followed.
  await followed.send("x".repeat(400_000));
  expect(await events.next()).toMatchObject({ value: { type: "entry", entry: { seq: 1 } } });
  await setImmediate();
  expect([listed, joined]).toEqual([0, false]);

  await holder.query("rollback");
  await Promise.all([...flood, join]);
  expect(listed).toBe(40);
  await holder.end();
  await events.return?.();
  await web.close();
  await pod.stop();
  await remove();
});
