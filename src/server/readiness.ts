import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { settledWithin } from "../base/timeout.ts";

export type Readiness =
  | { readonly ready: true }
  | { readonly ready: false; readonly reason: string };

export type ReadinessParts = {
  /** Resolves after a write to the store. */
  ping: () => Promise<void>;
  /** Whether this server is stopping and should get no more work. */
  isStopping: () => boolean;
  clock: Clock;
  log: Logger;
};

// However many probes come, the store is written to once in this time.
const cachedMs = 1_000;
const pingTimeoutMs = 5_000;

/**
 * Whether this process can do its job, tested by a write. The reason is only a code, because the health
 * routes need no credentials; the log has the rest.
 */
export function createReadiness(parts: ReadinessParts): () => Promise<Readiness> {
  const { ping, isStopping, clock, log } = parts;
  let last: { readonly atMs: number; readonly readiness: Readiness } | undefined;
  /** Shared by concurrent probes. There is never a second write, even where this one outlasts a probe. */
  let writing: Promise<Readiness> | undefined;

  const write = async (): Promise<Readiness> => {
    try {
      await ping();
      return { ready: true };
    } catch (error) {
      const reason = error instanceof FlotillaError ? error.code : "internal";
      log.warn({ code: reason, error: messageOf(error) }, "readiness write failed");
      return { ready: false, reason };
    } finally {
      writing = undefined;
    }
  };

  return async () => {
    if (isStopping()) return { ready: false, reason: "stopping" };
    if (last && clock.monotonic() - last.atMs < cachedMs) return last.readiness;
    writing ??= write();
    const written = await settledWithin(clock, pingTimeoutMs, writing);
    const readiness = written ?? { ready: false, reason: "timeout" };
    last = { atMs: clock.monotonic(), readiness };
    return readiness;
  };
}
