import { contentionMs } from "../base/backoff.ts";
import { type Clock, sleep } from "../base/clock.ts";
import { type ErrorCode, hasCode, transientCodes } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Database, Row, WriteOptions } from "./database.ts";
import type { Statement } from "./sql.ts";

export type RetryOptions = {
  clock: Clock;
  random: Random;
  /** Gives up after this long. Without it, never. */
  limitMs?: number | (() => number);
  /** Ends a wait with `cancelled`. A call in flight goes on, and its failure is final. */
  signal?: AbortSignal;
  /** The error codes that are retried. Default: transient ones. */
  codes?: readonly ErrorCode[];
  /** Decides in place of `codes`. `isUnknown` is true if this send or an earlier one may have landed. */
  mayRetry?: (error: unknown, isUnknown: boolean) => boolean;
  /** The wait after the `tries`-th failure, 1 being the first. Default: `contentionMs`. */
  waitMs?: (tries: number) => number;
  /** Called before each wait. */
  onFailed?: (failure: { error: unknown; tries: number; waitMs: number }) => void;
};

export type RetryWriteOptions = RetryOptions & {
  /** Whether the write makes work for other processes, as in `WriteOptions`. */
  notify?: boolean;
  /** The statements to send once an earlier send may have landed. Default: the same ones. */
  again?: () => readonly Statement[];
  writeOptions?: Omit<WriteOptions, "notify">;
};

/** For callers that wait: only unknown outcomes are retried, and all other errors are thrown. */
export const untilKnown = { limitMs: 30_000, codes: ["unknown_outcome"] } as const;

/**
 * Sends the same statements until their outcome is known. Only for writes that may be repeated
 * because they carry their own condition: an id that is taken, a token that has passed. `repeated`
 * is true if an earlier send may have landed, so that the answer is that of `again`.
 */
export function writeUntilKnown(
  database: Database,
  statements: readonly Statement[],
  options: RetryWriteOptions,
): Promise<{ tables: Row[][]; repeated: boolean }> {
  const { again = () => statements, notify = false, writeOptions } = options;
  const send = async (repeated: boolean) => {
    const sent = repeated ? again() : statements;
    return { tables: await database.write(sent, { notify, ...writeOptions }), repeated };
  };
  return sendUntilKnown(send, {
    ...options,
    onFailed(failure) {
      options.onFailed?.(failure);
      database.report?.({ type: "resent", waitMs: failure.waitMs });
    },
  });
}

/** Like `writeUntilKnown`, for a conditional write that `send` makes. */
export function sendUntilKnown<Answer>(
  send: (repeated: boolean) => Promise<Answer>,
  options: RetryOptions,
): Promise<Answer> {
  const { codes = transientCodes } = options;
  // Once one send's outcome is unknown, a refusal of a later one says nothing about it.
  const mayPass = (error: unknown, isUnknown: boolean) =>
    hasCode(error, ...codes) || (isUnknown && hasCode(error, ...transientCodes));
  const { mayRetry = mayPass } = options;
  let unknown: unknown;
  return repeat(() => send(unknown !== undefined), {
    ...options,
    mayRetry(error) {
      if (hasCode(error, "unknown_outcome")) unknown = error;
      return mayRetry(error, unknown !== undefined);
    },
    toThrow: (error) => unknown ?? error,
  });
}

/**
 * Calls until there is an answer: for reads, and for calls whose last refusal counts, whatever became
 * of those before it.
 */
export function callUntilAnswered<Answer>(
  call: () => Promise<Answer>,
  options: RetryOptions,
): Promise<Answer> {
  const { codes = transientCodes } = options;
  const { mayRetry = (error: unknown) => hasCode(error, ...codes) } = options;
  return repeat(call, {
    ...options,
    mayRetry: (error) => mayRetry(error, false),
    toThrow: (error) => error,
  });
}

type Repetition = Omit<RetryOptions, "codes" | "mayRetry"> & {
  mayRetry: (error: unknown) => boolean;
  toThrow: (error: unknown) => unknown;
};

async function repeat<Answer>(call: () => Promise<Answer>, options: Repetition): Promise<Answer> {
  const { clock, random, signal, limitMs = Infinity, mayRetry, toThrow, onFailed } = options;
  const { waitMs = (tries: number) => contentionMs(tries, random) } = options;
  const startedMs = clock.monotonic();
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      const endMs = typeof limitMs === "function" ? limitMs() : limitMs;
      const late = clock.monotonic() - startedMs >= endMs;
      if (!mayRetry(error) || late || signal?.aborted) throw toThrow(error);
      const failure = { error, tries, waitMs: waitMs(tries) };
      onFailed?.(failure);
      await sleep(clock, failure.waitMs, signal);
    }
  }
}
