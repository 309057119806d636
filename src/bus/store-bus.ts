import type { Clock } from "../base/clock.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import type { Bus } from "./bus.ts";
import { createDesk } from "./endpoint.ts";
import { createIncoming } from "./receiver.ts";
import { createOutgoing, type LostWhy } from "./sender.ts";

const waitingChars = 16 * 1024 * 1024;

export type MailboxOptions = {
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
  onLost?: (letters: number, why: LostWhy) => void;
};

/** A bus on the store that everybody shares anyway: letters are rows, and whoever they are for takes them out. */
export function createMailbox(options: MailboxOptions): Bus {
  const { address, database, clock, random, log = silentLogger } = options;
  const { pollMs = 1_000, maxWaiting = waitingChars, onLost = () => {} } = options;
  const outgoing = createOutgoing({ address, database, clock, random, maxWaiting, onLost });
  const desk = createDesk({
    address,
    clock,
    log,
    post(to, text) {
      incoming.stir();
      outgoing.post(to, text);
    },
  });
  const { receive, ...rest } = desk;
  const incoming = createIncoming({ address, database, clock, log, pollMs, receive });
  return {
    ...rest,
    async close() {
      desk.close();
      await Promise.all([incoming.close(), outgoing.close()]);
    },
  };
}
