import { expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { memoryDatabase } from "../../store/sqlite/inline.ts";
import { declareThrottle } from "../declaration.ts";
import { createThrottleRegistry } from "../registry.ts";
import { createShares } from "./shares.ts";
import { changeShares } from "./sql.ts";

test("a pod changes its entry by one write at a time, though a write for another throttle has failed", async () => {
  const clock = movableClock();
  const random = seededRandom(1);
  const stored = memoryDatabase(clock);
  await migrate(stored);
  const change = changeShares({ name: "", key: "" }, 0, "").strings;
  let underWay = 0;
  let most = 0;
  let answer = () => {};
  const database: Database = {
    ...stored,
    async write(statements, options) {
      const [first] = statements;
      if (first!.strings !== change) return stored.write(statements, options);
      if (!JSON.stringify(first).includes('"slow"')) {
        throw new FlotillaError("store_unavailable", "as ordered");
      }
      most = Math.max(most, ++underWay);
      await new Promise<void>((resolve) => (answer = resolve));
      underWay--;
      return stored.write(statements, options);
    },
  };
  const shares = createShares({ podId: "pod-1", database, clock, random, log: silentLogger });
  const throttles = createThrottleRegistry({ clock, random, shared: true, onLimiter: shares.add });
  const [slow] = ["slow", "failing"].map((name) => {
    const limiter = throttles.of(declareThrottle(name, { pinned: 2 }));
    void limiter.acquire().catch(() => {});
    return limiter;
  });
  for (let passedMs = 0; passedMs < 10_000; passedMs += 100) await clock.advance(100);
  expect({ underWay, most }).toEqual({ underWay: 1, most: 1 });
  answer();
  await clock.advance(100);
  expect(slow!.demand()).toMatchObject({ inFlight: 1, waiting: 0 });
  throttles.close();
  await stored.close();
});
