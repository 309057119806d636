import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import type { Bus } from "./bus.ts";
import { createEndpoint } from "./endpoint.ts";
import { createReceiver } from "./receiver.ts";
import { createSender, type DropReason } from "./sender.ts";
import { pruneEnvelopes } from "./sql.ts";

const maxWaitingChars = 16 * 1024 * 1024;

export type StoreBusOptions = {
  /** Unique, and new with every start, because envelopes are numbered from one. */
  address: string;
  database: Database;
  clock: Clock;
  random: Random;
  log?: Logger;
  /** How long envelopes stay unread without a notification. Default 1,000. */
  pollMs?: number;
  /** False if no envelope is stored, as far as is known. Default: always true. */
  mayHaveEnvelopes?: (() => boolean) | undefined;
  /**
   * The most characters that may wait to be written; envelopes beyond that are dropped. Default 16
   * Mi.
   */
  maxWaiting?: number;
  /** Called with the number of dropped envelopes. */
  onLost?: (envelopes: number, why: DropReason) => void;
};

/** A bus on the shared store: envelopes are rows, and the receiver deletes them. */
export function createStoreBus(options: StoreBusOptions): Bus {
  const { address, database, clock, random, log = silentLogger } = options;
  const { pollMs = 1_000, maxWaiting = maxWaitingChars, onLost = () => {} } = options;
  const sender = createSender({ address, database, clock, random, maxWaiting, onLost });
  const endpoint = createEndpoint({
    address,
    clock,
    log,
    transmit(to, text) {
      receiver.noteActivity();
      sender.send(to, text);
    },
  });
  const { receive, refuse: _, ...rest } = endpoint;
  const { mayHaveEnvelopes } = options;
  const receiver = createReceiver({
    address,
    database,
    clock,
    log,
    pollMs,
    mayHaveEnvelopes,
    receive,
  });
  return {
    ...rest,
    async close() {
      endpoint.close();
      await Promise.all([receiver.close(), sender.close()]);
    },
  };
}

/** A bus that is started when it is first needed: an idle process reads no envelopes. */
export type LazyBus = {
  /** Starts it, unless it runs. */
  readonly start: () => Bus;
  close(): Promise<void>;
};

export function createLazyBus(
  create: () => Bus,
  onStarted: (bus: Bus) => void = () => {},
): LazyBus {
  let started: Bus | undefined;
  let closed = false;
  return {
    start() {
      if (started) return started;
      if (closed) throw new FlotillaError("closed", "the bus was closed");
      started = create();
      onStarted(started);
      return started;
    },
    async close() {
      closed = true;
      await started?.close();
    },
  };
}

/** Deletes envelopes whose receivers are gone. The leader calls it again, so that a failure is passed over. */
export async function pruneStaleEnvelopes(database: Pick<Database, "write">): Promise<void> {
  await database.write([pruneEnvelopes()]).catch(() => {});
}
