import process from "node:process";
import { styleText } from "node:util";
import { Command } from "commander";
import { version } from "../runtime/version.ts";
import { agentsCommand } from "./commands/agents.ts";
import { auditCommand } from "./commands/access/audit.ts";
import { bulkCommand } from "./commands/acts/bulk.ts";
import { chatCommand } from "./commands/chat.ts";
import { clusterCommand } from "./commands/cluster/cluster.ts";
import { deployCommand } from "./commands/cluster/deploy.ts";
import { dlqCommand } from "./commands/dlq.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { enqueueCommand } from "./commands/enqueue.ts";
import { flowsCommand } from "./commands/flows.ts";
import { credentialCommands } from "./commands/access/keys.ts";
import { signInsCommand } from "./commands/access/sign-ins.ts";
import { limitsCommand } from "./commands/limits.ts";
import { quotasCommand } from "./commands/access/quotas.ts";
import { migrateCommand } from "./commands/migrate.ts";
import { openApiCommand } from "./commands/openapi.ts";
import { pauseCommands } from "./commands/pause.ts";
import { devCommand, serveCommand, workCommand } from "./commands/pod.ts";
import { podsCommand } from "./commands/pods.ts";
import { promoteCommand } from "./commands/promote.ts";
import { runsCommand } from "./commands/runs.ts";
import { schedulesCommand } from "./commands/schedules.ts";
import { sessionsCommand } from "./commands/sessions.ts";
import { statsCommand } from "./commands/stats.ts";
import { tasksCommand } from "./commands/tasks.ts";
import { throttlesCommand } from "./commands/throttles.ts";
import { approvalsCommand } from "./commands/waiting/approvals.ts";
import { whyCommand } from "./commands/waiting/why.ts";
import { changesCommand } from "./commands/watching/changes.ts";
import { seriesCommand } from "./commands/watching/series.ts";
import { exitCodeMeanings } from "./exit-codes.ts";

const after = `
Examples:
  $ flotilla dev                                  runs everything, with live counts
  $ flotilla enqueue mail '{"to":"ada"}' --wait   stores a task and waits for its result
  $ flotilla tasks list --status failed           shows what went wrong
  $ flotilla why 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e   says why a task waits, and what to do
  $ flotilla dlq list                             groups it by error
  $ flotilla flows                                draws flows, and explains stuck runs
  $ flotilla doctor                               checks the set-up

Every setting is taken from its flag, then from the environment, then from the config file, then
from its default. Where there is output, --json makes it JSON.

Commands work on the store, or with --url through a server. In the folder of a running \`flotilla dev\`
they need neither flag: they use its store and its config.

Exit codes:
${Object.entries(exitCodeMeanings)
  .map(([code, meaning]) => `  ${code}  ${meaning}`)
  .join("\n")}
`;

/** The whole command line. Parsing it runs the command. */
export function createProgram(): Command {
  const program = new Command("flotilla")
    .description(
      "A durable runtime for AI backends: tasks, flows and sessions that survive crashes, on a database.",
    )
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .helpCommand("help [command]", "print the help of a command")
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: /, "flotilla: ")),
    })
    .configureHelp({ styleTitle: (title) => styleText("bold", title, { stream: process.stdout }) })
    .addHelpText("after", after);
  const commands = [
    devCommand,
    workCommand,
    serveCommand,
    enqueueCommand,
    tasksCommand,
    whyCommand,
    statsCommand,
    seriesCommand,
    changesCommand,
    runsCommand,
    flowsCommand,
    sessionsCommand,
    chatCommand,
    agentsCommand,
    approvalsCommand,
    schedulesCommand,
    dlqCommand,
    bulkCommand,
    podsCommand,
    pauseCommands,
    limitsCommand,
    throttlesCommand,
    credentialCommands,
    signInsCommand,
    auditCommand,
    quotasCommand,
    migrateCommand,
    promoteCommand,
    clusterCommand,
    deployCommand,
    doctorCommand,
    openApiCommand,
  ];
  for (const make of commands) make(program);
  return program;
}
