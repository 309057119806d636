import type { Clock } from "../../../base/clock.ts";
import { FlotillaError, hasCode, storeAwayCodes } from "../../../base/errors.ts";
import { settledWithin } from "../../../base/timeout.ts";
import { waitsInVain } from "../call-deadline.ts";
import type { Reads } from "../journal.ts";

/** How long callers wait for a database that may be back in a moment. */
const patienceMs = 2_000;
/** How often, and for how long, one that is away is asked again. */
const askMs = 1_000;

/**
 * Reads of the database behind a log. While it is away only it knows what the log doesn't have, so that callers
 * who waited would wait for as long as it is away. After a moment they are told so at once.
 */
export function createArchiveReads(reads: Reads, { clock }: { clock: Clock }): Reads {
  let awaySinceMs: number | undefined;
  let failedMs = -Infinity;

  const failed = (error: unknown, askedMs: number): unknown => {
    if (!hasCode(error, ...storeAwayCodes)) return error;
    awaySinceMs ??= askedMs;
    failedMs = clock.monotonic();
    return isPatient() ? error : waitsInVain();
  };
  const isPatient = (): boolean =>
    awaySinceMs === undefined || clock.monotonic() - awaySinceMs < patienceMs;

  const ask = async <Found>(read: () => Promise<Found>): Promise<Found> => {
    const askedMs = clock.monotonic();
    const isAway = !isPatient();
    if (isAway && askedMs - failedMs < askMs) throw waitsInVain();
    // A caller that comes while one asks isn't kept waiting too.
    if (isAway) failedMs = askedMs;
    try {
      const reading = read().then((found) => ({ found }));
      const answer = await (isAway ? settledWithin(clock, askMs, reading) : reading);
      if (!answer) throw new FlotillaError("store_unavailable", "the database doesn't answer");
      awaySinceMs = undefined;
      return answer.found;
    } catch (error) {
      throw failed(error, askedMs);
    }
  };

  const asked =
    (name: keyof Reads) =>
    (...args: readonly unknown[]) =>
      ask(() => (reads[name] as (...all: typeof args) => Promise<unknown>)(...args));
  const names = Object.keys(reads) as (keyof Reads)[];
  return Object.fromEntries(names.map((name) => [name, asked(name)])) as unknown as Reads;
}
