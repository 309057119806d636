import { expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { silentLogger } from "../../base/log.ts";
import type { MetaState } from "../../sessions/log/jetstream/streams.ts";
import { memoryKind } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { createPlacedLogs, type LogSide } from "./placed-logs.ts";

/** Follows logs by a store and what streams say of them, and tells what was asked of which side. */
async function following(at: LogSide["place"]) {
  const { database } = await memoryKind.open();
  await migrate(database);
  const clock = movableClock();
  const asked: string[] = [];
  let meta: MetaState = "live";
  let opened = 0;
  /** Holds the opening of streams, and what they say, until it resolves. */
  let slow: Promise<void> | undefined;
  const side = (place: LogSide["place"]) => {
    const name = `${place} ${++opened}`;
    return {
      place,
      journal: { header: async () => void asked.push(name), behindMs: () => undefined },
      meta: async () => (await slow, meta),
      listen() {},
      start() {},
      stop: async () => void asked.push(`${name} ends`),
    } as unknown as LogSide;
  };
  const move = async (place: LogSide["place"], state: MetaState) => {
    meta = state;
    await database.write([sql`update ${table("log_place")} set place = ${place}`]);
  };
  await move(at, "live");
  const logs = createPlacedLogs({
    first: side(at),
    openStored: () => side("sql"),
    openStreams: async () => (await slow, side("nats")),
    database,
    clock,
    log: silentLogger,
    proofMs: 2_000,
  });
  const settled = async (what: string, isSo: () => boolean) => {
    await until(what, async () => {
      await clock.advance(100);
      return isSo();
    });
  };
  const hold = (): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    slow = promise;
    return resolve;
  };
  return { logs, clock, move, asked, settled, hold, close: () => database.close() };
}

test("logs that went to streams and came back before it got there are followed back", async () => {
  const t = await following("sql");
  await t.move("nats", "moving");
  await t.logs.look();
  expect(t.logs.isMoving).toBe(true);
  await t.move("sql", "closed");
  await t.settled("the end of the move", () => !t.logs.isMoving);
  expect(t.logs.place).toBe("sql");
  await t.logs.journal.header("s");
  expect(t.asked.at(-1)).toBe("sql 1");
  expect(t.asked).not.toContain("sql 1 ends");
  await t.logs.stop();
  await t.close();
});

test("logs that left streams and went to others before it looked are followed there, by one side at a time", async () => {
  const t = await following("nats");
  await t.move("nats", "closed");
  await t.logs.look();
  await t.move("nats", "moving");
  await t.settled("a look", () => t.logs.isMoving);
  await t.move("nats", "live");
  await t.settled("the end of the move", () => !t.logs.isMoving);
  await t.logs.journal.header("s");
  expect(t.asked).toEqual(["nats 1 ends", "nats 2"]);
  await t.logs.stop();
  expect(t.asked.filter((each) => each.endsWith("ends"))).toEqual(["nats 1 ends", "nats 2 ends"]);
  await t.close();
});

test("what is under way at its stop leaves no timer behind", async () => {
  const t = await following("sql");
  t.logs.start();
  const open = t.hold();
  const asked = Promise.allSettled([t.logs.prepare(), t.logs.prepare()]);
  const stopping = t.logs.stop();
  open();
  await stopping;
  expect((await asked).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(t.clock.timers).toBe(0);
  await t.close();
});

test("a look at streams that ends after its stop leaves no timer behind", async () => {
  const t = await following("nats");
  t.logs.start();
  const answer = t.hold();
  await t.clock.advance(2_000);
  await t.logs.stop();
  answer();
  await t.clock.advance(0);
  expect(t.clock.timers).toBe(0);
  await t.close();
});

test("what two questions have opened for a move that doesn't come is closed once, after the second", async () => {
  const t = await following("sql");
  const open = t.hold();
  const asked = [t.logs.prepare(), t.logs.prepare()];
  open();
  await Promise.all(asked);
  expect(t.clock.timers).toBe(1);
  await t.clock.advance(60_000);
  await t.logs.prepare();
  await t.clock.advance(60_000);
  expect(t.asked).toEqual([]);
  await t.clock.advance(60_000);
  expect(t.asked).toEqual(["nats 2 ends"]);
  await t.logs.stop();
  expect(t.clock.timers).toBe(0);
  await t.close();
});
