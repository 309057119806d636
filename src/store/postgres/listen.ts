import type pg from "pg";
import type { Logger } from "../../base/log.ts";
import { contentionMs } from "../../base/backoff.ts";
import { afterUnlessOver, systemClock } from "../../base/clock.ts";
import { systemRandom } from "../../base/random.ts";
import { mailListeners } from "../mail-hints.ts";
import { channelOf, mailAddresses, mailChannelOf } from "./hint-queries.ts";

// A dead socket says nothing; asking now and then shows it. Polling makes up for what is missed.
const checkMs = 30_000;
// Whoever waits for one task after the other shouldn't connect for each.
const lingerMs = 2_000;
// A server that is out of reach says no goodbye, and nobody should wait for it.
const goodbyeMs = 1_000;

export type HintParts = {
  schema: string;
  /** A client that has yet to connect, or undefined where no hint would arrive. */
  open: () => Promise<pg.Client | undefined>;
  log: Logger;
};

/**
 * Listens for hints on a connection of its own, for as long as somebody subscribes, and only to what
 * somebody wants to hear: letters are many where tasks are few. Only an
 * accelerator: behind a pooler that deals out connections per transaction nothing would arrive, so
 * there nobody listens, and polling has to do.
 */
export function listenForHints({ schema, open, log }: HintParts) {
  const workers = new Set<() => void>();
  const mail = mailListeners();
  const channels = [
    { name: channelOf(schema), wanted: () => workers.size > 0, tell: () => tellWorkers() },
    {
      name: mailChannelOf(schema),
      wanted: () => mail.size > 0,
      tell: (payload = "") => mail.tell(mailAddresses(payload)),
    },
  ];
  /** What the present connection listens to. */
  let heard = new Set<string>();
  let client: pg.Client | undefined;
  let state: "idle" | "opening" | "listening" | "resting" | "pointless" | "closed" = "idle";
  let failures = 0;
  let cancel = () => {};

  const tellWorkers = () => {
    for (const listener of workers) listener();
  };
  const subscribers = () => workers.size + mail.size;

  /** Listens to what is wanted and isn't heard yet. */
  const tune = async (tuned: pg.Client): Promise<void> => {
    for (const { name, wanted, tell } of channels) {
      if (heard.has(name) || !wanted()) continue;
      heard.add(name);
      await tuned.query(`listen ${name}`);
      // Something may have been committed while nobody listened.
      tell();
    }
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
      opened.on("notification", ({ channel, payload }) =>
        channels.find(({ name }) => name === channel)?.tell(payload),
      );
      opened.on("error", () => again(opened));
      opened.on("end", () => again(opened));
      await opened.connect();
      heard = new Set();
      await tune(opened);
      failures = 0;
      state = "listening";
      // Somebody may have come for the other meanwhile.
      await tune(opened);
      if (client !== opened) return;
      if (subscribers() === 0) linger();
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
    if (subscribers() === 0) return;
    state = "resting";
    cancel = systemClock.after(contentionMs(++failures, systemRandom), () => void start());
  };

  const check = (asked: pg.Client) => {
    cancel();
    cancel = afterUnlessOver(checkMs, () => {
      asked.query("select 1").then(
        () => state === "listening" && client === asked && subscribers() > 0 && check(asked),
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
    subscribe(listener: () => void, mailOf?: string): () => void {
      const remove =
        mailOf === undefined ? () => workers.delete(listener) : mail.add(mailOf, listener);
      if (mailOf === undefined) workers.add(listener);
      if (state === "idle") void start();
      else if (state === "listening") {
        const tuned = client!;
        tune(tuned).catch(() => again(tuned));
        if (subscribers() === 1) {
          refer(tuned, true);
          check(tuned);
        }
      }
      return () => {
        remove();
        if (subscribers() > 0) return;
        if (state === "listening") linger();
        else if (state === "resting") void leave();
      };
    },
    async close(): Promise<void> {
      state = "closed";
      workers.clear();
      mail.clear();
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
