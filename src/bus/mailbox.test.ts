import { seededRandom } from "../base/random.ts";
import { storeKinds } from "../store/kinds.contract.ts";
import { migrate } from "../store/migrate.ts";
import { busContract } from "./bus.contract.ts";
import type { Bus } from "./bus.ts";
import { mailboxContract } from "./mailbox.contract.ts";
import { createMailbox } from "./mailbox.ts";

for (const kind of storeKinds) {
  busContract({
    name: `on ${kind.name}`,
    async open(clock) {
      const store = await kind.open();
      await migrate(store.database);
      const random = seededRandom(1);
      const databases = [store.database];
      const buses: Bus[] = [];
      // A process more for the first two, and the rest of them share one.
      const another = async () => {
        if (!store.again || databases.length >= 3) return databases.at(-1)!;
        const made = await store.again();
        databases.push(made);
        return made;
      };
      return {
        async connect(address) {
          const bus = createMailbox({ address, database: await another(), clock, random });
          buses.push(bus);
          return bus;
        },
        async remove() {
          for (const bus of buses) await bus.close();
          for (const database of databases) await database.close();
          await store.remove();
        },
      };
    },
  });
  mailboxContract(kind);
}
