import { backoffMs } from "../../../base/backoff.ts";
import type { Clock } from "../../../base/clock.ts";
import { FlotillaError, messageOf } from "../../../base/errors.ts";
import type { Logger } from "../../../base/log.ts";
import type { Random } from "../../../base/random.ts";

/** What fails for one log and not for the others. It is tried again later and later, and said once. */
export type LogFaults<Owned extends { readonly logId: number }> = {
  mayTry(of: Owned): boolean;
  failed(of: Owned, error: unknown): void;
  worked(of: Owned): void;
};

export type LogFaultsParts = {
  clock: Clock;
  random: Random;
  log: Logger;
  /** What is said of a log. */
  message: string;
};

const backoff = { baseMs: 100, maxMs: 5_000 };

export function createLogFaults<Owned extends { readonly logId: number }>({
  clock,
  random,
  log,
  message,
}: LogFaultsParts): LogFaults<Owned> {
  const faults = new WeakMap<Owned, { readonly failures: number; readonly untilMs: number }>();
  return {
    mayTry: (of) => clock.monotonic() >= (faults.get(of)?.untilMs ?? -Infinity),
    failed(of, error) {
      const failures = (faults.get(of)?.failures ?? 0) + 1;
      const untilMs = clock.monotonic() + backoffMs(failures, random, backoff);
      faults.set(of, { failures, untilMs });
      if (failures === 1) log.warn({ log: of.logId, error: messageOf(error) }, message);
    },
    worked: (of) => void faults.delete(of),
  };
}

/** Reads a log, of whose failures its database knows nothing. */
export async function readingLog<Found>(logId: number, reading: Promise<Found>): Promise<Found> {
  try {
    return await reading;
  } catch (error) {
    if (!(error instanceof FlotillaError)) throw error;
    const { code, message, details } = error;
    throw new FlotillaError(code, message, { cause: error, details: { ...details, log: logId } });
  }
}

/** Whether this is the failure of a read of a log. */
export function isOfLog(error: unknown): boolean {
  return error instanceof FlotillaError && error.details?.["log"] !== undefined;
}
