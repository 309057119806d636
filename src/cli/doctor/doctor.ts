import process from "node:process";
import { systemClock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import { type NatsConfig, natsName } from "../../bus/nats/config.ts";
import { createNats, natsFor } from "../../bus/nats/nats.ts";
import type { Durability } from "../../store/database.ts";
import { locateStore, type Store } from "../../store/open.ts";
import { type Check, failed, ok } from "./check.ts";
import type { FleetOptions } from "./fleet.ts";
import { checkSqliteFile } from "./sqlite-file.ts";
import { checkPostgres, type ServerLimits } from "./postgres.ts";
import { checkStreamLogs, hasStreamLogs } from "./streams.ts";

const nodeNeeded = [22, 18] as const;

/** Checks everything that could keep Flotilla from working. Changes nothing. */
export async function runDoctor(
  store: Store,
  durability: Durability,
  options: FleetOptions & Partial<ServerLimits> = {},
): Promise<Check[]> {
  const location = locateStore(store);
  const checks =
    location.kind === "sqlite"
      ? await checkSqliteFile(location.path, durability, options)
      : await checkPostgres(location.store, durability, options);
  const nats = options.nats ? await natsChecks(store, options.nats) : [];
  return [nodeCheck(), ...checks, ...nats];
}

/** Connects as a pod does, and tries what a pod needs. */
async function natsChecks(store: Store, config: NatsConfig): Promise<Check[]> {
  const settings = natsFor(store, config);
  const parts = { clock: systemClock, random: systemRandom, log: silentLogger };
  const ids = uuidv7(systemClock, systemRandom);
  const nats = createNats(settings, { ...parts, origin: ids.next() });
  try {
    const connection = nats.connection();
    await connection.started;
    const where = settings.servers.join(", ");
    const text = `version ${connection.serverVersion} at ${where}, as ${natsName(settings)}`;
    if (settings.use === "bus" && !(await hasStreamLogs(store))) return [ok("nats", text)];
    return [ok("nats", text), ...(await checkStreamLogs(store, nats))];
  } catch (error) {
    return [failed("nats", messageOf(error))];
  } finally {
    await nats.close();
  }
}

function nodeCheck(): Check {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [needMajor, needMinor] = nodeNeeded;
  const enough = major > needMajor || (major === needMajor && minor >= needMinor);
  return enough
    ? ok("node", process.versions.node)
    : failed("node", `${process.versions.node}, and ${nodeNeeded.join(".")} or newer is needed`);
}
