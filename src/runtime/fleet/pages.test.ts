import { expect, test, vi } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { createFleetPages, type FleetPages } from "./pages.ts";

test("everything that pages read of the fleet is read on the connections for pages", async () => {
  const read = vi.fn<Database["read"]>(() => Promise.resolve([]));
  const write = vi.fn<Database["write"]>(() => Promise.reject(new Error("a page writes nothing")));
  const database = { read, write, subscribe: () => () => {} } as unknown as Database;
  const [clock, random] = [systemClock, systemRandom];
  const pages = createFleetPages({ database, clock, random, ids: uuidv7(clock, random) });
  const given: Partial<Record<keyof FleetPages, readonly unknown[]>> = {
    task: ["t"],
    taskStates: [["t"]],
    newestTasks: [{ tenant: "acme", limit: 50 }],
    links: ["t"],
    run: ["r"],
    doing: [["order"]],
    throttle: ["openai"],
    throttleSummaries: [{ limit: 1_000 }],
    sessions: ["default", { limit: 1 }],
    sessionOwner: ["default", "s"],
    bulkPreview: [{ action: "cancel", filter: { name: "mail" } }],
  };
  for (const [name, call] of Object.entries(pages)) {
    read.mockClear();
    const args = given[name as keyof FleetPages] ?? [];
    // An empty store is no store to some of them.
    await (call as (...all: readonly unknown[]) => Promise<unknown>)(...args).catch(() => {});
    expect([name, read.mock.calls.length > 0]).toEqual([name, true]);
    for (const [, options] of read.mock.calls) expect([name, options?.page]).toEqual([name, true]);
  }
  expect(write).not.toHaveBeenCalled();
});
