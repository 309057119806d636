import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { DeadLetterPage, DeadLettersOptions } from "../../dead-letters/dead-letters.ts";
import type { ChangedGroup, ErrorGroup } from "../../dead-letters/error-groups.ts";
import { type GroupState, groupStates } from "../../dead-letters/groups.ts";
import type { Redrive, Selection } from "../../dead-letters/redrive.ts";
import type { PodInfo } from "../../runtime/pods.ts";
import { ifAllowed, onTarget } from "../connect.ts";
import {
  isGroup,
  listsByDefault,
  number,
  type SelectFlags,
  selectionOf,
  type TargetFlags,
  withJson,
  withSelection,
  withTarget,
} from "../flags.ts";
import { confirm, showUntilEnded } from "./acts/long-acts.ts";
import { ago, columns, oneLine, paint, print, printJson, printNotice } from "../output.ts";
import type { Operations } from "../remote.ts";
import { bar, count, plural, startProgressBar } from "../progress.ts";
import { type StopSignals, stopSignals } from "../signals.ts";
import { eventLine, printTask as showTask } from "./tasks.ts";

type Flags = TargetFlags & { json?: true };
type ListFlags = Flags & { name?: string; state?: GroupState; limit: number };
type ShowFlags = Flags & { limit: number };

type RedriveFlags = SelectFlags & { wait: boolean; maxStep?: number; fromStart?: true };

const limitOption = (byDefault: number) =>
  new Option("--limit <number>", "how many at most")
    .default(byDefault)
    .argParser(number("--limit", { min: 1, max: 1_000 }));

export function dlqCommand(program: Command): void {
  const dlq = program
    .command("dlq")
    .description("list, redrive and discard failed tasks")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla dlq list                              groups of errors, the largest first
  $ flotilla dlq show g2-79ef601d010c6cb2          one group, with its latest tasks
  $ flotilla dlq redrive g2-79ef601d010c6cb2       starts one over, then more, until the error recurs
  $ flotilla dlq resolve g2-79ef601d010c6cb2       says that it is fixed, until the error comes back
  $ flotilla dlq discard --name mail --yes         discards all failed tasks of a name`,
    );
  const listing = withTarget(dlq.command("list", { isDefault: true }))
    .description("list failed tasks, grouped by their errors")
    .option("--name <name>", "only tasks of this name")
    .addOption(
      new Option("--state <state>", "only groups in this state (default: all but ignored)").choices(
        groupStates,
      ),
    );
  withJson(listing).addOption(limitOption(20)).action(list);
  listsByDefault(dlq, listing);
  withJson(
    withTarget(
      dlq
        .command("show <group|id>")
        .description("show a group with its latest tasks, or one task with its events"),
    ),
  )
    .addOption(limitOption(5))
    .action(show);
  groupCommands(dlq);
  redriveCommands(dlq);
  withSelection(
    withJson(
      withTarget(
        dlq
          .command("discard [group|id]")
          .description("discard failed tasks: they become cancelled and keep their errors"),
      ),
    ),
  )
    .option("--yes", "don't ask for confirmation")
    .action(discard);
}

/** Counts the tasks of a selection, with progress. */
async function countOf(flotilla: Operations, selection: Selection): Promise<number> {
  if (selection.taskId !== undefined) return 1;
  const { onProgress, end } = startReading();
  return flotilla.deadLetters.count(selection, { onProgress }).finally(end);
}

function startReading() {
  const { show, end } = startProgressBar();
  return { onProgress: (tasks: number) => show(`${plural(tasks, "failed task")} read`), end };
}

async function list({ json, name, state, limit, ...flags }: ListFlags): Promise<void> {
  const { onProgress, end } = startReading();
  const found = await onTarget(flags, (flotilla) =>
    flotilla.deadLetters.groups({
      limit,
      ...(name !== undefined && { name }),
      ...(state !== undefined && { state }),
      onProgress,
    }),
  ).finally(end);
  if (json) return printJson(found);
  const { ignored } = found;
  const notice =
    state === undefined && ignored.groups > 0
      ? paint("dim", `${plural(ignored.groups, "ignored group")}: --state ignored shows them`)
      : undefined;
  if (found.tasks === 0) {
    print(state === undefined ? "no failed tasks" : `no failed tasks in groups that are ${state}`);
    if (notice) print(notice);
    return;
  }
  const nowMs = systemClock.now();
  const heading = ["group", "tasks", "name", "first", "last", ""].map((each) => paint("dim", each));
  print(columns([heading, ...found.groups.map((each) => toRow(each, nowMs))]));
  const rest = found.count - found.groups.length;
  if (rest > 0) print(paint("dim", `and ${plural(rest, "more group")}: --limit shows more`));
  if (notice) print(notice);
}

function toRow(group: ErrorGroup, nowMs: number): string[] {
  return [
    oneLine(group.group, 100),
    count(group.tasks),
    oneLine(group.name, 40),
    ago(nowMs, group.firstSeenMs),
    ago(nowMs, group.lastAtMs),
    `${standingText(group, nowMs)}${paint("red", oneLine(group.code, 40))} ${oneLine(group.message, 80)}`,
  ];
}

/** How it stands, where that isn't simply open. */
function standingText({ state, untilMs, cameBackAtMs }: ErrorGroup, nowMs: number): string {
  if (cameBackAtMs !== null) return paint("red", `came back ${ago(nowMs, cameBackAtMs)}: `);
  if (state === "open") return "";
  const shown = oneLine(state, 40);
  return untilMs === null ? `${shown}: ` : `${shown} until ${new Date(untilMs).toISOString()}: `;
}

function groupCommands(dlq: Command): void {
  const of = (name: string, description: string) =>
    withJson(withTarget(dlq.command(`${name} <group>`).description(description)));
  of(
    "resolve",
    "say that the error of a group is fixed; it is open again when it comes back",
  ).action((group: string, flags: Flags) =>
    changeGroup(flags, (flotilla) => flotilla.deadLetters.resolve(group)),
  );
  of("ignore", "leave a group out of lists, until its error comes back or until a time")
    .option("--until <time>", "until this time, such as 2026-01-31T08:00:00Z")
    .action((group: string, { until, ...flags }: Flags & { until?: string }) =>
      changeGroup(flags, (flotilla) =>
        flotilla.deadLetters.ignore(group, until === undefined ? {} : { untilMs: timeOf(until) }),
      ),
    );
  of("reopen", "take back that a group was resolved or ignored").action(
    (group: string, flags: Flags) =>
      changeGroup(flags, (flotilla) => flotilla.deadLetters.reopen(group)),
  );
}

function timeOf(text: string): number {
  const untilMs = Date.parse(text);
  if (!Number.isNaN(untilMs)) return untilMs;
  throw new FlotillaError(
    "invalid_option",
    `--until must be a time such as 2026-01-31T08:00:00Z, not ${JSON.stringify(text.slice(0, 40))}`,
  );
}

async function changeGroup(
  { json, ...flags }: Flags,
  act: (flotilla: Operations) => Promise<ChangedGroup>,
): Promise<void> {
  const changed = await onTarget(flags, act);
  if (json) return printJson(changed);
  const { group, state, untilMs } = changed;
  const until = untilMs === null ? "" : ` until ${new Date(untilMs).toISOString()}`;
  print(`group ${oneLine(group, 100)} is ${oneLine(state, 40)}${until}`);
}

async function show(id: string, { limit, ...flags }: ShowFlags): Promise<void> {
  if (!isGroup(id)) return showTask(id, flags);
  const { json, ...where } = flags;
  const { onProgress, end } = startReading();
  const { page, withEvents } = await onTarget(where, async (flotilla) => {
    const found = await listGroup(flotilla, id, { limit, onProgress });
    const events = await Promise.all(
      found.tasks.map(({ taskId }) => flotilla.tasks.events(taskId)),
    );
    return {
      page: found,
      withEvents: found.tasks.map((task, at) => ({ task, events: events[at]! })),
    };
  }).finally(end);
  const [latest] = page.tasks;
  if (!latest) {
    throw new FlotillaError(
      "not_found",
      `no failed task is in group ${id}: its tasks may have been started over already`,
    );
  }
  if (json) return printJson({ group: id, tasks: withEvents, next: page.next });
  print(
    `${paint("bold", id)}  ${oneLine(latest.name, 200)}  ${paint("red", oneLine(latest.code, 100))}`,
  );
  for (const { task, events } of withEvents) {
    print(
      `\n${oneLine(task.taskId, 100)}  ${plural(task.failures, "failure")}${task.deaths > 0 ? `, ${plural(task.deaths, "death")}` : ""}  ${new Date(task.failedAtMs).toISOString()}`,
    );
    print(`  ${oneLine(task.message, 400)}`);
    for (const event of events) print(`  ${eventLine(event)}`);
  }
  if (page.next !== null) print(paint("dim", "\nand more: --limit shows more"));
}

/** The newest tasks of a group, from as many pages as needed. */
async function listGroup(
  { deadLetters }: Operations,
  group: string,
  { limit, onProgress }: Required<Pick<DeadLettersOptions, "limit" | "onProgress">>,
): Promise<DeadLetterPage> {
  let { tasks, next } = await deadLetters.list({ group, limit, onProgress });
  const seen = new Set<string>();
  while (next !== null && tasks.length < limit && !seen.has(next)) {
    seen.add(next);
    const page = await deadLetters.list({ group, limit: limit - tasks.length, cursor: next });
    tasks = [...tasks, ...page.tasks];
    next = page.next;
  }
  return { tasks, next };
}

async function discard(id: string | undefined, flags: SelectFlags & { yes?: true }): Promise<void> {
  const selection = selectionOf(id, flags);
  const { json, yes } = flags;
  await onTarget(flags, async (flotilla) => {
    if (!yes) await confirmDiscard(await countOf(flotilla, selection));
    const progress = startProgressBar();
    const onProgress = (done: number) => progress.show(`${plural(done, "task")} discarded`);
    const { discarded } = await flotilla.deadLetters
      .discard(selection, { onProgress })
      .finally(progress.end);
    if (json) return printJson({ discarded });
    print(
      discarded === 0
        ? "no failed tasks were left to discard"
        : `discarded ${plural(discarded, "failed task")}`,
    );
  });
}

/** Asks for confirmation, because discarded tasks can only be retried one by one. */
function confirmDiscard(tasks: number): Promise<void> {
  return confirm({
    question: `Discard ${plural(tasks, "failed task")}?`,
    refusal: `this discards ${plural(tasks, "failed task")}: add --yes to confirm`,
  });
}

function redriveCommands(dlq: Command): void {
  withSelection(
    withJson(
      withTarget(
        dlq
          .command("redrive [group|id]")
          .description(
            "start failed tasks over: first one, then in growing steps, until the error recurs",
          ),
      ),
    ),
  )
    .addOption(
      new Option("--max-step <number>", "the largest step (default: 256)").argParser(
        number("--max-step", { min: 1, max: 1_000 }),
      ),
    )
    .option("--from-start", "forget stored steps, so that all of them run again")
    .option("--no-wait", "return at once instead of following it to its end")
    .action(redrive);
  withJson(withTarget(dlq.command("redrives").description("list redrives, newest first"))).action(
    redrives,
  );
  withJson(
    withTarget(dlq.command("follow <redrive>").description("follow a redrive to its end")),
  ).action(async (redriveId: string, flags: Flags) => {
    const signals = stopSignals();
    await onTarget(flags, (flotilla) => follow(flotilla, redriveId, { ...flags, signals }));
  });
  withJson(
    withTarget(
      dlq
        .command("cancel <redrive>")
        .description("stop a redrive from starting more tasks over; those it has started go on"),
    ),
  ).action(cancel);
}

async function redrive(id: string | undefined, flags: RedriveFlags): Promise<void> {
  const selection = selectionOf(id, flags);
  const { maxStep, fromStart, json, wait } = flags;
  // Listen for signals before the redrive is stored, so that an early Ctrl-C still prints its id.
  const signals = wait ? stopSignals() : undefined;
  await onTarget(flags, async (flotilla) => {
    const { deadLetters } = flotilla;
    const begun = await deadLetters.redrive(selection, {
      ...(maxStep !== undefined && { maxStep }),
      ...(fromStart && { fromStart }),
    });
    if (!json) print(`redrive ${oneLine(begun.redriveId, 100)}`);
    const pods = await ifAllowed<readonly PodInfo[] | undefined>(flotilla.pods(), undefined);
    if (pods && !pods.some((pod) => pod.status === "up")) {
      printNotice("no pod is up: the redrive begins when one leads");
    }
    if (signals) return follow(flotilla, begun.redriveId, { signals, ...(json && { json }) });
    if (json) printJson(begun);
  });
}

/** Shows the progress of a redrive until it ends. A signal only ends the display; the redrive goes on. */
async function follow(
  flotilla: Operations,
  redriveId: string,
  { json, signals }: { json?: true; signals: StopSignals },
): Promise<void> {
  const goesOn = `the redrive goes on: follow it with \`flotilla dlq follow ${redriveId}\``;
  const ended = await showUntilEnded(
    (options) => flotilla.deadLetters.followRedrive(redriveId, options),
    { lineOf, goesOn, signals },
  );
  if (!ended) return;
  if (json) printJson(ended);
  else print(summaryOf(ended));
  if (ended.state !== "stopped") return;
  throw new FlotillaError("task_failed", `the redrive stopped: ${ended.reason?.message ?? ""}`, {
    details: { redriveId, ...ended.reason },
  });
}

function lineOf({ taken, remaining, open, stepSize, state }: Redrive): string {
  if (remaining === null && state === "running") return "waiting for the leader to begin";
  const step = open > 0 ? `, ${open} of a step of ${stepSize} still run` : "";
  const more = state === "stopping" ? ", stopping" : "";
  return `${bar(taken - open, taken + (remaining ?? 0))}${step}${more}`;
}

function summaryOf(redrive: Redrive): string {
  const { taken, succeeded, failed, failedOtherwise, gone, state } = redrive;
  if (taken === 0 && state === "done") {
    return "nothing to redrive: no failed task matches (any more)";
  }
  const parts = [
    `${plural(taken, "task")} started over`,
    `${succeeded} succeeded`,
    ...(failed > 0 ? [`${failed} failed with the same error`] : []),
    ...(failedOtherwise > 0 ? [`${failedOtherwise} failed with another error`] : []),
    ...(gone > 0 ? [`${gone} cancelled or deleted`] : []),
    ...(redrive.fromStart ? [`${plural(redrive.forgottenSteps, "stored step")} forgotten`] : []),
  ];
  return `${oneLine(state, 40)}: ${parts.join(", ")}`;
}

async function redrives(flags: Flags): Promise<void> {
  const page = await onTarget(flags, ({ deadLetters }) => deadLetters.redrives());
  if (flags.json) return printJson(page);
  const found = page.redrives;
  if (found.length === 0) return print("no redrives");
  const nowMs = systemClock.now();
  const heading = ["redrive", "state", "of", "age", "started over", "succeeded", ""];
  const rows = found.map((each) => [
    oneLine(each.redriveId, 100),
    oneLine(each.state, 40),
    oneLine(selectionText(each.selection), 60),
    ago(nowMs, each.createdAtMs),
    `${each.taken}${each.remaining ? ` of ${each.taken + each.remaining}` : ""}`,
    String(each.succeeded),
    paint("dim", oneLine(each.reason?.message ?? "", 60)),
  ]);
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
}

function selectionText({ group, taskId, name }: Selection): string {
  return group ?? taskId ?? (name === undefined ? "all" : `--name ${name}`);
}

async function cancel(redriveId: string, flags: Flags): Promise<void> {
  const found = await onTarget(flags, ({ deadLetters }) => deadLetters.cancelRedrive(redriveId));
  if (flags.json) return printJson(found);
  print(
    `redrive ${redriveId} starts no more tasks over; ${plural(found.open, "task")} of it still run`,
  );
}
