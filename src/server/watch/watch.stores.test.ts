import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { hourMs } from "../../base/durations.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import { encodePulse, type PodPulse } from "../../pods/pulse.ts";
import { beat } from "../../pods/sql.ts";
import type { WatchData, WatchEvent } from "../../protocol/watch.ts";
import { createFleetPages, type FleetPages } from "../../runtime/fleet/pages.ts";
import type { OpenStore } from "../../store/contract/database.ts";
import { storeKinds } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { storeThrottle } from "../../throttles/contract/shares-stored.ts";
import { insertThrottles, putReports } from "../../throttles/shares/sql.ts";
import { createTasks } from "../../tasks/tasks.ts";
import type { Caller } from "../auth/caller.ts";
import { createSerializer } from "../serializer.ts";
import { createWatchHub, type WatchHub } from "./hub.ts";

const podCount = 500;
const nameCount = 2_000;
const keyCount = 1_000;
const viewer: Caller = {
  kind: "server",
  tenant: "default",
  allTenants: true,
  verbs: new Set(["fleet:read"]),
};
const pulse: PodPulse = {
  claimed: 9_000,
  ended: { completed: 8_000, failed: 12 },
  chunks: 0,
  lagMs: 3,
  memoryBytes: 90_000_000,
  held: 20,
  leadsSinceMs: null,
  throttles: [{ name: "openai", key: "", inFlight: 4 }],
  running: [{ taskId: "01980f6a-3c1e-7a51-8d0c-6d1f1d9a0000", startedAtMs: 1_800_000_000_000 }],
  logs: [],
};
const padded = (at: number) => String(at).padStart(4, "0");

describe.each(storeKinds)("a fleet of hundreds of pods on $name", (kind) => {
  let store: OpenStore;
  let pages: FleetPages;
  let hub: WatchHub;

  beforeAll(async () => {
    store = await kind.open();
    const { database, clock = systemClock } = store;
    await migrate(database);
    const parts = { database, clock, random: systemRandom, ids: uuidv7(clock, systemRandom) };
    pages = createFleetPages(parts);
    hub = createWatchHub({
      pages,
      deadLetters: () => ({ groups: () => Promise.reject(new Error("not asked for")) }),
      serializer: createSerializer(),
      clock,
      log: silentLogger,
    });
    const names = Array.from({ length: nameCount }, (_, at) => `team/task-number-${padded(at)}`);
    // Four deploys, each with a quarter of the names.
    const deploys = [0, 1, 2, 3].map((part) =>
      JSON.stringify({
        host: `worker-${part}`,
        pid: 7,
        holds: 80,
        names: names.filter((_, at) => at % 4 === part),
      }),
    );
    for (let from = 0; from < podCount; from += 100)
      await database.write(
        Array.from({ length: 100 }, (_, at) => {
          const nth = from + at;
          // Two take themselves for the leader: the first one hangs.
          const leadsSinceMs = nth === 3 ? 1_000 : nth === 8 ? 2_000 : null;
          return beat(`pod-${padded(nth)}`, deploys[nth % 4]!, 0, {
            pulse: encodePulse({ ...pulse, leadsSinceMs }),
          });
        }),
      );
    const tasks = createTasks(parts);
    for (let from = 0; from < nameCount; from += 200)
      await Promise.all(names.slice(from, from + 200).map((name) => tasks.enqueue(name, null)));
    for (const priority of [1, 2, 3])
      await tasks.enqueue(names[0]!, null, { tenant: "acme", priority });
    tasks.close();
    const ids = Array.from({ length: keyCount }, (_, at) => ({ name: "api", key: padded(at) }));
    await database.write([insertThrottles(ids.map((id) => ({ ...id, bound: 9, settings: "{}" })))]);
    const shared = { seq: 1, demand: 3, inFlight: 2, waiting: 1, callsWaiting: 1, totals: "{}" };
    for (const id of ids.slice(0, 20))
      await database.write([
        putReports(
          Array.from({ length: podCount }, (_, at) => ({
            ...id,
            podId: `pod-${padded(at)}`,
            ...shared,
          })),
        ),
      ]);
    // Old reports don't count, and a busy machine takes longer for all of this than reports are young.
    await database.write([sql`update ${table("throttle_report")} set at = at + ${24 * hourMs}`]);
    await storeThrottle(database, {
      name: "zeta",
      key: "",
      bound: 1,
      constraints: { breaker: "open" },
    });
  });
  afterAll(async () => {
    hub?.close();
    await store.database.close();
    await store.remove();
  });

  /** The first snapshots of these topics. A busy machine may take longer for one than pages wait. */
  async function snapshots(...topics: string[]) {
    const found = new Map<string, { readonly data: WatchData; readonly bytes: number }>();
    const stop = hub.watch(viewer, topics, {
      push({ text }) {
        const event = JSON.parse(text) as WatchEvent;
        if (event.type !== "snapshot") return true;
        found.set(event.topic, { data: event.data, bytes: Buffer.byteLength(text) });
        return true;
      },
      drained: () => Promise.resolve(),
    });
    await until("all of them", () => found.size === topics.length);
    stop();
    return found;
  }

  test("is sent whole in its topics, with 2,000 names and 1,000 keys of throttles", async () => {
    const found = await snapshots("overview", "pods", "throttles", "queues");
    const sizes = [...found.values()].map(({ bytes }) => bytes);
    expect(Math.max(...sizes)).toBeLessThan(1024 ** 2);
    const { pods, handlers, more } = found.get("pods")!.data;
    expect([Object.keys(pods as object).length, more]).toEqual([podCount, 0]);
    const sets = Object.values(handlers as Record<string, { names: unknown[]; more: number }>);
    expect(sets.map((set) => [set.names.length, set.more])).toEqual(Array(4).fill([500, 0]));
    const { names, pods: counts, throttles } = found.get("overview")!.data;
    expect(Object.keys(names as object)).toHaveLength(nameCount);
    expect(counts).toEqual({ up: podCount, down: 0 });
    expect(throttles).toMatchObject({ all: keyCount, inFlight: 20 * podCount * 2 });
    const { throttles: byName, hasMore } = found.get("throttles")!.data;
    const { api } = byName as Record<string, Record<string, unknown>>;
    expect(hasMore).toBe(true);
    expect(api!["0000"]).toMatchObject({ inFlight: podCount * 2, waiting: podCount, bound: 9 });
    expect(api!["0999"]).toMatchObject({ inFlight: 0, waiting: 0 });
  });

  test("tells a caller of one tenant of the newest tasks there, and of no others", async () => {
    const found = await pages.newestTasks({ tenant: "acme", limit: 2 });
    const whole = await pages.tasks({ tenant: "acme" });
    expect(
      found
        .map(({ taskId }) => taskId)
        .toSorted()
        .toReversed(),
    ).toEqual(whole.tasks.map(({ taskId }) => taskId).slice(0, 2));
    expect(await pages.newestTasks({ tenant: "none", limit: 2 })).toEqual([]);
    expect(await pages.newestTasks({ limit: 7 })).toHaveLength(7);
  });

  test("has one leader: of two that say so, the one that began last", async () => {
    const { pods } = (await snapshots("pods")).get("pods")!.data;
    const shown = Object.values(pods as Record<string, { podId: string; leads: boolean }>);
    const leading = (all: readonly { podId: string; leads?: boolean }[]) =>
      all.filter(({ leads }) => leads).map(({ podId }) => podId);
    expect(leading(shown)).toEqual(["pod-0008"]);
    expect(leading(await pages.pods())).toEqual(["pod-0008"]);
  });
});
