import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { memoryKind } from "../../store/contract/kinds.ts";
import { sql, table } from "../../store/sql.ts";
import { awaySharesContract } from "../contract/away-shares.ts";
import { memoryDocuments } from "../contract/memory-documents.ts";
import { closeFleets, type Fleet, openFleet } from "../contract/shares-fleet.ts";
import { sharesContract } from "../contract/shares.ts";
import { decodeDocument, encodeDocument } from "./document.ts";
import { changeShares, insertThrottles } from "./sql.ts";

afterAll(closeFleets);

const second = 1_000;
let documents: ReturnType<typeof memoryDocuments>;
const kind = {
  ...memoryKind,
  name: "documents beside a store",
  openDocuments: async () => (documents = memoryDocuments()),
};

sharesContract(kind);
awaySharesContract(kind);

describe("a document of shares", () => {
  let fleet: Fleet;
  beforeEach(async () => {
    fleet = await openFleet(kind);
  });
  afterEach(() => fleet.close());

  test("takes the limit that was learned, from any pod that has read it last", async () => {
    const a = fleet.join("a");
    a.ask(9);
    await fleet.pass(2 * second);
    expect(a.held).toBe(8);
    await fleet.database.write([
      sql`update ${table("throttle")} set bound = 3, epoch = epoch + 1, rev = rev + 1`,
    ]);
    await fleet.pass(2 * second);
    expect(await fleet.rowNow()).toMatchObject({ bound: 3, epoch: 2 });
    a.rest();
    a.limiter.setBlockedTasks(9);
    await fleet.pass(2 * second);
    expect(await fleet.shares()).toEqual({ a: 3 });
  });

  test("keeps the shares that pods had in the row before there was one", async () => {
    const { database, place } = fleet;
    const old = { share: 8, renewal: 1, leaseMs: 60_000, longestMs: second };
    await database.write([insertThrottles([{ ...place, bound: 8, settings: "{}" }])]);
    const { rev } = (await fleet.rowInStore())!;
    await database.write([changeShares(place, rev, JSON.stringify({ old }))]);
    const a = fleet.join("a");
    a.ask(8);
    await fleet.pass(2 * second);
    expect(await fleet.shares()).toEqual({ old: 8 });
    expect(a.held).toBe(0);
  });

  test.each(["well", "no database"] as const)(
    "that goes for want of room is made again with the shares that pods use, while a pod is: %s",
    async (way) => {
      const a = fleet.join("a");
      const b = fleet.join("b");
      // Both have used the throttle, and a has all of it.
      b.ask(1);
      await fleet.pass(2 * second);
      b.rest();
      await fleet.pass(8 * second);
      a.ask(8);
      await fleet.pass(3 * second);
      expect([a.held, b.held]).toEqual([8, 0]);
      for (const pod of [a, b]) pod.state.way = way;
      b.limiter.setBlockedTasks(8);
      for (let times = 0; times < 4; times++) {
        documents.evict();
        for (let passed = 0; passed < 3; passed++) {
          await fleet.pass(second / 2);
          const permits = Array.from({ length: 8 }, () => b.limiter.tryAcquire());
          const granted = permits.filter((permit) => permit !== undefined);
          expect(a.held + granted.length).toBeLessThanOrEqual(8);
          for (const permit of granted) permit.release("success");
        }
      }
      expect(await fleet.shares()).toEqual({ a: 8 });
    },
  );

  test("is copied into the row, also what a pod gives back at last", async () => {
    const a = fleet.join("a");
    a.ask(3);
    await fleet.pass(2 * second);
    expect((await fleet.rowInStore())!.shares).toMatchObject({ a: { share: 5 } });
    a.rest();
    await fleet.pass(8 * second);
    expect((await fleet.rowInStore())!.shares).toEqual({});
  });

  test.each([
    "",
    "null",
    "[]",
    '{"v":2,"bound":1,"epoch":0,"gate":"{}","pass":0,"of":0,"shares":"{}"}',
    '{"v":1,"bound":-1,"epoch":0,"gate":"{}","pass":0,"of":0,"shares":"{}"}',
    '{"v":1,"bound":1,"epoch":0,"gate":"{\\"breaker\\":\\"ajar\\"}","pass":0,"of":0,"shares":"{}"}',
    '{"v":1,"bound":1,"epoch":0,"gate":"{}","pass":0,"of":0,"shares":"{\\"a\\":{\\"share\\":\\"9\\"}}"}',
  ])("that no pod of this release has written grants nothing: %s", (text) => {
    expect(() => decodeDocument(text)).toThrow("by a later release");
  });

  test("is read as it was written", () => {
    const entry = { share: 2, renewal: 7, leaseMs: 3_000, longestMs: 10.5, host: "h" };
    const shares = JSON.stringify({ a: entry });
    const gate = '{"breaker":"open","holdMs":5,"refillPerS":1.5,"silent":{"b":3}}';
    const document = { bound: 4, epoch: 2, gate, pass: 9, of: 12, shares };
    expect(decodeDocument(encodeDocument(document))).toEqual(document);
  });
});
