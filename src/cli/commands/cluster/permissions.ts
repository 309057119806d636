import { type Command, Option } from "commander";
import { systemClock } from "../../../base/clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { silentLogger } from "../../../base/log.ts";
import { systemRandom } from "../../../base/random.ts";
import type { NatsConfig } from "../../../bus/nats/config.ts";
import type { PodSettings } from "../../../runtime/config.ts";
import type { Store } from "../../../store/open.ts";
import { type StoreFlags, withJson, withStoreOnly } from "../../flags.ts";
import { print, printJson } from "../../output.ts";
import { loadSettings } from "../../settings.ts";

type PermissionsFlags = StoreFlags & {
  namespace?: string;
  account: string;
  user: string;
  byStream?: true;
  format: "config" | "nsc";
  json?: true;
};

export function permissionsCommand(cluster: Command): void {
  withJson(withStoreOnly(cluster.command("permissions")))
    .option("--namespace <name>", "the namespace of the deployment (default: that of the config)")
    .option("--account <name>", "the account of NATS that is Flotilla's own", "FLOTILLA")
    .option("--user <name>", "the user that pods and programs connect as", "flotilla")
    .option(
      "--by-stream",
      "name each stream that there is, for an account that other programs use too",
    )
    .addOption(
      new Option("--format <format>", "part of a server's config, or commands of nsc")
        .choices(["config", "nsc"])
        .default("config"),
    )
    .description("print what a user of NATS has to be allowed, and nothing else")
    .addHelpText(
      "after",
      `
The first pod makes the streams, so name them with --by-stream after it has run. A log that servers have lost
messages of gets another stream: print them again then.

Examples:
  $ flotilla cluster permissions > flotilla.conf     # include ./flotilla.conf in each server's config
  $ flotilla cluster permissions --format nsc | sh`,
    )
    .action(permissions);
}

async function permissions(flags: PermissionsFlags): Promise<void> {
  const { account, user, byStream, format, json, namespace } = flags;
  const settings = await loadSettings(flags);
  const { checkNats } = await import("../../../bus/nats/config.ts");
  const { natsRights } = await import("../../../sessions/log/jetstream/rights.ts");
  const { accountConfig, checkNatsUser, nscCommands } =
    await import("../../cluster/permissions.ts");
  checkNatsUser({ account, user });
  // Servers are named only where they are asked.
  const config: NatsConfig = {
    ...(settings.nats ?? { servers: "localhost", use: "all" }),
    ...(namespace !== undefined && { namespace }),
  };
  const streams = byStream ? await streamNames(settings, config) : undefined;
  const rights = natsRights(checkNats(config), { streams });
  if (json) return printJson({ account, user, ...rights });
  const text = format === "nsc" ? nscCommands : accountConfig;
  print(text({ account, user, rights }).trimEnd());
}

/** The streams of the deployment, as its servers have them now. */
async function streamNames({ store, nats }: PodSettings, config: NatsConfig): Promise<string[]> {
  if (!nats) {
    throw new FlotillaError(
      "invalid_option",
      "--by-stream asks the servers: give it the config of the pods, with `nats`",
    );
  }
  const { createNats, natsFor } = await import("../../../bus/nats/nats.ts");
  const { deploymentOf, openEngine } = await import("../../../runtime/logs/stream-logs.ts");
  const { readLives } = await import("../../../sessions/log/jetstream/create-streams.ts");
  const { publishedStreams } = await import("../../../sessions/log/jetstream/streams.ts");
  const clock = systemClock;
  const origin = uuidv7(clock, systemRandom).next();
  const parts = { clock, random: systemRandom, log: silentLogger, origin };
  const connected = createNats(natsFor(store, config), parts);
  try {
    await connected.connection().started;
    const deployment = deploymentOf(connected, await clusterIdOf(store));
    const engine = await openEngine({ nats: connected, clock });
    const lives = await readLives(engine, deployment);
    if (lives.length > 0) return publishedStreams(deployment, lives).map(({ stream }) => stream);
    throw new FlotillaError(
      "not_found",
      "there are no streams yet: start the first pod without --by-stream, then print them",
    );
  } finally {
    await connected.close();
  }
}

async function clusterIdOf(store: Store): Promise<string> {
  const { logPlaceOf } = await import("../../../sessions/log/place.ts");
  const { openStore } = await import("../../../store/open.ts");
  const database = await openStore(store, { migrate: "check", create: false, notifies: false });
  try {
    return (await logPlaceOf(database)).clusterId;
  } finally {
    await database.close();
  }
}
