import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { memoryKind, storeKinds } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { journalContract, type JournalKind } from "../contract/journal.ts";
import { logContract, type LogKind } from "../contract/log.ts";
import { presenceContract, type PresenceKind } from "../contract/presence.ts";
import { createMemoryJournal, createMemoryPresence } from "./memory-journal.ts";
import { createSqlJournal, createSqlPresence } from "./sql-journal.ts";
import { storedContract } from "../contract/stored.ts";
import { troubleContract } from "../contract/trouble.ts";

const ids = uuidv7(systemClock, systemRandom);

/** Opens all that a kind of journal has. */
type Opening = Pick<JournalKind, "name"> & {
  open(): Promise<
    Awaited<ReturnType<JournalKind["open"]>> & Awaited<ReturnType<PresenceKind["open"]>>
  >;
};

const inMemory: Opening = {
  name: "in memory",
  async open() {
    // As much as a message of a log server has room for.
    const journal = createMemoryJournal({ ids, maxRecordBytes: 8_000_000 });
    const presence = createMemoryPresence(journal);
    return { journal, log: journal, presence, another: async () => journal, close: async () => {} };
  },
};

const inSql = (kind: StoreKind): Opening => ({
  name: `in SQL on ${kind.name}`,
  async open() {
    const { database, again, remove } = await kind.open();
    await migrate(database);
    const opened = [database];
    const journal = createSqlJournal({ database, ids });
    return {
      journal,
      log: journal,
      presence: createSqlPresence({ database }),
      async another() {
        if (!again) return createSqlJournal({ database, ids });
        const other = await again();
        opened.push(other);
        return createSqlJournal({ database: other, ids });
      },
      async close() {
        for (const each of opened) await each.close();
        await remove();
      },
    };
  },
});

const kinds = storeKinds.map(inSql);
for (const kind of storeKinds.includes(memoryKind) ? [inMemory, ...kinds] : kinds) {
  logContract(kind satisfies LogKind);
  presenceContract(kind);
  journalContract(kind);
}
for (const kind of storeKinds) {
  troubleContract(kind, ids);
  storedContract(kind, ids);
}
