import { seededRandom } from "../base/random.ts";
import type { OpenStore, StoreKind } from "../store/contract/database.ts";
import type { Database } from "../store/database.ts";
import { storeKinds } from "../store/contract/kinds.ts";
import { migrate } from "../store/migrate.ts";
import { busContract } from "./contract/bus.ts";
import type { Bus } from "./bus.ts";
import { emptyBus, storeBusContract } from "./contract/store-bus.ts";
import { createStoreBus } from "./store-bus.ts";

for (const kind of storeKinds) {
  let shared: Shared;
  busContract({
    name: `on ${kind.name}`,
    async start() {
      shared = await openShared(kind);
    },
    stop: () => shared.close(),
    async open(clock) {
      const buses: Bus[] = [];
      const random = seededRandom(1);
      return {
        async connect(address) {
          const database = shared.databases[buses.length % shared.databases.length]!;
          const bus = createStoreBus({ address, database, clock, random });
          buses.push(bus);
          return bus;
        },
        async remove() {
          for (const bus of buses) await bus.close();
          await shared.databases[0]!.write([emptyBus]);
        },
      };
    },
  });
  storeBusContract(kind);
}

type Shared = { readonly databases: readonly Database[]; close(): Promise<void> };

/** One store as two processes have it, where that can be. */
async function openShared(kind: StoreKind): Promise<Shared> {
  const store: OpenStore = await kind.open();
  await migrate(store.database);
  const databases = [store.database];
  if (store.again) databases.push(await store.again());
  return {
    databases,
    async close() {
      for (const database of databases) await database.close();
      await store.remove();
    },
  };
}
