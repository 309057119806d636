import type { Command } from "commander";
import type { RecordedChange, ChangeKind } from "../../../changes/change.ts";
import type { ChangeFilter } from "../../../changes/changes.ts";
import { onTarget } from "../../connect.ts";
import { number, type TargetFlags, withJson, withTarget } from "../../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../../output.ts";
import { stopSignals } from "../../signals.ts";

type Flags = TargetFlags & {
  json?: true;
  follow?: true;
  after?: string;
  name?: string[];
  kind?: string[];
  tenant?: string;
  limit: number;
};

const several = (text: string) => text.split(",").flatMap((each) => each.trim() || []);
const maxNameChars = 60;

export function changesCommand(program: Command): void {
  withJson(
    withTarget(
      program
        .command("changes")
        .description("show what was changed, oldest first, where the config says `changes`"),
    ),
  )
    .option("--after <cursor>", "only what comes after this cursor, or from `now` on")
    .option("--follow", "go on printing new changes until it is stopped")
    .option("--name <names>", "only of these tasks, flows or agents, separated by commas", several)
    .option("--kind <kinds>", "only of these: task, run, turn, session", several)
    .option("--tenant <tenant>", "only of this tenant")
    .option(
      "--limit <number>",
      "how many a page has at most",
      number("--limit", { min: 1, max: 1_000 }),
      100,
    )
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla changes --kind task,run --limit 20
  $ flotilla changes --follow --json --after now`,
    )
    .action(show);
}

async function show({ json, follow, after, name, kind, limit, ...flags }: Flags): Promise<void> {
  const { tenant, ...target } = flags;
  const filter: ChangeFilter = {
    ...(name && { names: name }),
    ...(kind && { kinds: kind as ChangeKind[] }),
    ...(tenant !== undefined && { tenant }),
  };
  const printOne = (change: RecordedChange) =>
    json ? printJson(change) : print(columns([toRow(change)]));
  await onTarget(target, async ({ changes }) => {
    // The first page is asked for once, so that a wrong address or cursor is told at once.
    const page = await changes.page({ ...filter, limit, ...(after !== undefined && { after }) });
    if (follow) {
      for (const change of page.changes) printOne(change);
      const stop = new AbortController();
      void stopSignals().received.then(() => stop.abort());
      const further = changes({ ...filter, after: page.cursor, signal: stop.signal });
      for await (const change of further) printOne(change);
      return;
    }
    if (json) return printJson(page);
    if (page.changes.length === 0) print("no changes");
    else print(columns(page.changes.map(toRow)));
    if (page.more) print(paint("dim", `more: --after ${page.cursor}`));
  });
}

function toRow({
  atMs,
  kind,
  id,
  name,
  tenant,
  change,
  status,
  attempt,
}: RecordedChange): string[] {
  return [
    paint("dim", new Date(atMs).toISOString()),
    kind,
    paint("bold", change),
    name === null ? "" : oneLine(name, maxNameChars),
    oneLine(id, maxNameChars),
    [
      ...(status === change ? [] : [oneLine(status, maxNameChars)]),
      ...(attempt === undefined ? [] : [`attempt ${attempt}`]),
      ...(tenant === "default" ? [] : [oneLine(tenant, maxNameChars)]),
    ].join(", "),
  ];
}
