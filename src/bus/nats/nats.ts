import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { locateStore, type Store } from "../../store/open.ts";
import type { Bus } from "../bus.ts";
import { checkNats, type NatsConfig, type NatsSettings } from "./config.ts";
import { connectNats, type NatsConnection } from "./connection.ts";
import { createNatsBus, type NatsBusOptions } from "./nats-bus.ts";
import { notifyingByNats } from "./notifications.ts";

/** What one process does over NATS: its envelopes, and the notifications of its commits. */
export type Nats = {
  readonly settings: NatsSettings;
  /** Connects with the first call. */
  connection(): NatsConnection;
  /** The same database, whose commits notify other processes by NATS. */
  notifying(database: Database): Database;
  connectBus(address: string, parts: Pick<NatsBusOptions, "text" | "onForged" | "readSecret">): Bus;
  close(): Promise<void>;
};

export type NatsParts = {
  clock: Clock;
  random: Random;
  log: Logger;
  /** An id of this process's own. */
  origin: string;
};

/** Checks a config of NATS for a store. */
export function natsFor(store: Store, config: NatsConfig): NatsSettings {
  const settings = checkNats(config);
  // One server and one file are on one machine, where a developer tries what runs on many.
  const isOwnMachine = settings.use === "all" && settings.durability === "single";
  if (isOwnMachine || locateStore(store).kind === "postgres") return settings;
  throw new FlotillaError(
    "invalid_option",
    "`nats` needs a store on Postgres: processes on a SQLite file are on one machine and hear each other without it, so leave it out",
  );
}

export function createNats(settings: NatsSettings, parts: NatsParts): Nats {
  let connected: NatsConnection | undefined;
  let closed = false;
  const connection = () => {
    if (closed && !connected) throw new FlotillaError("closed", "the connection was closed");
    return (connected ??= connectNats(settings, parts));
  };
  return {
    settings,
    connection,
    notifying: (database) => notifyingByNats(database, { ...parts, nats: connection }),
    connectBus: (address, options) =>
      createNatsBus({ ...parts, ...options, address, nats: connection() }),
    async close() {
      closed = true;
      await connected?.close();
    },
  };
}
