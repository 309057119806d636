import process from "node:process";
import { type Command, Option } from "commander";
import { systemClock } from "../../../base/clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import type { ClusterMember } from "../../cluster/local-cluster.ts";
import { exitCodes } from "../../exit-codes.ts";
import { number, type StoreFlags, withJson, withStoreOnly } from "../../flags.ts";
import { columns, paint, print, printJson } from "../../output.ts";
import { loadStore } from "../../settings.ts";
import { permissionsCommand } from "./permissions.ts";
import { rebaseCommand } from "./rebase.ts";

type FolderFlags = { folder: string };
type UpFlags = StoreFlags & FolderFlags & { port: number; json?: true };

const defaultFolder = ".flotilla/cluster";
const defaultPort = 4300;
const styles = { up: "green", "not ready": "yellow", down: "red" } as const;

export function clusterCommand(program: Command): void {
  const cluster = program
    .command("cluster")
    .description(
      "three NATS servers and three pods on this machine, and what servers need elsewhere",
    )
    .addHelpText(
      "after",
      `
The logs of sessions are on the servers, and Postgres follows. Servers and pods go on when the command has
ended. Their configs, logs and streams are in .flotilla/cluster, which \`down\` keeps for the next \`up\`.

Examples:
  $ flotilla cluster up --store postgres://localhost/app
  $ flotilla cluster status
  $ flotilla cluster down
  $ flotilla cluster permissions > flotilla.conf`,
    );
  withJson(withFolder(withStoreOnly(cluster.command("up"))))
    .addOption(
      new Option("--port <number>", "the first of twelve ports that servers and pods listen on")
        .default(defaultPort)
        .argParser(number("--port", { min: 1_024, max: 65_524 })),
    )
    .description("start them, and wait until all are ready")
    .action(up);
  withJson(withFolder(cluster.command("status")))
    .description("show them; exit 1 unless all are up")
    .action(status);
  withJson(withFolder(cluster.command("down")))
    .description("end the pods, then the servers")
    .action(down);
  permissionsCommand(cluster);
  rebaseCommand(cluster);
}

function withFolder(command: Command): Command {
  return command.option("--folder <folder>", "where they are kept", defaultFolder);
}

async function up({ folder, port, json, ...flags }: UpFlags): Promise<void> {
  const store = await loadStore(flags);
  if (typeof store !== "string" || !/^postgres(ql)?:/i.test(store)) {
    throw new FlotillaError(
      "invalid_option",
      "a cluster needs a store on Postgres, as many machines have it: name one with --store postgres://…, or in FLOTILLA_STORE",
    );
  }
  const { startCluster, clusterStatus } = await import("../../cluster/local-cluster.ts");
  const clock = systemClock;
  await startCluster({ folder, port, store, config: flags.config, clock });
  const members = (await clusterStatus(folder, { clock })) ?? [];
  if (json) return printJson({ members });
  print(tableOf(members));
}

async function status({ folder, json }: FolderFlags & { json?: true }): Promise<void> {
  const { clusterStatus } = await import("../../cluster/local-cluster.ts");
  const members = await clusterStatus(folder, { clock: systemClock });
  const isUp = members !== undefined && members.every(({ state }) => state === "up");
  if (!isUp) process.exitCode = exitCodes.error;
  if (json) return printJson({ members: members ?? [] });
  print(members ? tableOf(members) : `there is no cluster in ${folder}: \`flotilla cluster up\``);
}

async function down({ folder, json }: FolderFlags & { json?: true }): Promise<void> {
  const { stopCluster } = await import("../../cluster/local-cluster.ts");
  const ended = await stopCluster(folder, { clock: systemClock });
  if (json) return printJson({ ended });
  print(ended === 0 ? `nothing of ${folder} was running` : `${ended} processes ended`);
}

function tableOf(members: readonly ClusterMember[]): string {
  return columns(
    members.map(({ name, pid, url, state, about }) => [
      paint(styles[state], state),
      name,
      url,
      `process ${pid}`,
      about,
    ]),
  );
}
