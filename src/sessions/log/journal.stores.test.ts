import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { memoryKind, storeKinds } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { journalContract, type JournalKind } from "../contract/journal.ts";
import { createMemoryJournal } from "./memory-journal.ts";
import { createSqlJournal } from "./sql-journal.ts";
import { storedContract } from "../contract/stored.ts";
import { troubleContract } from "../contract/trouble.ts";

const ids = uuidv7(systemClock, systemRandom);

const inMemory: JournalKind = {
  name: "in memory",
  async open() {
    const journal = createMemoryJournal({ ids });
    return { journal, another: async () => journal, close: async () => {} };
  },
};

const inSql = (kind: StoreKind): JournalKind => ({
  name: `in SQL on ${kind.name}`,
  async open() {
    const { database, again, remove } = await kind.open();
    await migrate(database);
    const opened = [database];
    return {
      journal: createSqlJournal({ database, ids }),
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

if (storeKinds.includes(memoryKind)) journalContract(inMemory);
for (const kind of storeKinds) journalContract(inSql(kind));
for (const kind of storeKinds) {
  troubleContract(kind, ids);
  storedContract(kind, ids);
}
