import { expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { between, seededRandom } from "../../base/random.ts";
import { claimBackoff } from "./claim-loop.ts";

const claimers = 32;
const stepMs = 5;
const workMs = { low: 200, high: 800 };

test("thirty-two that collide soon no longer do, and each gets its turns", async () => {
  const clock = movableClock();
  const random = seededRandom(7);
  const pods = Array.from({ length: claimers }, (_, seed) => ({
    pace: claimBackoff({ clock, random: seededRandom(seed) }),
    busyUntilMs: 0,
    served: 0,
  }));
  const collisionsBySecond: number[] = [];

  // Of those that claim in the same moment one gets through, and the others have collided.
  for (let atMs = 0; atMs < 20_000; atMs += stepMs) {
    const claiming = pods.filter((pod) => pod.busyUntilMs <= atMs && pod.pace.waitMs() <= 0);
    const winner = claiming[random.uint32() % (claiming.length || 1)];
    const second = Math.floor(atMs / 1_000);
    collisionsBySecond[second] ??= 0;
    for (const pod of claiming) {
      if (pod !== winner) {
        pod.pace.failed();
        collisionsBySecond[second]++;
        continue;
      }
      pod.pace.succeeded();
      pod.served++;
      pod.busyUntilMs = atMs + between(random, workMs.low, workMs.high);
    }
    await clock.advance(stepMs);
  }

  const [first, ...later] = collisionsBySecond as [number, ...number[]];
  expect(first).toBeGreaterThanOrEqual(claimers - 1);
  // Without waits that grow it would be hundreds, without chance the same ones over and over.
  expect(first).toBeLessThan(3 * claimers);
  expect(Math.max(...later.slice(4))).toBeLessThan(claimers / 2);
  const fewest = Math.min(...pods.map(({ served }) => served));
  const most = Math.max(...pods.map(({ served }) => served));
  expect(fewest).toBeGreaterThan(most / 2);
});
