import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";

export type Readiness =
  | { readonly ready: true }
  | { readonly ready: false; readonly reason: string };

export type ReadinessParts = {
  /** Resolves once something was really written. */
  ping: () => Promise<void>;
  /** Whether this pod is leaving, and should get no more work. */
  isStopping: () => boolean;
  clock: Clock;
  log: Logger;
};

// However many probes come, the store is written to once in this time.
const cachedMs = 1_000;
const pingTimeoutMs = 5_000;

/**
 * Whether this process can do its job, found out by writing. The reason is a code and no more,
 * because the health routes answer anybody; the log has the rest.
 */
export function createReadiness(parts: ReadinessParts): () => Promise<Readiness> {
  const { ping, isStopping, clock, log } = parts;
  let last: { readonly atMs: number; readonly readiness: Readiness } | undefined;
  /** Shared by all who ask meanwhile, and the only one even where it outlasts their patience. */
  let writing: Promise<Readiness> | undefined;

  const write = async (): Promise<Readiness> => {
    try {
      await ping();
      return { ready: true };
    } catch (error) {
      const reason = error instanceof FlotillaError ? error.code : "internal";
      log.warn({ code: reason, error: messageOf(error) }, "the store can't be written");
      return { ready: false, reason };
    } finally {
      writing = undefined;
    }
  };

  return async () => {
    if (isStopping()) return { ready: false, reason: "stopping" };
    if (last && clock.monotonic() - last.atMs < cachedMs) return last.readiness;
    writing ??= write();
    const readiness = await orTimedOut(clock, writing);
    last = { atMs: clock.monotonic(), readiness };
    return readiness;
  };
}

function orTimedOut(clock: Clock, writing: Promise<Readiness>): Promise<Readiness> {
  return new Promise((resolve) => {
    const cancel = clock.after(pingTimeoutMs, () => resolve({ ready: false, reason: "timeout" }));
    void writing.then((readiness) => {
      cancel();
      resolve(readiness);
    });
  });
}
