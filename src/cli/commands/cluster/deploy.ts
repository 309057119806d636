import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import process from "node:process";
import { type Command, Option } from "commander";
import { FlotillaError } from "../../../base/errors.ts";
import type { PodSettings } from "../../../runtime/config.ts";
import type { DeployFiles, NatsChoice } from "../../deploy/plan.ts";
import { number, type StoreFlags, withJson, withStoreOnly } from "../../flags.ts";
import { print, printJson, printNotice } from "../../output.ts";
import { loadOwnSettings } from "../../settings.ts";

type DeployFlags = StoreFlags & { out?: string; force?: true; json?: true };
type FleetFlags = DeployFlags & { image?: string; replicas: number; nats?: NatsChoice };

const defaultReplicas = 3;
const natsChoices: readonly NatsChoice[] = ["own", "config", "none"];
const imageForm = /^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$/;
const namespaceForm = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

export function deployCommand(program: Command): void {
  const deploy = program
    .command("deploy")
    .description("print files that run this project on servers, from its config")
    .addHelpText(
      "after",
      `
They have what the config says: ports, the time that a stop takes, the store's user and database, NATS. They
hold no secret, whatever the config has: each says where passwords and keys belong.

Examples:
  $ flotilla deploy compose > compose.yaml
  $ flotilla deploy kubernetes --image registry.example.com/app:1.4.2 --out deploy
  $ flotilla deploy systemd --out /etc/systemd/system`,
    );
  withFleet(withFiles(deploy.command("compose")))
    .option("--image <name>", "the image of the pods (default: it is built from this folder)")
    .description("a Compose file: Postgres, three NATS servers and pods on one machine")
    .action(compose);
  withFleet(withFiles(deploy.command("kubernetes")))
    .requiredOption("--image <name>", "the image of the pods")
    .option("--namespace <name>", "the namespace of Kubernetes (default: that of kubectl)")
    .description("manifests: pods, their migration, and NATS servers where they are wanted")
    .action(kubernetes);
  withFiles(deploy.command("systemd"))
    .option("--folder <folder>", "where the project is on the server", ".")
    .option("--node <program>", "the program of Node there", process.execPath)
    .description("a unit that runs one pod on a machine")
    .action(systemd);
}

function withFiles(command: Command): Command {
  return withJson(withStoreOnly(command))
    .option("--out <folder>", "write files to this folder instead of printing them")
    .option("--force", "with --out: replace files that are there");
}

function withFleet(command: Command): Command {
  return command
    .addOption(
      new Option("--replicas <number>", "how many pods run")
        .default(defaultReplicas)
        .argParser(number("--replicas", { min: 1, max: 1_000 })),
    )
    .addOption(
      new Option(
        "--nats <which>",
        "NATS servers: own ones beside the pods, those of the config, or none (default: as the config has it)",
      ).choices(natsChoices),
    );
}

async function compose({ image, replicas, nats, ...flags }: FleetFlags): Promise<void> {
  const settings = await loadOwnSettings(flags);
  const { planDeploy, usualNats } = await import("../../deploy/plan.ts");
  const { composeFiles } = await import("../../deploy/compose.ts");
  // This Postgres is empty at first, so its sessions may begin on NATS.
  const plan = planDeploy(settings, { replicas, choice: nats ?? usualNats(settings, "own") });
  const context = relative(flags.out ?? ".", ".") || ".";
  if (image !== undefined) checkForm("--image", image, imageForm);
  if (plan.nats) noteClients(settings);
  deliver(composeFiles(plan, { image, context }), flags);
}

async function kubernetes(
  flags: FleetFlags & { image: string; namespace?: string },
): Promise<void> {
  const { image, namespace, replicas, nats } = flags;
  const settings = await loadOwnSettings(flags);
  const { planDeploy, usualNats } = await import("../../deploy/plan.ts");
  const { kubernetesFiles } = await import("../../deploy/kubernetes.ts");
  checkForm("--image", image, imageForm);
  if (namespace !== undefined) checkForm("--namespace", namespace, namespaceForm);
  const plan = planDeploy(settings, { replicas, choice: nats ?? usualNats(settings, "none") });
  if (plan.store.kind === "sqlite") {
    printNotice(
      "the store of the config is a SQLite file, which pods on several machines can't share: FLOTILLA_STORE of the Secret has to name a Postgres",
    );
  }
  if (plan.nats) noteClients(settings);
  deliver(kubernetesFiles(plan, { image, namespace }), flags);
}

async function systemd(flags: DeployFlags & { folder: string; node: string }): Promise<void> {
  const settings = await loadOwnSettings(flags);
  const { planDeploy } = await import("../../deploy/plan.ts");
  const { systemdFiles } = await import("../../deploy/systemd.ts");
  const plan = planDeploy(settings, { replicas: 1, choice: "config" });
  const [folder, node] = [resolve(flags.folder), resolve(flags.node)];
  deliver(systemdFiles(plan, { folder, node }), flags);
}

function checkForm(flag: string, value: string, form: RegExp): void {
  if (form.test(value)) return;
  throw new FlotillaError(
    "invalid_option",
    `${flag} can't be ${JSON.stringify(value.slice(0, 80))}: give a name such as ${flag === "--image" ? "registry.example.com/app:1.4.2" : "app"}`,
  );
}

/** The clients of NATS are packages of the project, which only some projects have. */
function noteClients({ nats }: PodSettings): void {
  if (nats !== undefined) return;
  printNotice(
    "pods talk to NATS, which the config doesn't have: install its clients in the project (npm install @nats-io/transport-node @nats-io/jetstream), or leave NATS out with --nats none",
  );
}

/** Prints the files, or writes them all, or none where one is there that would change. */
function deliver(files: DeployFiles, { out, force, json }: DeployFlags): void {
  const all = Object.entries(files);
  if (out === undefined) {
    if (json) return printJson({ files: all.map(([name, text]) => ({ name, text })) });
    return print(
      all
        .map(([, text]) => text)
        .join("---\n")
        .trimEnd(),
    );
  }
  const placed = all.map(([name, text]) => ({ path: join(out, name), text }));
  const inTheWay = placed.filter(
    ({ path, text }) => existsSync(path) && readFileSync(path, "utf8") !== text,
  );
  if (inTheWay.length > 0 && !force) {
    const paths = inTheWay.map(({ path }) => path).join(", ");
    throw new FlotillaError(
      "conflict",
      `${paths} ${inTheWay.length === 1 ? "is" : "are"} there and would change: look at the difference, then use --force, or name another folder with --out`,
    );
  }
  mkdirSync(out, { recursive: true });
  for (const { path, text } of placed) writeFileSync(path, text);
  const written = placed.map(({ path }) => path);
  if (json) return printJson({ written });
  print(written.join("\n"));
}
