import type { Clock } from "../base/clock.ts";
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
  /** Nobody else's, and new with every start: letters are numbered from one. */
  address: string;
  database: Database;
  clock: Clock;
  random: Random;
  log?: Logger;
  /** How long letters lie where no hint came. Default 1,000. */
  pollMs?: number;
  /** Characters that may wait to be written; what would be more is lost. Default 16 Mi. */
  maxWaiting?: number;
  /** So many letters will not get there. */
  onLost?: (envelopes: number, why: DropReason) => void;
};

/** A bus on the store that everybody shares anyway: letters are rows, and whoever they are for takes them out. */
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
  const { receive, ...rest } = endpoint;
  const receiver = createReceiver({ address, database, clock, log, pollMs, receive });
  return {
    ...rest,
    async close() {
      endpoint.close();
      await Promise.all([receiver.close(), sender.close()]);
    },
  };
}

/** Deletes envelopes whose receivers are gone. The leader calls it again, so that a failure is passed over. */
export async function pruneStaleEnvelopes(database: Pick<Database, "write">): Promise<void> {
  await database.write([pruneEnvelopes()]).catch(() => {});
}
