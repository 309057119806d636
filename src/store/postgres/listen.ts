import type pg from "pg";
import type { Logger } from "../../base/log.ts";
import { contentionMs } from "../../base/backoff.ts";
import { systemClock } from "../../base/clock.ts";
import { systemRandom } from "../../base/random.ts";
import type { Query } from "../sql.ts";

export const channelOf = (schema: string) => `${schema}_hint`;

/** Tells those who listen, once the transaction that it is sent in has committed. */
export function hintQuery(schema: string): Query {
  return { text: "select pg_notify($1, '')", values: [channelOf(schema)] };
}

/**
 * Listens for hints on a connection of its own. Only an accelerator: behind a pooler that changes
 * connections between transactions it stays silent, and polling has to do.
 */
export function listenForHints(parts: {
  driver: typeof pg;
  url: string;
  channel: string;
  log: Logger;
}) {
  const { driver, url, channel, log } = parts;
  const listeners = new Set<() => void>();
  let client: pg.Client | undefined;
  let closed = false;
  let failures = 0;
  let cancel = () => {};

  const tell = () => {
    for (const listener of listeners) listener();
  };
  const connect = async (): Promise<void> => {
    const made = new driver.Client({
      connectionString: url,
      application_name: "flotilla hints",
      keepAlive: true,
      connectionTimeoutMillis: 10_000,
    });
    client = made;
    made.on("notification", tell);
    made.on("error", () => again(made));
    made.on("end", () => again(made));
    try {
      await made.connect();
      await made.query(`listen ${channel}`);
      failures = 0;
      // Something may have been committed while nobody listened.
      tell();
    } catch (error) {
      log.debug({ error: String(error) }, "listening for hints failed; polling meanwhile");
      again(made);
    }
  };
  const again = (broken: pg.Client) => {
    if (closed || client !== broken) return;
    client = undefined;
    void broken.end().catch(() => {});
    cancel = systemClock.after(contentionMs(++failures, systemRandom), () => void connect());
  };

  return {
    subscribe(listener: () => void): () => void {
      listeners.add(listener);
      if (!client && listeners.size === 1) void connect();
      return () => listeners.delete(listener);
    },
    async close(): Promise<void> {
      closed = true;
      cancel();
      listeners.clear();
      await client?.end().catch(() => {});
    },
  };
}
