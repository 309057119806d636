import type pg from "pg";
import type { Logger } from "../../base/log.ts";
import { contentionMs } from "../../base/backoff.ts";
import { afterUnlessOver, systemClock } from "../../base/clock.ts";
import { systemRandom } from "../../base/random.ts";
import type { Query } from "../sql.ts";

export const channelOf = (schema: string) => `${schema}_hint`;

/**
 * Tells those who listen, once the transaction that it is sent in has committed, if any of them waits:
 * transactions that tell something commit one after the other, in all databases of the server.
 */
export function hintQuery(schema: string): Query {
  const text = `select pg_notify($1, '')
    where exists (select 1 from ${schema}.pod_health where waiting = 1 and status = 'up')`;
  return { text, values: [channelOf(schema)] };
}

// A dead socket says nothing; asking now and then shows it. Polling makes up for what is missed.
const checkMs = 30_000;
// Whoever waits for one task after the other shouldn't connect for each.
const lingerMs = 2_000;
// A server that is out of reach says no goodbye, and nobody should wait for it.
const goodbyeMs = 1_000;

export type HintParts = {
  channel: string;
  /** A client that has yet to connect, or undefined where no hint would arrive. */
  open: () => Promise<pg.Client | undefined>;
  log: Logger;
};

/**
 * Listens for hints on a connection of its own, for as long as somebody subscribes. Only an
 * accelerator: behind a pooler that deals out connections per transaction nothing would arrive, so
 * there nobody listens, and polling has to do.
 */
export function listenForHints({ channel, open, log }: HintParts) {
  const listeners = new Set<() => void>();
  let client: pg.Client | undefined;
  let state: "idle" | "opening" | "listening" | "resting" | "pointless" | "closed" = "idle";
  let failures = 0;
  let cancel = () => {};

  const tell = () => {
    for (const listener of listeners) listener();
  };

  const start = async (): Promise<void> => {
    state = "opening";
    cancel();
    let made: pg.Client | undefined;
    try {
      made = await open();
      if (isClosed()) return;
      if (!made) {
        state = "pointless";
        log.info({}, "no hints come through the pooler in between; new tasks are found by polling");
        return;
      }
      const opened = made;
      client = opened;
      opened.on("notification", tell);
      opened.on("error", () => again(opened));
      opened.on("end", () => again(opened));
      await opened.connect();
      await opened.query(`listen ${channel}`);
      failures = 0;
      state = "listening";
      // Something may have been committed while nobody listened.
      tell();
      if (listeners.size === 0) linger();
      else check(opened);
    } catch (error) {
      log.debug({ error: String(error) }, "listening for hints failed; polling meanwhile");
      again(made);
    }
  };

  const isClosed = () => state === "closed";

  const again = (broken: pg.Client | undefined) => {
    if (state === "closed" || client !== broken) return;
    void leave();
    if (listeners.size === 0) return;
    state = "resting";
    cancel = systemClock.after(contentionMs(++failures, systemRandom), () => void start());
  };

  const check = (asked: pg.Client) => {
    cancel();
    cancel = afterUnlessOver(checkMs, () => {
      asked.query("select 1").then(
        () => state === "listening" && client === asked && listeners.size > 0 && check(asked),
        () => again(asked),
      );
    });
  };

  /** Nobody subscribes: the process may end now, and the connection is closed before long. */
  const linger = () => {
    cancel();
    refer(client, false);
    cancel = afterUnlessOver(lingerMs, () => void leave());
  };

  const leave = async (): Promise<void> => {
    cancel();
    const left = client;
    client = undefined;
    if (state !== "closed") state = "idle";
    if (left) await parted(left);
  };

  return {
    subscribe(listener: () => void): () => void {
      listeners.add(listener);
      if (state === "idle") void start();
      else if (state === "listening" && listeners.size === 1) {
        refer(client, true);
        check(client!);
      }
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        if (state === "listening") linger();
        else if (state === "resting") void leave();
      };
    },
    async close(): Promise<void> {
      state = "closed";
      listeners.clear();
      await leave();
    },
  };
}

/** Ends a connection, and waits for that only so long. */
function parted(client: pg.Client): Promise<void> {
  refer(client, false);
  let cancel = () => {};
  const longEnough = new Promise<void>((resolve) => {
    cancel = afterUnlessOver(goodbyeMs, resolve);
  });
  const ended = client.end().catch(() => {});
  return Promise.race([ended, longEnough]).finally(cancel);
}

/** Whether a connection keeps the process from ending. The driver's types don't know of this. */
function refer(client: pg.Client | undefined, needed: boolean): void {
  const socket = client as { ref?: () => void; unref?: () => void } | undefined;
  if (needed) socket?.ref?.();
  else socket?.unref?.();
}
