import { sleep, systemClock } from "../../src/base/clock.ts";
import { hasCode } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import type { StreamLog } from "../../src/sessions/log/jetstream/log.ts";
import type { ReplayedRecord } from "../../src/sessions/log/jetstream/replay.ts";

const clock = systemClock;
const ids = uuidv7(clock, systemRandom);
/** A disk that others use too may stand still for a minute, and an election comes after that. */
const answerMs = 90_000;
const againMs = 50;

const isUnanswered = (error: unknown): boolean =>
  hasCode(error, "unknown_outcome", "store_unavailable");

/**
 * Asks the same again while the servers don't answer, or what they answer leaves the outcome open. The client
 * of NATS has errors of its own for that, which `mayRetry` knows.
 */
export async function untilAnswered<Value>(
  ask: () => Promise<Value>,
  mayRetry = isUnanswered,
): Promise<Value> {
  const endMs = clock.monotonic() + answerMs;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!mayRetry(error) || clock.monotonic() > endMs) throw error;
    }
    await sleep(clock, againMs);
  }
}

/**
 * The same calls, each of which is made again with the same arguments until its outcome is known. Logs and
 * journals promise that what is sent again is stored once, so that no outcome is hidden but the lack of one.
 */
export function retried<Calls extends object>(calls: Calls): Calls {
  const withRetries = ([name, call]: [string, unknown]): [string, unknown] => {
    if (typeof call !== "function") return [name, call];
    const ask = (...args: unknown[]): unknown => {
      const first: unknown = call(...args);
      if (!(first instanceof Promise)) return first;
      let asked: Promise<unknown> | undefined = first;
      return untilAnswered(async () => {
        const answer = asked ?? call(...args);
        asked = undefined;
        return answer;
      });
    };
    return [name, ask];
  };
  return Object.fromEntries(Object.entries(calls).map(withRetries)) as Calls;
}

/** A log on real servers, for tests that aren't about a caller without an answer. */
export function retriedLog(log: StreamLog): StreamLog {
  const { heads, create, take, commit, release, mark: markOnce } = log;
  const again = retried({ heads, create, take, commit, release, mark: markOnce });
  return {
    ...log,
    ...again,
    // One mark, however often it is sent.
    mark: (at, mark) => again.mark(at, { recordId: ids.next(), ...mark }),
    // What was replayed before the servers fell silent would come twice.
    async recover(head, onRecord = () => {}) {
      const [recovered, records] = await untilAnswered(async () => {
        const found: ReplayedRecord[] = [];
        return [await log.recover(head, (each) => found.push(each)), found] as const;
      });
      records.forEach(onRecord);
      return recovered;
    },
  };
}
