import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { silentLogger } from "../../base/log.ts";
import { checkNats } from "../../bus/nats/config.ts";
import { beat, markLeft } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { memoryDatabase } from "../../store/sqlite/inline.ts";
import { createSharePlaceCheck } from "./share-place.ts";

type Nats = "flotilla" | "flotilla for all" | "other for all" | undefined;

let clock: MovableClock;
let database: Database;
beforeEach(async () => {
  clock = movableClock();
  database = memoryDatabase(clock);
  await migrate(database);
});
afterEach(() => database.close());

const beats = async (podId: string, nats: Nats, host: string | null = null) =>
  void (await database.write([beat(podId, JSON.stringify({ nats }), 0, { host })]));

function checkOf(nats: Nats, podId = "new") {
  const [namespace, ...all] = nats?.split(" ") ?? [];
  const settings = checkNats({
    servers: "nats://n1",
    ...(namespace !== undefined && { namespace }),
    use: all.length > 0 ? "all" : "bus",
  });
  return createSharePlaceCheck({
    podId,
    database,
    nats: nats && { settings },
    deadAfterMs: 5_000,
    isGone: (host) => host === "gone",
    clock,
    log: silentLogger,
  });
}

/** What a check says while the pod with this id beats once a second, or while none does. */
async function outcome(check: () => Promise<void>, beating?: [string, Nats]) {
  let found: unknown;
  const ended = check().then(
    () => (found = "passed"),
    (error: unknown) => (found = error),
  );
  for (let nth = 1; found === undefined && nth <= 40; nth++) {
    if (beating && nth % 4 === 0) await beats(...beating);
    await clock.advance(250);
  }
  expect(found).toBeDefined();
  await ended;
  return found;
}

describe("a pod whose shares of throttles would be elsewhere", () => {
  test.each<[up: Nats, own: Nats]>([
    ["flotilla for all", "flotilla"],
    ["flotilla for all", undefined],
    ["flotilla", "flotilla for all"],
    [undefined, "flotilla for all"],
    ["other for all", "flotilla for all"],
  ])("than those of pods that are up is refused: %s, and %s", async (up, own) => {
    await beats("up", up);
    expect(await outcome(checkOf(own), ["up", up])).toMatchObject({
      code: "conflict",
      message: expect.stringMatching(
        /^pods that are up \(up\) have their shares .*: stop those pods first, or give this one the same `nats.use`/,
      ),
    });
  });

  test("is refused as well if the other one begins while silent ones are watched", async () => {
    await beats("killed", "flotilla");
    expect(await outcome(checkOf("flotilla for all"), ["young", "flotilla"])).toMatchObject({
      code: "conflict",
    });
  });

  test("starts once the others have left, were killed here, or are silent for as long as dead pods are", async () => {
    await beats("left", "flotilla");
    await database.write([markLeft("left")]);
    await beats("killed here", "flotilla", "gone");
    const check = checkOf("flotilla for all");
    const beganMs = clock.monotonic();
    expect(await outcome(check)).toBe("passed");
    expect(clock.monotonic() - beganMs).toBeLessThan(500);
    await beats("killed", "flotilla");
    const sinceMs = clock.monotonic();
    expect(await outcome(check)).toBe("passed");
    expect(clock.monotonic() - sinceMs).toBeGreaterThanOrEqual(5_000);
    // Behind its own row nothing new is seen, and nothing is waited for again.
    await beats("new", "flotilla for all");
    expect(await outcome(check)).toBe("passed");
    expect(await outcome(check, ["killed", "flotilla"])).toBe("passed");
    await beats("killed", "flotilla");
    expect(await outcome(check, ["killed", "flotilla"])).toMatchObject({ code: "conflict" });
  });

  test("of two that start at once, one at most goes on behind its row", async () => {
    await beats("one", "flotilla");
    await beats("two", "flotilla for all");
    const checks = [
      checkOf("flotilla", "one")().then(
        () => "passed",
        () => "refused",
      ),
      outcome(checkOf("flotilla for all", "two"), ["one", "flotilla"]),
    ];
    expect(await checks[1]).toMatchObject({ code: "conflict" });
    await clock.advance(10_000);
    expect(["passed", "refused"]).toContain(await checks[0]);
  });

  test("is no matter among pods whose shares are in the same place", async () => {
    await beats("up", "flotilla");
    await beats("without", undefined);
    expect(await outcome(checkOf("flotilla"))).toBe("passed");
  });
});
