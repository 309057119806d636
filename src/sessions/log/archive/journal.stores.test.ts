import { systemClock } from "../../../base/clock.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { silentLogger } from "../../../base/log.ts";
import { systemRandom } from "../../../base/random.ts";
import type { StoreKind } from "../../../store/contract/database.ts";
import { memoryKind, storeKinds, usualKinds } from "../../../store/contract/kinds.ts";
import { migrate } from "../../../store/migrate.ts";
import {
  archivedKind,
  type ArchivedPlace,
  archivedShares,
} from "../../contract/archived-journal.ts";
import { journalContract } from "../../contract/journal.ts";
import { logContract } from "../../contract/log.ts";
import { simulateStreams } from "../../contract/simulated-streams.ts";
import { createStreamLog } from "../jetstream/log.ts";
import { usualLogBytes } from "../jetstream/streams.ts";
import { createArchivedJournal } from "./journal.ts";
import { placeOnStreams } from "../place.ts";

const clock = systemClock;
const random = systemRandom;
const ids = uuidv7(clock, random);
const deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: usualLogBytes,
} as const;

const placeOn = (kind: StoreKind) => async (): Promise<ArchivedPlace> => {
  const store = await kind.open();
  await migrate(store.database);
  await placeOnStreams(store.database);
  const opened = [store.database];
  const servers = simulateStreams({ clock, random });
  return {
    stream: async () =>
      createStreamLog({
        engine: servers.connect(),
        deployment,
        clock,
        random,
        ids,
        log: silentLogger,
        maxRecordBytes: 8_000_000,
      }),
    async database() {
      if (!store.again || opened.length > 1) return opened.at(-1)!;
      const again = await store.again();
      opened.push(again);
      return again;
    },
    async close() {
      for (const each of opened) await each.close();
      await store.remove();
    },
  };
};

for (const kind of usualKinds) {
  for (const [what, isArchived] of Object.entries(archivedShares)) {
    const name = `on simulated JetStream, with ${what} of it in ${kind.name}`;
    journalContract(archivedKind(name, placeOn(kind), isArchived));
  }
}

for (const kind of storeKinds.filter((each) => each === memoryKind)) {
  logContract({
    name: `on simulated JetStream with an archive in ${kind.name}`,
    async open() {
      const place = await placeOn(kind)();
      const open = async () =>
        createArchivedJournal({
          stream: await place.stream(),
          database: await place.database(),
          clock,
          random,
          ids,
          log: silentLogger,
        });
      return { log: await open(), another: open, close: place.close };
    },
  });
}
