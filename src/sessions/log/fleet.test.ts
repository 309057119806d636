import { expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { silentLogger } from "../../base/log.ts";
import type { Database } from "../../store/database.ts";
import { createFleet } from "./fleet.ts";

const facts = { during: "queue", attempts: 3, compaction: null };
const metadata = (...agents: string[]) =>
  JSON.stringify({ sessions: { agents: Object.fromEntries(agents.map((each) => [each, facts])) } });

test("a pod that drains gets neither logs nor turns, though its agents are known", async () => {
  const clock = movableClock();
  const rows = [
    { pod_id: "a", metadata: metadata("writer", "reader"), drain: 1 },
    { pod_id: "b", metadata: metadata("reader"), drain: 0 },
    // As a pod without sessions says it, and a row that was written by hand.
    { pod_id: "c", metadata: "{}", drain: 0 },
    { pod_id: "d", metadata: "nonsense", drain: 0 },
  ];
  const database = { read: async () => rows } as unknown as Database;
  const fleet = createFleet({ database, clock, log: silentLogger });
  await fleet.refresh();
  expect([...fleet.pods().keys()]).toEqual(["b"]);
  expect([fleet.withAgent("writer"), fleet.withAgent("reader")]).toEqual([[], ["b"]]);
  expect(fleet.factsOf("writer")).toEqual(facts);
  rows[0]!.drain = 0;
  await fleet.refresh();
  expect([...fleet.pods().keys()]).toEqual(["a", "b"]);
  expect(fleet.withAgent("writer")).toEqual(["a"]);
});
