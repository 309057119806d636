import { describe, expect, test } from "vitest";
import { pageReadMs } from "../database.ts";
import { createPageReader } from "./page-reader.ts";
import type { Table } from "./connection.ts";

const query = { text: "select 1", values: [] };
const table: Table = { columns: ["one"], rows: [[1]] };

/** Timers that fire when they are told to. */
function createTimers() {
  const timers = new Set<{ delayMs: number; callback: () => void }>();
  return {
    after(delayMs: number, callback: () => void) {
      const timer = { delayMs, callback };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    fire(delayMs: number) {
      for (const timer of [...timers].filter((each) => each.delayMs === delayMs)) {
        timers.delete(timer);
        timer.callback();
      }
    },
    count: () => timers.size,
  };
}

/** Threads that answer when they are told to. */
function createScene() {
  const threads: { answer: () => void; asked: number; open: boolean }[] = [];
  const timers = createTimers();
  const idle = createTimers();
  const state = { starting: Promise.resolve() };
  const reader = createPageReader({
    clock: timers,
    afterIdle: idle.after,
    async open() {
      await state.starting;
      let pending = Promise.withResolvers<Table[]>();
      const thread = {
        asked: 0,
        open: true,
        answer: () => pending.resolve([table]),
      };
      threads.push(thread);
      return {
        request() {
          pending = Promise.withResolvers();
          thread.asked++;
          return pending.promise;
        },
        // A thread ends after what it reads.
        async close() {
          if (thread.asked > 0) await pending.promise;
          thread.open = false;
        },
      };
    },
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return { threads, timers, idle, reader, settle, state };
}

describe("the thread that reads pages", () => {
  test("is started with the first page, and ended when no page was read for a minute", async () => {
    const { threads, idle, reader, settle } = createScene();
    expect(threads).toHaveLength(0);
    const first = reader.read(query);
    await settle();
    threads[0]!.answer();
    expect(await first).toEqual(table);
    const second = reader.read(query);
    await settle();
    threads[0]!.answer();
    await second;
    expect(threads).toHaveLength(1);
    idle.fire(60_000);
    await settle();
    expect(threads[0]!.open).toBe(false);
    const third = reader.read(query);
    await settle();
    threads[1]!.answer();
    expect(await third).toEqual(table);
  });

  test("is given up with a page that takes too long, which is refused with what to narrow", async () => {
    const { threads, timers, reader, settle } = createScene();
    const slow = reader.read(query);
    await settle();
    timers.fire(pageReadMs);
    await expect(slow).rejects.toMatchObject({
      code: "timeout",
      message: expect.stringContaining("narrow it by a name, a status, a tenant or a shorter span"),
    });
    // The next page waits until the thread has ended, so that never two of them work.
    const next = reader.read(query);
    await settle();
    expect(threads).toHaveLength(1);
    threads[0]!.answer();
    await settle();
    expect(threads).toHaveLength(2);
    threads[1]!.answer();
    expect(await next).toEqual(table);
  });

  test("may take longer to start than a page, and reads the next one", async () => {
    const { threads, timers, reader, settle, state } = createScene();
    const start = Promise.withResolvers<void>();
    state.starting = start.promise;
    const first = reader.read(query);
    await settle();
    timers.fire(pageReadMs);
    await settle();
    timers.fire(10_000);
    await expect(first).rejects.toMatchObject({ code: "timeout" });
    const next = reader.read(query);
    await settle();
    start.resolve();
    await settle();
    expect(threads).toHaveLength(1);
    threads[0]!.answer();
    expect(await next).toEqual(table);
  });

  test("is not started for a page that was late before its turn came", async () => {
    const { threads, timers, reader, settle } = createScene();
    const slow = reader.read(query);
    await settle();
    timers.fire(pageReadMs);
    await expect(slow).rejects.toMatchObject({ code: "timeout" });
    const late = reader.read(query);
    await settle();
    timers.fire(pageReadMs);
    await expect(late).rejects.toMatchObject({ code: "timeout" });
    threads[0]!.answer();
    await settle();
    expect(threads).toHaveLength(1);
  });

  test("reads nothing for a caller that has hung up by its turn", async () => {
    const { threads, reader, settle } = createScene();
    const first = reader.read(query);
    const gone = new AbortController();
    const second = reader.read(query, gone.signal);
    gone.abort();
    await settle();
    threads[0]!.answer();
    await first;
    await expect(second).rejects.toMatchObject({ code: "cancelled" });
    expect(threads[0]!.asked).toBe(1);
  });

  test("ends with its store, which refuses the pages that wait, and leaves no timer", async () => {
    const { threads, idle, reader, settle } = createScene();
    const first = reader.read(query);
    const second = reader.read(query);
    await settle();
    const closing = reader.close(new Error("closed"));
    await expect(second).rejects.toThrow("closed");
    threads[0]!.answer();
    await first;
    await closing;
    expect(threads[0]!.open).toBe(false);
    expect(idle.count()).toBe(0);
  });
});
