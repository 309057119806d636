import { type Clock, systemClock } from "../../../base/clock.ts";
import type { FlotillaError } from "../../../base/errors.ts";
import { type Ids, uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { type Random, systemRandom } from "../../../base/random.ts";
import type { Nats } from "../../../bus/nats/nats.ts";
import type { StoredText } from "../../../store/codec/codec.ts";
import type { Database } from "../../../store/database.ts";
import type { loadSettings } from "../../settings.ts";

/** The store and the NATS servers of a config, for one command. */
export type Servers = {
  readonly clock: Clock;
  readonly random: Random;
  readonly ids: Ids;
  readonly log: Logger;
  readonly database: Database;
  readonly nats: Nats;
  readonly text: StoredText | undefined;
  /** An id of this process's own, as a pod has one. */
  readonly processId: string;
  readonly host: string | null;
  readonly isGone: (host: string) => boolean;
};

/** Opens the store and the servers of a config, both for as long as `act` takes. */
export async function withServers(
  settings: Awaited<ReturnType<typeof loadSettings>>,
  { without }: { without: () => FlotillaError },
  act: (servers: Servers) => Promise<void>,
): Promise<void> {
  const { store, nats: config } = settings;
  if (!config) throw without();
  const { createNats, natsFor } = await import("../../../bus/nats/nats.ts");
  const { identifyProcess } = await import("../../../runtime/process.ts");
  const { openStore, storedTextOf } = await import("../../../store/open.ts");
  const clock = systemClock;
  const random = systemRandom;
  const ids = uuidv7(clock, random);
  const log = silentLogger;
  const processId = ids.next();
  await using opened = new AsyncDisposableStack();
  const database = await openStore(store, { migrate: "check", create: false, notifies: false });
  opened.defer(() => database.close());
  const nats = createNats(natsFor(store, config), { clock, random, log, origin: processId });
  opened.defer(() => nats.close());
  await nats.connection().started;
  const text = storedTextOf({ ...settings, log });
  const own = identifyProcess();
  const host = own?.host ?? null;
  const isGone = (other: string) => own?.isGone(other) ?? false;
  await act({ clock, random, ids, log, database, nats, text, processId, host, isGone });
}
