import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { startPod, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { openStore } from "../../src/store/open.ts";

const docs = readFileSync(join(import.meta.dirname, "../../docs/postgres.md"), "utf8");
const [, recipe] = /^## From SQL and from triggers$.*?```sql\n(.*?)```/ms.exec(docs)!;

let url: string;
let remove: () => Promise<void>;
let client: pg.Client;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  await (await openStore(url)).close();
  client = new pg.Client(url);
  await client.connect();
  await client.query(recipe!);
});
afterEach(async () => {
  await client.end();
  await remove();
});

describe("a trigger that inserts tasks and calls wake()", () => {
  test("has an idle pod run each of them once without a poll, and none that was rolled back", async () => {
    const shipped: number[] = [];
    const claims: number[] = [];
    const noted = task("ship", {}, ({ input }: { input: { order: number } }) => {
      shipped.push(input.order);
    });
    await using _pod = await startPod(
      { store: url, use: [noted], log: silentLogger, pollMs: 60_000 },
      { onEvent: (event) => void (event.type === "claimed" && claims.push(event.tasks)) },
    );
    await expect.poll(() => claims[0]).toBe(0);
    await expect
      .poll(
        async () => (await client.query("select 1 from flotilla.pod where waiting = 1")).rowCount,
      )
      .toBe(1);

    await client.query("begin; insert into orders values (1, 10); rollback");
    for (const order of [2, 3, 4]) {
      await client.query("insert into orders values ($1, 10)", [order]);
      await expect.poll(() => shipped).toContain(order);
    }
    await client.query("insert into orders select n, 10 from generate_series(5, 54) n");
    await expect.poll(() => shipped.length).toBe(53);
    expect(shipped.toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 53 }, (_, at) => at + 2),
    );
  });

  test("notifies once for a transaction however often it is called, and not while no pod is idle", async () => {
    let told = 0;
    const listener = new pg.Client(url);
    listener.on("notification", ({ payload }) => {
      told++;
      expect(payload).toBe("");
    });
    await listener.connect();
    await listener.query("listen flotilla_hint");
    const call = async (times: number) => {
      await client.query(`select count(flotilla.wake()) from generate_series(1, ${times})`);
      // What was told before this question comes before its answer.
      await listener.query("select 1");
    };
    await call(10);
    expect(told).toBe(0);
    await client.query("insert into flotilla.pod (pod_id, waiting) values ('idle', 1)");
    await call(10_000);
    expect(told).toBe(1);
    await listener.end();
  });

  test("needs the schema, and no right on its tables", async () => {
    const role = `visitor_${process.pid}`;
    await client.query(`create role ${role}`);
    try {
      const asVisitor = async (text: string) => {
        await client.query(`set role ${role}`);
        try {
          return await client.query(text);
        } finally {
          await client.query("reset role");
        }
      };
      await expect(asVisitor("select flotilla.wake()")).rejects.toMatchObject({ code: "42501" });
      await client.query(`grant usage on schema flotilla to ${role}`);
      expect((await asVisitor("select flotilla.wake()")).rowCount).toBe(1);
      await expect(asVisitor("select * from flotilla.pod")).rejects.toMatchObject({
        code: "42501",
      });
    } finally {
      await client.query(`drop owned by ${role}; drop role ${role}`);
    }
  });
});
