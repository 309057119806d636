import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { fraction, type Random } from "../../base/random.ts";
import type { Client } from "../client.ts";
import { passing } from "../socket/send-queue.ts";
import { jitteredMs } from "../../base/backoff.ts";

export type MakeSessionOptions = {
  sessionId: string;
  agents: readonly string[];
  clock: Clock;
  random: Random;
  signal: AbortSignal | undefined;
};

/**
 * Makes the session of a chat that is new. What is said in it waits for a connection as it does in any
 * other: with its id a session is made once, however often it is asked for.
 */
export async function makeSession(client: Client, options: MakeSessionOptions): Promise<void> {
  const { sessionId, agents, clock, random, signal } = options;
  for (let failures = 1; ; failures++) {
    try {
      await client.sessions.create({ sessionId, agents });
      return;
    } catch (error) {
      if (!mayPass(error) || client.connection.get().status === "closed") throw error;
      const waitMs = (error.retryAfterMs ?? 0) + jitteredMs(failures, fraction(random));
      await sleep(clock, waitMs, signal);
    }
  }
}

/** Whether there is hope: not where something else answers at that address. */
function mayPass(error: unknown): error is FlotillaError {
  if (!(error instanceof FlotillaError) || !passing.test(error.code)) return false;
  const status = error.details?.["status"];
  return typeof status !== "number" || status >= 500;
}
