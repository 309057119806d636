import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import type { EachCounts, EnqueueRow, RowOutcome } from "../enqueue/each.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { task } from "../task.ts";

const mail = task("mail", { input: z.object({ to: z.string() }) });

/** What storing each of many rows promises on every store. */
export function eachContract(kind: StoreKind): void {
  describe(`enqueueing each of many on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("returns in order what became of each, and what is wrong with one sinks no other", async () => {
      const holder = await queue.enqueue("post", "old", { key: "held", delayMs: 60_000 });
      const { outcomes, ...counts } = await queue.enqueueEach([
        { task: mail, input: { to: "ada" } },
        { task: mail, input: { to: 5 as never } },
        { task: "post", input: "again", options: { key: "held" } },
        { task: "post", input: "new", options: { key: "held", onDuplicate: "replace" } },
        { task: "post", input: 1, options: { key: "held", onDuplicate: "reject" } },
        { task: "a b", input: 1 },
        { task: "post", input: 1, options: { priorty: 1 } as object },
        { task: "post", input: 1, options: { tx: 1 } as object },
        { task: "post", input: "\u0000" },
        { task: "post", input: 1, options: { key: "k".repeat(501) } },
        null as never,
        new FlotillaError("invalid_input", "line 11 isn't JSON"),
        new TypeError("odd"),
        { task: "post", options: { key: "mine" } },
        { task: "post", input: 2, options: { key: "mine" } },
      ]);
      const shown = outcomes.map((each) =>
        each.outcome === "rejected" ? each.code : [each.outcome, each.taskId === holder.taskId],
      );
      expect(shown).toEqual([
        ["created", false],
        "invalid_input",
        ["existing", true],
        ["replaced", true],
        "duplicate_key",
        "invalid_option",
        "invalid_option",
        "invalid_option",
        "payload_not_storable",
        "invalid_option",
        "invalid_option",
        "invalid_input",
        "invalid_input",
        ["created", false],
        ["existing", false],
      ]);
      expect(outcomes.map((each) => each.index)).toEqual(outcomes.map((_, at) => at));
      expect(outcomes[11]).toMatchObject({ message: "line 11 isn't JSON" });
      expect(outcomes[4]).toMatchObject({ details: { taskId: holder.taskId } });
      expect(counts).toEqual({ rows: 15, created: 2, existing: 2, replaced: 1, rejected: 10 });
      expect(await queue.count()).toBe(3);
    });

    test("takes any number of rows in transactions of a thousand, and keeps none of them", async () => {
      const total = 3_500;
      async function* rows(): AsyncGenerator<EnqueueRow> {
        for (let at = 0; at < total; at++) {
          // No more is asked for than fits into a transaction that hasn't been stored.
          expect(at - seen.length).toBeLessThanOrEqual(1_000);
          yield { task: "mail", input: at, options: { key: `k${at % 3_000}` } };
        }
      }
      const seen: RowOutcome[] = [];
      const progress: EachCounts[] = [];
      const result = await queue.enqueueEach(rows(), {
        onOutcome: (outcome) => void seen.push(outcome),
        onProgress: (counts) => progress.push(counts),
      });
      expect(result).toEqual({
        rows: total,
        created: 3_000,
        existing: 500,
        replaced: 0,
        rejected: 0,
        outcomes: [],
      });
      expect(seen.map((each) => each.index)).toEqual(seen.map((_, at) => at));
      expect(progress.map((each) => each.rows)).toEqual([1_000, 2_000, 3_000, 3_500]);
      expect(await queue.count()).toBe(3_000);
    });

    test("ends a transaction early where payloads are large", async () => {
      const progress: number[] = [];
      const text = "x".repeat(250_000);
      const rows = Array.from({ length: 20 }, () => ({ task: "mail", input: text }));
      await queue.enqueueEach(rows, { onProgress: (counts) => progress.push(counts.rows) });
      expect(progress).toEqual([17, 20]);
    });

    test("stops when it is aborted, reports how far it came, and goes on where rows have keys", async () => {
      const stop = new AbortController();
      const rows = Array.from({ length: 2_500 }, (_, at) => ({
        task: "mail",
        input: at,
        options: { key: `k${at}` },
      }));
      const stopped = queue.enqueueEach(rows, {
        signal: stop.signal,
        onProgress: () => stop.abort(),
      });
      await expect(stopped).rejects.toMatchObject({
        code: "cancelled",
        details: { rows: 1_000, created: 1_000 },
      });
      expect(await queue.count()).toBe(1_000);
      const rest = await queue.enqueueEach(rows);
      expect(rest).toMatchObject({ rows: 2_500, created: 1_500, existing: 1_000 });
    });

    test("stores what came before the rows ended in an error", async () => {
      function* rows() {
        yield { task: "mail", input: 1 };
        throw new Error("the file is gone");
      }
      await expect(queue.enqueueEach(rows())).rejects.toThrow("the file is gone");
      expect(await queue.count()).toBe(1);
    });

    test("reports how far it came when the store fails", async () => {
      let writes = 0;
      const client = queue.client({
        database: {
          ...queue.database,
          async write(statements, options) {
            if (++writes === 2) throw new FlotillaError("store_full", "the disk is full");
            return queue.database.write(statements, options);
          },
        },
      });
      const rows = Array.from({ length: 1_500 }, (_, at) => ({ task: "mail", input: at }));
      await expect(client.enqueueEach(rows)).rejects.toMatchObject({
        code: "store_full",
        message: "the disk is full (after 1000 rows)",
        details: { rows: 1_000 },
      });
      expect(await queue.count()).toBe(1_000);
      client.close();
    });

    test("rejects only the row that the store refuses", async () => {
      const client = queue.client({
        database: {
          ...queue.database,
          async write(statements, options) {
            const before = await queue.count();
            const tables = await queue.database.write(statements, options);
            // Stands in for a database that refuses something that we let through.
            const stored = await queue.database.read(sql`select payload from ${rowsOf}`);
            if (!stored.some(({ payload }) => payload === "13")) return tables;
            await queue.database.write([
              sql`delete from ${rowsOf} where task_id in (
                select task_id from ${rowsOf} order by task_id desc limit ${(await queue.count()) - before})`,
            ]);
            throw new FlotillaError("internal", "refused");
          },
        },
      });
      const rows = Array.from({ length: 20 }, (_, at) => ({ task: "mail", input: at }));
      const { outcomes } = await client.enqueueEach(rows);
      expect(outcomes.filter((each) => each.outcome === "rejected")).toMatchObject([
        { index: 13, code: "internal", message: "refused" },
      ]);
      expect(await queue.count()).toBe(19);
      client.close();
    });

    test("reports of each what was stored, where the store fails between the parts of a transaction", async () => {
      const client = queue.client({
        database: {
          ...queue.database,
          async write(statements, options) {
            const inputs = JSON.stringify(statements);
            if (inputs.includes("rotten")) throw new FlotillaError("internal", "refused");
            if (inputs.includes("late")) throw new FlotillaError("store_busy", "not now");
            return queue.database.write(statements, options);
          },
        },
      });
      const inputs = ["early", "rotten", "late", "later"];
      const { outcomes } = await client.enqueueEach(
        inputs.map((input) => ({ task: "mail", input })),
      );
      expect(outcomes).toMatchObject([
        { outcome: "created" },
        { outcome: "rejected", code: "internal" },
        { outcome: "rejected", code: "store_busy" },
        { outcome: "rejected", code: "store_busy" },
      ]);
      expect(await queue.count()).toBe(1);
      client.close();
    });

    test("all go into the caller's transaction, and are gone with it", async () => {
      const caller = await queue.store.caller?.();
      if (!caller) return;
      const rows = Array.from({ length: 1_100 }, (_, at) => ({ task: "mail", input: at }));
      await caller.begin();
      const options = { tx: caller.handle };
      expect(await queue.enqueueEach(rows, options)).toMatchObject({ created: 1_100 });
      expect(await queue.count()).toBe(0);
      await caller.exec("rollback");
      await caller.begin();
      await queue.enqueueEach(rows.slice(0, 3), options);
      await caller.exec("commit");
      await caller.close();
      expect(await queue.count()).toBe(3);
    });

    test("refuses what can't be iterated", async () => {
      for (const rows of [null, "mail", 5, { task: "mail" }]) {
        await expect(queue.enqueueEach(rows as never)).rejects.toMatchObject({
          code: "invalid_option",
        });
      }
    });
  });
}
