import { contentionMs } from "../base/backoff.ts";
import { type Clock, sleep } from "../base/clock.ts";
import { type ErrorCode, hasCode, transientCodes } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Database, Row } from "./database.ts";
import type { Statement } from "./sql.ts";

export type RetryOptions = {
  clock: Clock;
  random: Random;
  /** Gives up after this long. Without it, never. */
  limitMs?: number;
  signal?: AbortSignal;
  /** The error codes that are retried. Default: transient ones. */
  codes?: readonly ErrorCode[];
  /** Whether the write makes tasks ready to claim. */
  hint?: boolean;
  /** The statements to send once an earlier send may have landed. Default: the same ones. */
  again?: () => readonly Statement[];
  /** Called before each retry. */
  onFailed?: () => void;
};

/** For callers that wait: only unknown outcomes are retried, and all other errors are thrown. */
export const untilKnown = { limitMs: 30_000, codes: ["unknown_outcome"] } as const;

/**
 * Sends the same statements until their outcome is known. Only for writes that may be repeated
 * because they carry their own condition: an id that is taken, a token that has passed. `repeated`
 * is true if an earlier send may have landed, so that the answer is that of `again`.
 */
export async function writeUntilKnown(
  database: Database,
  statements: readonly Statement[],
  options: RetryOptions,
): Promise<{ tables: Row[][]; repeated: boolean }> {
  const { clock, random, limitMs, signal, codes = transientCodes, hint = false } = options;
  const { again = () => statements, onFailed } = options;
  const startedMs = clock.monotonic();
  let unknown: unknown;
  for (let tries = 0; ; tries++) {
    try {
      const sent = unknown === undefined ? statements : again();
      return { tables: await database.write(sent, { hint }), repeated: unknown !== undefined };
    } catch (error) {
      if (hasCode(error, "unknown_outcome")) unknown = error;
      const late = limitMs !== undefined && clock.monotonic() - startedMs >= limitMs;
      // Once one send's outcome is unknown, a refusal of a later one says nothing about it.
      const passed = unknown === undefined ? codes : [...codes, ...transientCodes];
      if (!hasCode(error, ...passed) || late || signal?.aborted) throw unknown ?? error;
      onFailed?.();
      const waitMs = contentionMs(tries + 1, random);
      database.report?.({ type: "resent", waitMs });
      await sleep(clock, waitMs, signal);
    }
  }
}
