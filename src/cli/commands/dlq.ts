import process from "node:process";
import { createInterface } from "node:readline/promises";
import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { DeadLetterPage, DeadLettersOptions } from "../../dead-letters/dead-letters.ts";
import type { Selection } from "../../dead-letters/redrive.ts";
import type { ErrorGroup } from "../../dead-letters/index.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { onStore } from "../connect.ts";
import { listsByDefault, number, type StoreFlags, withJson, withStore } from "../flags.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";
import { count, plural, startProgress } from "../progress.ts";
import { isGroup, type SelectFlags, selectionOf, withSelection } from "../selection.ts";
import { redriveCommands } from "./dlq-redrive.ts";
import { eventLine, show as showTask } from "./tasks.ts";

type Flags = StoreFlags & { json?: true };
type ListFlags = Flags & { name?: string; limit: number };
type ShowFlags = Flags & { limit: number };

const most = (byDefault: number) =>
  new Option("--limit <number>", "how many at most")
    .default(byDefault)
    .argParser(number("--limit", { min: 1, max: 1_000 }));

export function dlqCommand(program: Command): void {
  const dlq = program
    .command("dlq")
    .description("failed tasks: what went wrong, starting them over, giving them up")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla dlq list                              groups of errors, the largest first
  $ flotilla dlq show g1-79ef601d010c6cb2          one group, with its latest tasks
  $ flotilla dlq redrive g1-79ef601d010c6cb2       starts one over, then more, until the error comes back
  $ flotilla dlq discard --name mail --yes         gives up all failed tasks of a name`,
    );
  const listing = withStore(dlq.command("list", { isDefault: true }))
    .description("list failed tasks, grouped by their errors")
    .option("--name <name>", "only tasks of this name");
  withJson(listing).addOption(most(20)).action(list);
  listsByDefault(dlq, listing);
  withJson(
    withStore(
      dlq
        .command("show <group|id>")
        .description("show a group with its latest tasks, or one task with its events"),
    ),
  )
    .addOption(most(5))
    .action(show);
  redriveCommands(dlq);
  withSelection(
    withJson(
      withStore(
        dlq
          .command("discard [group|id]")
          .description("give failed tasks up: they are cancelled, and keep their errors"),
      ),
    ),
  )
    .option("--yes", "don't ask")
    .action(discard);
}

/** Counts what a selection has, with a word for those who wait. */
async function countOf(flotilla: Flotilla, selection: Selection): Promise<number> {
  if (selection.taskId !== undefined) return 1;
  const { onProgress, end } = startReading();
  return flotilla.deadLetters.count(selection, { onProgress }).finally(end);
}

function startReading() {
  const { show: say, end } = startProgress();
  return { onProgress: (tasks: number) => say(`${plural(tasks, "failed task")} read`), end };
}

async function list({ json, name, limit, ...flags }: ListFlags): Promise<void> {
  const { onProgress, end } = startReading();
  const found = await onStore(flags, (flotilla) =>
    flotilla.deadLetters.groups({
      limit,
      ...(name !== undefined && { name }),
      onProgress,
    }),
  ).finally(end);
  if (json) return printJson(found);
  if (found.tasks === 0) return print("no failed tasks");
  const nowMs = systemClock.now();
  const heading = ["group", "tasks", "name", "first", "last", ""].map((each) => paint("dim", each));
  print(columns([heading, ...found.groups.map((each) => toRow(each, nowMs))]));
  const rest = found.count - found.groups.length;
  if (rest > 0) print(paint("dim", `and ${plural(rest, "more group")}: --limit shows more`));
}

function toRow(group: ErrorGroup, nowMs: number): string[] {
  return [
    group.group,
    count(group.tasks),
    oneLine(group.name, 40),
    ago(nowMs, group.firstAtMs),
    ago(nowMs, group.lastAtMs),
    `${paint("red", oneLine(group.code, 40))} ${oneLine(group.message, 80)}`,
  ];
}

async function show(given: string, { limit, ...flags }: ShowFlags): Promise<void> {
  if (!isGroup(given)) return showTask(given, flags);
  const { json, ...where } = flags;
  const { onProgress, end } = startReading();
  const { page, withEvents } = await onStore(where, async (flotilla) => {
    const found = await listGroup(flotilla, given, { limit, onProgress });
    const events = await Promise.all(found.tasks.map(({ taskId }) => flotilla.events(taskId)));
    return {
      page: found,
      withEvents: found.tasks.map((task, at) => ({ task, events: events[at]! })),
    };
  }).finally(end);
  const [latest] = page.tasks;
  if (!latest) {
    throw new FlotillaError(
      "not_found",
      `no failed task has an error of group ${given}: they may have been started over already`,
    );
  }
  if (json) return printJson({ group: given, tasks: withEvents, next: page.next });
  print(`${paint("bold", given)}  ${oneLine(latest.name, 200)}  ${paint("red", latest.code)}`);
  for (const { task, events } of withEvents) {
    print(
      `\n${task.taskId}  ${plural(task.failures, "failure")}${task.deaths > 0 ? `, ${plural(task.deaths, "death")}` : ""}  ${new Date(task.failedAtMs).toISOString()}`,
    );
    print(`  ${oneLine(task.message, 400)}`);
    for (const event of events) print(`  ${eventLine(event)}`);
  }
  if (page.next !== null) print(paint("dim", "\nand more: --limit shows more"));
}

/** The newest of a group, over as many pages as that takes. */
async function listGroup(
  { deadLetters }: Flotilla,
  group: string,
  { limit, onProgress }: Required<Pick<DeadLettersOptions, "limit" | "onProgress">>,
): Promise<DeadLetterPage> {
  let { tasks, next } = await deadLetters.list({ group, limit, onProgress });
  while (next !== null && tasks.length < limit) {
    const page = await deadLetters.list({ group, limit: limit - tasks.length, cursor: next });
    tasks = [...tasks, ...page.tasks];
    next = page.next;
  }
  return { tasks, next };
}

async function discard(
  given: string | undefined,
  flags: SelectFlags & { yes?: true },
): Promise<void> {
  const selection = selectionOf(given, flags);
  const { json, yes, config, store } = flags;
  const where = { ...(config && { config }), ...(store && { store }) };
  await onStore(where, async (flotilla) => {
    if (!yes) await confirm(await countOf(flotilla, selection));
    const progress = startProgress();
    const onProgress = (done: number) => progress.show(`${plural(done, "task")} given up`);
    const { discarded } = await flotilla.deadLetters
      .discard(selection, { onProgress })
      .finally(progress.end);
    if (json) return printJson({ discarded });
    print(
      discarded === 0
        ? "nothing was failed any more"
        : `gave up ${plural(discarded, "failed task")}`,
    );
  });
}

/** There is no way back but one by one, so somebody must have meant it. */
async function confirm(tasks: number): Promise<void> {
  if (!process.stdin.isTTY) {
    throw new FlotillaError(
      "invalid_option",
      `this would give up ${plural(tasks, "failed task")}: say --yes`,
    );
  }
  const ask = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await ask
    .question(`Give up ${plural(tasks, "failed task")}? [y/N] `)
    .finally(() => ask.close());
  if (/^y(es)?$/i.test(answer.trim())) return;
  throw new FlotillaError("cancelled", "nothing was changed");
}
