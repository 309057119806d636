import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { StoreKind } from "../../store/contract/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { sql } from "../../store/sql.ts";
import { task } from "../task.ts";

const mail = task("mail", { input: z.object({ to: z.string().trim() }) });

/** What enqueueing promises on every store. */
export function enqueueContract(kind: StoreKind): void {
  describe(`enqueueing on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("stores one task with its defaults, in the input form", async () => {
      const { taskId, created } = await queue.enqueue(mail, { to: " ada " });
      expect(created).toBe(true);
      expect(await queue.get(taskId)).toMatchObject({
        taskId,
        name: "mail",
        tenant: "default",
        status: "pending",
        payload: { to: " ada " },
        priority: 0,
        key: null,
        failures: 0,
        maxAttempts: null,
        deaths: 0,
        claimToken: 0,
        progress: null,
        cancelRequested: false,
        error: null,
      });
    });

    test("stores its options", async () => {
      const options = { priority: -7, delayMs: 5_000, key: "k", attempts: 9, tenant: "acme" };
      const { taskId } = await queue.enqueue("mail", [1, "😀"], options);
      const stored = (await queue.get(taskId))!;
      expect(stored).toMatchObject({ priority: -7, key: "k", maxAttempts: 9, tenant: "acme" });
      expect(stored.runAtMs - stored.createdAtMs).toBe(5_000);
      // What waits for its time is kept out of the way of claims.
      expect(await queue.row(taskId)).toMatchObject({ parked: 1 });
      expect(stored.payload).toEqual([1, "😀"]);
    });

    test("stores a task for its hour, and one whose hour has passed for now", async () => {
      const row = async (runAt: Date | number) => {
        const { taskId } = await queue.enqueue("mail", 1, { runAt });
        return queue.row(taskId);
      };
      const hour = new Date(Date.UTC(2100, 0, 1));
      expect(await row(hour)).toMatchObject({ run_at: hour.getTime(), parked: 1 });
      expect(await row(hour.getTime())).toMatchObject({ run_at: hour.getTime(), parked: 1 });
      const past = await row(new Date(0));
      expect(past).toMatchObject({ run_at: past["created_at"], parked: 0 });
      const replaced = await queue.enqueue("mail", 1, { key: "k", delayMs: 5 });
      await queue.enqueue("mail", 2, { key: "k", onDuplicate: "replace", runAt: hour });
      expect(await queue.row(replaced.taskId)).toMatchObject({ run_at: hour.getTime(), parked: 1 });
    });

    test("stores many in one go, in the order given", async () => {
      const inputs = Array.from({ length: 1_200 }, (_, number) => ({ number }));
      const enqueued = await queue.enqueueMany("mail", inputs, { priority: 3 });
      expect(new Set(enqueued.map((each) => each.taskId)).size).toBe(1_200);
      expect(enqueued.every((each) => each.created)).toBe(true);
      expect((await queue.get(enqueued[700]!.taskId))!.payload).toEqual({ number: 700 });
      expect(await queue.count(sql`priority = 3`)).toBe(1_200);
      expect(await queue.enqueueMany("mail", [])).toEqual([]);
    });

    test("stores all of many or none", async () => {
      const many = queue.enqueueMany(mail, [{ to: "a" }, { to: 5 as never }, { to: "c" }]);
      await expect(many).rejects.toMatchObject({ code: "invalid_input" });
      const tooMany = queue.enqueueMany(
        "mail",
        Array.from({ length: 10_001 }, () => 0),
      );
      await expect(tooMany).rejects.toMatchObject({ code: "payload_too_large" });
      // Each is small enough, but a transaction of them all would be too large.
      const tooMuch = queue.enqueueMany(
        "mail",
        Array.from({ length: 300 }, () => "x".repeat(250_000)),
      );
      await expect(tooMuch).rejects.toMatchObject({ code: "payload_too_large" });
      expect(await queue.count()).toBe(0);
    });

    test("stores concurrent tasks each once", async () => {
      const enqueued = await Promise.all(
        Array.from({ length: 600 }, (_, number) => queue.enqueue("mail", number)),
      );
      const payloads = await Promise.all(
        [0, 250, 599].map((at) => queue.get(enqueued[at]!.taskId)),
      );
      expect(payloads.map((each) => each!.payload)).toEqual([0, 250, 599]);
      expect(await queue.count()).toBe(600);
    });

    test.each([
      [
        "a payload that fails its schema",
        () => queue.enqueue(mail, { to: 5 as never }),
        "invalid_input",
      ],
      [
        "a payload over the limit",
        () => queue.enqueue("mail", "x".repeat(256 * 1024)),
        "payload_too_large",
      ],
      ["a payload with U+0000", () => queue.enqueue("mail", "\u0000"), "payload_not_storable"],
      [
        "a payload with half a pair",
        () => queue.enqueue("mail", { a: "\ud800" }),
        "payload_not_storable",
      ],
      [
        "a payload that is a cycle",
        () => {
          const a: unknown[] = [];
          a.push(a);
          return queue.enqueue("mail", a);
        },
        "payload_not_storable",
      ],
      [
        "a payload too deep",
        () => queue.enqueue("mail", JSON.parse("[".repeat(65) + "]".repeat(65))),
        "payload_too_deep",
      ],
      ["a name that is none", () => queue.enqueue("a b", 1), "invalid_option"],
      [
        "an unknown option",
        () => queue.enqueue("mail", 1, { priorty: 1 } as object),
        "invalid_option",
      ],
      [
        "a priority out of range",
        () => queue.enqueue("mail", 1, { priority: 101 }),
        "invalid_option",
      ],
      ["a fractional delay", () => queue.enqueue("mail", 1, { delayMs: 0.5 }), "invalid_option"],
      [
        "an hour beside a delay",
        () => queue.enqueue("mail", 1, { delayMs: 0, runAt: 5 }),
        "invalid_option",
      ],
      [
        "a date that is none",
        () => queue.enqueue("mail", 1, { runAt: new Date("soon") }),
        "invalid_option",
      ],
      [
        "an hour as text",
        () => queue.enqueue("mail", 1, { runAt: "2026-01-01" as never }),
        "invalid_option",
      ],
      [
        "an hour in microseconds",
        () => queue.enqueue("mail", 1, { runAt: Date.UTC(2026) * 1_000 }),
        "invalid_option",
      ],
      ["a delay into the past", () => queue.enqueue("mail", 1, { delayMs: -1 }), "invalid_option"],
      ["no attempts", () => queue.enqueue("mail", 1, { attempts: 0 }), "invalid_option"],
      ["an empty key", () => queue.enqueue("mail", 1, { key: "" }), "invalid_option"],
      [
        "a key that databases refuse",
        () => queue.enqueue("mail", 1, { key: "\ud800" }),
        "invalid_option",
      ],
      ["a long key", () => queue.enqueue("mail", 1, { key: "k".repeat(501) }), "invalid_option"],
      ["a tx that is none", () => queue.enqueue("mail", 1, { tx: {} }), "invalid_option"],
    ] as [string, () => Promise<unknown>, string][])(
      "refuses %s, and stores nothing",
      async (_, enqueue, code) => {
        const good = queue.enqueue("mail", "good");
        await expect(enqueue()).rejects.toMatchObject({ name: "FlotillaError", code });
        await good;
        expect(await queue.count()).toBe(1);
      },
    );

    test("counts against the limit of its connection", async () => {
      const small = queue.client({ maxPayloadBytes: 10 });
      await small.enqueue("mail", "x".repeat(8));
      await expect(small.enqueue("mail", "x".repeat(9))).rejects.toMatchObject({
        code: "payload_too_large",
        details: { bytes: 11, maxBytes: 10 },
      });
      small.close();
    });
  });
}
