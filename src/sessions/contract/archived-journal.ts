import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import { createMemoryBus } from "../../bus/memory-bus.ts";
import type { Database } from "../../store/database.ts";
import { type ArchivedJournal, createArchivedJournal } from "../log/archive/journal.ts";
import type { StreamLog } from "../log/jetstream/log.ts";
import type { Head, Journal, LogRecord } from "../log/journal.ts";
import { createHeads } from "../log/heads.ts";
import type { JournalKind } from "./journal.ts";
import { fresh } from "./journal-harness.ts";

/** The servers of a log and the database behind it, as processes open them. */
export type ArchivedPlace = {
  stream(): Promise<StreamLog>;
  database(): Promise<Database>;
  close(): Promise<void>;
};

/** How much of what is committed is archived before anything is read. */
export const archivedShares = {
  nothing: () => false,
  everything: () => true,
  "every third record": (commit: number) => commit % 3 === 0,
} as const;

/**
 * Journals on a log with an archive, for the suite of journals. Each is a process of its own: what one owns,
 * the other reads over the bus. The suite commits at any head through any journal, as no pod does; here a
 * record goes to the process that has taken the log, as commands do. Sessions of the suite are in whatever
 * log a test has, so they are where they were first stored.
 */
export function archivedKind(
  name: string,
  open: () => Promise<ArchivedPlace>,
  isArchived: (commit: number) => boolean,
): JournalKind {
  return {
    name,
    async open() {
      const place = await open();
      const bus = createMemoryBus();
      const opened: ArchivedJournal[] = [];
      /** The process that has taken a term of a log, and its address. */
      const takers = new Map<string, { own: ArchivedJournal; address: string }>();
      const places = new Map<string, number>();
      let spare = 0;
      let commits = 0;
      const process = async (): Promise<Journal> => {
        const address = fresh("process");
        const stream = await place.stream();
        // Tests take logs under names of their own.
        const heads = async () =>
          (await stream.heads()).map((head) => {
            const taker = head.owner === null ? undefined : takers.get(termOf(head));
            return { ...head, owner: taker?.address ?? null };
          });
        const own = createArchivedJournal({
          stream,
          database: await place.database(),
          bus: bus.connect(address),
          heads: createHeads({ journal: { heads }, clock: systemClock }),
          clock: systemClock,
          random: systemRandom,
          ids: uuidv7(systemClock, systemRandom),
          log: silentLogger,
          logOf: (sessionId) => places.get(sessionId) ?? spare,
          // A mark would move the heads that the suite compares.
          proofMs: Infinity,
        });
        opened.push(own);
        const take: Journal["take"] = async (seen, owner) => {
          const taken = await own.take(seen, owner);
          if (!taken) return undefined;
          takers.set(termOf(taken), { own, address });
          await own.recover(taken);
          return taken;
        };
        return {
          ...own,
          take,
          async create(logs) {
            await own.create(logs);
            const made = await own.heads();
            spare = made.length - 1;
            const recordId = fresh("take");
            await take(made[spare]!, { podId: address, host: null, recordId });
          },
          async commit(at, record) {
            for (const each of sessionsOf(record)) places.set(each, at.logId);
            const taker = takers.get(termOf(at))?.own ?? own;
            const result = await taker.commit(at, record);
            if (isArchived(commits++)) await taker.flush();
            return result;
          },
        };
      };
      return {
        journal: await process(),
        another: process,
        async close() {
          for (const each of opened) await each.stop();
          await place.close();
        },
      };
    },
  };
}

function termOf({ logId, term }: Head): string {
  return `${logId} ${term}`;
}

function sessionsOf(record: LogRecord): string[] {
  const { headers, entries, metadata, reads, checkpoints, steps, stepsOver } = record;
  return [headers, entries, metadata, reads, checkpoints, steps, stepsOver].flatMap((all) =>
    all.map(({ sessionId }) => sessionId),
  );
}
