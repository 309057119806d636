import type { Command } from "commander";
import { limitRange } from "../../protocol/task-options.ts";
import type { LimitState } from "../../tasks/concurrency/limits.ts";
import { onTarget } from "../connect.ts";
import { listsByDefault, number, type TargetFlags, withJson, withTarget } from "../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../output.ts";

type Flags = TargetFlags & { json?: true };

export function limitsCommand(program: Command): void {
  const limits = program
    .command("limits")
    .description("list and set the limits of keys and tenants")
    .addHelpText(
      "after",
      `
A limit applies to \`tenant/<tenant>\` or \`key/<name>/<key>\`, over the whole fleet.

Examples:
  $ flotilla limits set tenant/acme 5
  $ flotilla limits set key/summarize/ada 2
  $ flotilla limits list`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(limits.command(words, options).description(does)));

  const listed = "list limits that were set or that block tasks, and tenants";
  const listing = command("list", listed, { isDefault: true }).action(list);
  listsByDefault(limits, listing);
  command("set", "set how many may run at once, overriding the code")
    .argument("<scope>")
    .argument("<limit>", "1 to 10,000", number("<limit>", limitRange))
    .action(set);
  command("unset <scope>", "remove a limit that was set; the code's applies again").action(
    async (scope: string, flags: Flags) => set(scope, null, flags),
  );
}

async function list(flags: Flags): Promise<void> {
  const { limits, tenants } = await onTarget(flags, async (flotilla) => ({
    limits: await flotilla.tasks.limits.list(),
    tenants: await flotilla.tasks.limits.tenants(),
  }));
  if (flags.json) return printJson({ limits, tenants });
  if (limits.length + tenants.length === 0) return print("no limits, and no tenants with tasks");
  const heading = ["", "limit", "running", "waiting"].map((each) => paint("dim", each));
  const keys = limits.filter(({ scope }) => scope.startsWith("key/")).map(toRow);
  const rest = tenants.map(({ tenant, limit, running, ready, blocked }) => [
    oneLine(`tenant/${tenant}`, 80),
    limit === null ? "none" : String(limit),
    String(running),
    String(ready + blocked),
  ]);
  print(columns([heading, ...keys, ...rest]));
}

function toRow({ scope, limit, running, blocked }: LimitState): string[] {
  return [
    oneLine(scope, 80),
    limit === null ? "none" : String(limit),
    String(running),
    String(blocked),
  ];
}

async function set(scope: string, limit: number | null, flags: Flags): Promise<void> {
  const state = await onTarget(flags, async (flotilla) => {
    await flotilla.tasks.limits.set(scope, limit);
    return flotilla.tasks.limits.get(scope);
  });
  if (flags.json) return printJson(state);
  print(
    limit === null
      ? `${oneLine(scope, 200)} has no set limit; the code's applies, if there is one`
      : `${limit} of ${oneLine(scope, 200)} may run at once; ${state.running} do`,
  );
}
