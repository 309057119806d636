import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";

// Each occupies a connection for as long as the store waits for a lock, and there are four by default.
const atOnceMost = 2;

/**
 * Sends items one by one whose rows somebody may hold for as long as it pleases them. Only a few wait
 * at a time, and those that have waited least come first, so that the ones that nobody holds aren't
 * kept up by the others, nor anything else by all of them.
 */
export function byTurns<Item, Result>(
  parts: { clock: Clock; random: Random; signal: AbortSignal },
  send: (item: Item) => Promise<Result>,
): (item: Item) => Promise<Result> {
  const queue: { tries: number; go: () => void }[] = [];
  let underWay = 0;

  const next = () => {
    if (underWay >= atOnceMost || queue.length === 0) return;
    const least = Math.min(...queue.map(({ tries }) => tries));
    const [first] = queue.splice(
      queue.findIndex(({ tries }) => tries === least),
      1,
    );
    underWay++;
    first!.go();
  };

  const turn = (tries: number) =>
    new Promise<void>((resolve) => {
      queue.push({ tries, go: resolve });
      next();
    });

  return async (item) => {
    for (let tries = 0; ; tries++) {
      await turn(tries);
      try {
        return await send(item);
      } catch (error) {
        if (!hasCode(error, "store_busy") || parts.signal.aborted) throw error;
      } finally {
        underWay--;
        next();
      }
      await sleep(parts.clock, contentionMs(tries + 1, parts.random), parts.signal);
    }
  };
}
