import { readFileSync } from "node:fs";
import process from "node:process";
import type { Command } from "commander";
import { Option } from "commander";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { AgentGiven, AgentView } from "../../sessions/agents/stored-agents.ts";
import {
  listsByDefault,
  number,
  type TargetFlags,
  withJson,
  withPage,
  withTarget,
} from "../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../output.ts";
import { defaultTenant, onAgents } from "../connect.ts";

type Flags = TargetFlags & { tenant?: string; json?: true };
type ListFlags = Flags & { cursor?: string; limit: number };
type SetFlags = Flags & {
  secretFile?: string;
  compactionSecretFile?: string;
  keepOldSecretMs?: number;
  ifRevision?: number;
  private?: true;
};

export function agentsCommand(program: Command): void {
  const agents = program
    .command("agents")
    .description("list and show agents, and create those that answer at a URL")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla agents
  $ flotilla agents set helper '{"url":"https://agent.example/chat","during":"queue"}'
  $ flotilla agents set helper - < settings.json
  $ flotilla agents set helper settings.json --secret-file secret.txt
  $ flotilla agents remove helper
  $ flotilla agents --url https://flotilla.example

A secret is read from a file or from FLOTILLA_AGENT_SECRET, never from the command line, which
other users of the machine can see. Secrets are never shown again.`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(agents.command(words, options).description(does))).option(
      "--tenant <tenant>",
      `the tenant of the agents (default: ${defaultTenant}, or that of the key)`,
    );

  const listing = command("list", "list agents, including those in code", { isDefault: true });
  withPage(listing, 100).action(list);
  listsByDefault(agents, listing);
  command("show <name>", "show one agent, without its secrets").action(show);
  command("set <name> <settings>", "create or change an agent: JSON, a file of JSON, or -")
    .option("--secret-file <file>", "a file with the secret that signs its requests: whsec_…")
    .option("--compaction-secret-file <file>", "the same for its compactor")
    .addOption(
      new Option(
        "--keep-old-secret-ms <ms>",
        "how long a replaced secret still signs (default: a day)",
      ).argParser(number("--keep-old-secret-ms", { min: 0, max: 30 * 86_400_000 })),
    )
    .addOption(
      new Option("--if-revision <number>", "change it only if this is its revision").argParser(
        number("--if-revision", { min: 1, max: Number.MAX_SAFE_INTEGER }),
      ),
    )
    .option("--private", "allow a URL in a private network; pods must allow it too")
    .action(set);
  command("remove <name>", "remove an agent; sessions keep its name").action(remove);
}

async function list(flags: ListFlags): Promise<void> {
  const { json, cursor, limit } = flags;
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  const page = await onAgents(flags, (agents, tenant) => agents.list(tenant, options));
  if (json) return printJson(page);
  if (page.agents.length === 0) return print("no agents");
  const heading = ["name", "source", "url", "during", "revision"];
  const rows = page.agents.map((agent) => [
    oneLine(agent.name, 200),
    agent.source === "code" && agent.shadows ? "code (overrides a stored one)" : agent.source,
    agent.source === "code" ? "" : oneLine(agent.settings.url, 80),
    agent.source === "code" ? duringOf(agent.facts) : (agent.settings.during ?? "queue"),
    agent.source === "code" ? "" : String(agent.revision),
  ]);
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 500)}`));
}

function duringOf({
  during,
  steers,
}: {
  readonly during: string;
  readonly steers?: true | undefined;
}): string {
  return steers ? "steer" : during;
}

async function show(name: string, flags: Flags): Promise<void> {
  const agent = await onAgents(flags, (agents, tenant) => agents.get(tenant, name));
  if (!agent) throw missing(name);
  if (flags.json) return printJson({ agent });
  print(columns(factsOf(agent).map(([what, value]) => [paint("dim", what), value])));
}

function factsOf(agent: AgentView): [string, string][] {
  if (agent.source === "code") {
    const facts = Object.entries(agent.facts).map(([what, value]) => [what, text(value)]);
    const source = agent.shadows ? "code; overrides a stored agent of that name" : "code";
    return [
      ["name", oneLine(agent.name, 200)],
      ["source", source],
      ...(facts as [string, string][]),
    ];
  }
  const { settings, signing, compactionSigning, revision, lastUpdateMs } = agent;
  const signed = (all: typeof signing) => all.map(({ id }) => id).join(", ") || "nothing";
  return [
    ["name", oneLine(agent.name, 200)],
    ["source", "stored"],
    ["revision", `${revision}, of ${new Date(lastUpdateMs).toISOString()}`],
    ...Object.entries(settings).map(([what, value]): [string, string] => [what, text(value)]),
    ["signed with", signed(signing)],
    ...(settings.compaction
      ? [["compaction signed with", signed(compactionSigning)] as [string, string]]
      : []),
  ];
}

function text(value: unknown): string {
  const shown = typeof value === "string" ? value : JSON.stringify(value);
  return oneLine(shown, 1_000);
}

async function set(name: string, source: string, flags: SetFlags): Promise<void> {
  const { secretFile, compactionSecretFile, keepOldSecretMs, ifRevision } = flags;
  const { json, private: isPrivate, url } = flags;
  if (isPrivate && url !== undefined) {
    throw new FlotillaError(
      "invalid_option",
      "--private only works on a store: with --url the server decides whether agents may be in private networks",
    );
  }
  const secret = secretOf(secretFile, "FLOTILLA_AGENT_SECRET");
  const compactionSecret = secretOf(compactionSecretFile, "FLOTILLA_AGENT_COMPACTION_SECRET");
  const wanted: AgentGiven = {
    settings: settingsOf(source),
    ...(secret !== undefined && { secret }),
    ...(compactionSecret !== undefined && { compactionSecret }),
    ...(keepOldSecretMs !== undefined && { keepOldSecretMs }),
  };
  const agent = await onAgents(
    flags,
    async (agents, tenant) => {
      const condition = ifRevision === undefined ? {} : { ifRevision };
      try {
        return await agents.replace(tenant, name, { ...wanted, ...condition });
      } catch (error) {
        if (!hasCode(error, "not_found") || ifRevision !== undefined) throw error;
        return agents.create(tenant, name, wanted);
      }
    },
    { privateAgents: isPrivate === true },
  );
  if (json) return printJson({ agent });
  print(`agent ${name} is stored`);
}

/** Reads JSON from the argument itself, from a file, or from standard input. */
function settingsOf(source: string): unknown {
  try {
    if (source.trimStart().startsWith("{")) return JSON.parse(source);
    return JSON.parse(readFileSync(source === "-" ? process.stdin.fd : source, "utf8"));
  } catch (error) {
    // The parser's message quotes its input, which may hold a secret.
    const why = error instanceof SyntaxError ? "they aren't JSON" : "the file can't be read";
    throw new FlotillaError("invalid_option", `the agent's settings: ${why}`);
  }
}

function secretOf(file: string | undefined, variable: string): string | undefined {
  if (file === undefined) return process.env[variable]?.trim() || undefined;
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new FlotillaError("invalid_option", `the file ${file} can't be read`, { cause: error });
  }
}

async function remove(name: string, flags: Flags): Promise<void> {
  if (!(await onAgents(flags, (agents, tenant) => agents.remove(tenant, name))))
    throw missing(name);
  if (flags.json) return printJson({ name, removed: true });
  print(`agent ${name} is removed; sessions keep its name`);
}

function missing(name: string): FlotillaError {
  return new FlotillaError("not_found", `there is no agent ${oneLine(name, 200)}`);
}
