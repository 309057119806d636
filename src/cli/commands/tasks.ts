import process from "node:process";
import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { type SetAsideTask, type Task, taskStatuses, type Retention } from "../../tasks/rows.ts";
import type { StepEntry, TaskEvent } from "../../tasks/tasks.ts";
import { whyWaits } from "../why.ts";
import { onStore, onTarget } from "../connect.ts";
import {
  listsByDefault,
  moreText,
  number,
  type StoreFlags,
  type TargetFlags,
  type TaskFilterFlags,
  taskFilterOf,
  withJson,
  withPage,
  withStoreOnly,
  withTarget,
  withTaskFilter,
} from "../flags.ts";
import { ago, columns, oneLine, paint, paintStatus, print, printJson } from "../output.ts";
import { count, plural, startProgressBar } from "../progress.ts";
import { stopSignals } from "../signals.ts";
import { parseInput } from "../task-flags.ts";
import { printCopies, printStarted, startedByFacts } from "../links.ts";
import { noWorkerText } from "./runs-show.ts";

type Flags = TargetFlags & { json?: true };
type ListFlags = Flags & TaskFilterFlags & { cursor?: string; limit: number };

type PruneFlags = StoreFlags & {
  json?: true;
  olderThan: number;
  status?: keyof Retention;
  yes?: true;
};

const maxIdsShown = 10;
const maxStepsShown = 1_000;

export function tasksCommand(program: Command): void {
  const tasks = program
    .command("tasks")
    .description("list, show, signal, cancel, retry, resume and prune tasks")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla tasks list --status failed --name mail
  $ flotilla tasks show 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla tasks retry 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e`,
    );

  const listing = withJson(
    withTarget(tasks.command("list", { isDefault: true }).description("list tasks, newest first")),
  );
  withPage(withTaskFilter(listing, taskStatuses), 20).action(list);
  listsByDefault(tasks, listing);
  withJson(
    withTarget(
      tasks.command("show <id>").description("show one task, its events and its stored steps"),
    ),
  ).action(printTask);
  withJson(
    withTarget(tasks.command("cancel <id>").description("cancel a task, also while it runs")),
  ).action(cancel);
  withJson(
    withTarget(tasks.command("retry <id>").description("start a failed or cancelled task over")),
  )
    .option("--from-start", "forget its stored steps, so that all of them run again")
    .action(retry);
  withJson(
    withTarget(
      tasks
        .command("resume <id>")
        .description("let a task go on that was set aside, or start an ended one over"),
    ),
  )
    .option("--forget <key...>", "stored steps that run again")
    .action(resume);
  withJson(
    withTarget(
      tasks
        .command("signal <id> <name> [json]")
        .description("send a signal to a task whose steps wait for it"),
    ),
  )
    .option("--id <id>", "sending it again with the same id does nothing")
    .action(signal);
  pruneCommand(tasks);
}

export async function printTask(taskId: string, flags: Flags): Promise<void> {
  const { task, events, steps, links, why } = await onTarget(flags, async (flotilla) => {
    const found = await flotilla.tasks.get(taskId);
    const taskEvents = await flotilla.tasks.events(taskId);
    return {
      steps: await flotilla.tasks.steps(taskId, { limit: maxStepsShown }),
      task: found,
      events: taskEvents,
      links: await flotilla.tasks.links(taskId),
      why: found ? await whyWaits(flotilla, found) : [],
    };
  });
  if (!task) {
    throw new FlotillaError("not_found", `there is no task ${taskId}`, { details: { taskId } });
  }
  if (flags.json) {
    const waits = why.length > 0 && { why };
    return printJson({ task, events, steps, links, ...waits });
  }
  const known = [
    ...facts(task),
    ...startedByFacts(links),
    ...why.map((sentence): [string, string] => ["why", sentence]),
  ];
  print(columns(known.map(([name, value]) => [paint("dim", name), value])));
  for (const event of events) print(eventLine(event));
  printStarted(links);
  printCopies(links);
  printSteps(steps);
}

function printSteps(steps: readonly StepEntry[]): void {
  if (steps.length === 0) return;
  print("\nsteps");
  const lines = steps.map((step) => [
    `  ${oneLine(step.key, 200)}`,
    step.kind,
    paint("dim", time(step.atMs)),
    `${step.atMs - step.startedAtMs} ms`,
    plural(step.bytes, "byte"),
    `token ${step.token}`,
    step.requested ? "" : paint("yellow", "not requested any more"),
  ]);
  print(columns(lines));
  if (steps.length === maxStepsShown) print(paint("dim", `the first ${maxStepsShown} are shown`));
}

export function eventLine(event: TaskEvent): string {
  const { atMs, type, attempt, podId, detail } = event;
  const parts = [
    paint("dim", time(atMs)),
    oneLine(type, 40),
    ...(attempt === null ? [] : [`attempt ${attempt}`]),
    ...(podId === null ? [] : [`on ${oneLine(podId, 100)}`]),
    ...(detail === null ? [] : [json(detail)]),
  ];
  return parts.join("  ");
}

async function list({ json, url, config, store, ...flags }: ListFlags): Promise<void> {
  const { cursor, limit } = flags;
  const filter = { ...taskFilterOf(flags), limit, ...(cursor !== undefined && { cursor }) };
  const page = await onTarget({ url, config, store }, (flotilla) => flotilla.tasks.list(filter));
  if (json) return printJson(page);
  const more = page.next === null ? undefined : moreText(page.next, page.lookedBackTo);
  if (page.tasks.length === 0)
    return print(more === undefined ? "no tasks" : `no tasks so far; ${more}`);
  const nowMs = systemClock.now();
  const heading = ["id", "name", "status", "failures", "age", ""].map((each) => paint("dim", each));
  print(columns([heading, ...page.tasks.map((task) => toRow(task, nowMs))]));
  if (more !== undefined) print(paint("dim", more));
}

function noWorker({ flowVersion, version }: Task): string {
  const wanted = flowVersion ?? version;
  return wanted
    ? `${noWorkerText(wanted)}: no live pod has it`
    : "no worker: no live pod has a handler for it";
}

/** The remark of a list: why a task waits, or else its last error. */
function remarkOn(task: Task): string {
  if (task.status === "pending" && task.setAside) return `set aside: ${task.setAside.message}`;
  if (task.status === "pending" && task.paused) return "paused";
  if (task.status === "pending" && task.throttledBy !== null) {
    return `throttled by ${oneLine(task.throttledBy.name, 40)}`;
  }
  if ("error" in task && task.error) return task.error.message;
  return task.status === "pending" && task.noWorker ? noWorker(task) : "";
}

function toRow(task: Task, nowMs: number): string[] {
  return [
    oneLine(task.taskId, 100),
    oneLine(task.name, 40),
    paintStatus(task.status),
    String(task.failures),
    ago(nowMs, task.createdAtMs),
    paint("dim", oneLine(remarkOn(task), 60)),
  ];
}

function setAsideFacts({ message, step, stored, given }: SetAsideTask): [string, string][] {
  return [
    ["set aside", oneLine(message, 400)],
    ...(step === undefined ? [] : [["step", oneLine(step, 300)] as [string, string]]),
    ...(stored === undefined || given === undefined
      ? []
      : [["input", `stored as ${stored}, now ${given}`] as [string, string]]),
  ];
}

function facts(task: Task): [string, string][] {
  const { maxAttempts, deaths, key, progress } = task;
  return [
    ["id", oneLine(task.taskId, 100)],
    ["name", oneLine(task.name, 200)],
    [
      "status",
      paintStatus(task.status) +
        (task.cancelRequested && task.status === "claimed" ? " (cancel requested)" : "") +
        (task.status === "pending" && task.paused ? " (paused)" : "") +
        (task.status === "pending" && task.setAside ? " (set aside)" : "") +
        (task.status === "pending" && task.noWorker ? ` (${noWorker(task)})` : ""),
    ],
    ...(task.flowVersion === null
      ? []
      : [
          ["run", `of a flow: \`flotilla runs show ${oneLine(task.taskId, 100)}\` shows it`] as [
            string,
            string,
          ],
        ]),
    ...(task.status === "pending" && task.setAside ? setAsideFacts(task.setAside) : []),
    ...(task.version === null ? [] : [["version", String(task.version)] as [string, string]]),
    ["tenant", oneLine(task.tenant, 200)],
    ...(key === null ? [] : [["key", oneLine(key, 200)] as [string, string]]),
    ["priority", String(task.priority)],
    ["created", time(task.createdAtMs)],
    ["updated", time(task.updatedAtMs)],
    ["runs from", time(task.runAtMs)],
    ...(task.scheduledAtMs === null
      ? []
      : [["scheduled for", time(task.scheduledAtMs)] as [string, string]]),
    ...(task.startedAtMs == null ? [] : [["started", time(task.startedAtMs)] as [string, string]]),
    ["failures", `${task.failures}${maxAttempts === null ? "" : ` of ${maxAttempts} attempts`}`],
    ...(deaths > 0 ? [["deaths", String(deaths)] as [string, string]] : []),
    ...(task.status === "claimed"
      ? [["pod", oneLine(task.claimedBy, 100)] as [string, string]]
      : []),
    ...(task.waitsFor.length > 0
      ? [
          [task.status === "pending" ? "waits for" : "waited for", ids(task.waitsFor)] as [
            string,
            string,
          ],
        ]
      : []),
    ["payload", json(task.payload)],
    ...(progress === null ? [] : [["progress", json(progress)] as [string, string]]),
    ...(task.status === "completed" ? [["result", json(task.result)] as [string, string]] : []),
    ...("error" in task && task.error
      ? [
          ["error", `${oneLine(task.error.code, 100)}: ${oneLine(task.error.message, 1_000)}`] as [
            string,
            string,
          ],
        ]
      : []),
  ];
}

async function cancel(taskId: string, flags: Flags): Promise<void> {
  const status = await onTarget(flags, (flotilla) => flotilla.tasks.cancel(taskId));
  if (status === "finished") {
    throw new FlotillaError("conflict", `task ${taskId} has ended already and can't be cancelled`);
  }
  if (flags.json) return printJson({ taskId, status });
  print(
    status === "cancelled"
      ? `task ${taskId} is cancelled`
      : `task ${taskId} is running; its pod cancels it within a second`,
  );
}

async function retry(taskId: string, flags: Flags & { fromStart?: true }): Promise<void> {
  const { fromStart = false } = flags;
  const { forgottenSteps } = await onTarget(flags, (flotilla) =>
    flotilla.tasks.retry(taskId, { fromStart }),
  );
  if (flags.json) return printJson({ taskId, status: "pending", forgottenSteps });
  const forgotten = fromStart ? `, and ${plural(forgottenSteps, "stored step")} are forgotten` : "";
  print(`task ${taskId} starts over${forgotten}`);
}

async function resume(taskId: string, flags: Flags & { forget?: string[] }): Promise<void> {
  const { forget = [] } = flags;
  await onTarget(flags, (flotilla) => flotilla.tasks.resumeTask(taskId, { forget }));
  if (flags.json) return printJson({ taskId, status: "pending" });
  const forgotten = forget.length > 0 ? ` without ${plural(forget.length, "stored step")}` : "";
  print(`task ${taskId} goes on${forgotten}`);
}

async function signal(
  taskId: string,
  name: string,
  text: string | undefined,
  { id, ...flags }: Flags & { id?: string },
): Promise<void> {
  const payload = await parseInput(text);
  const options = id === undefined ? {} : { id };
  await onTarget(flags, (flotilla) =>
    flotilla.tasks.signal(taskId, name, payload as Json, options),
  );
  if (flags.json) return printJson({ taskId, name, status: "sent" });
  print(`sent signal ${name} to task ${taskId}`);
}

function ids(all: readonly string[]): string {
  const more = all.length - maxIdsShown;
  return `${oneLine(all.slice(0, maxIdsShown).join(" "), 1_000)}${more > 0 ? ` and ${more} more` : ""}`;
}

function json(value: unknown): string {
  return oneLine(JSON.stringify(value), 1_000);
}

function time(atMs: number): string {
  return new Date(atMs).toISOString();
}

function pruneCommand(tasks: Command): void {
  withJson(
    withStoreOnly(
      tasks
        .command("prune")
        .description("delete old finished tasks now, instead of when their retention ends"),
    ),
  )
    .addOption(
      new Option("--older-than <days>", "only tasks that ended at least so many days ago")
        .makeOptionMandatory()
        .argParser(number("--older-than", { min: 0.001, max: 3_650, whole: false })),
    )
    .addOption(
      new Option("--status <status>", "only tasks of this status").choices([
        "completed",
        "failed",
        "cancelled",
      ]),
    )
    .option("--yes", "confirm that they are deleted")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla tasks prune --older-than 30 --yes
  $ flotilla tasks prune --older-than 1 --status completed --yes

Without this, finished tasks are kept for \`retentionMs\` of the config, 7 days by default.`,
    )
    .action(prune);
}

async function prune({ json, olderThan, status, yes, ...where }: PruneFlags): Promise<void> {
  if (!yes) {
    const which = status === undefined ? "finished" : status;
    const message = `this deletes tasks that have been ${which} for ${olderThan} days or longer: add --yes to confirm`;
    throw new FlotillaError("invalid_option", message);
  }
  // Other commands use that server, so the tasks of another store must not be deleted in its place.
  if (process.env["FLOTILLA_URL"] && where.store === undefined && where.config === undefined) {
    throw new FlotillaError(
      "unsupported",
      "the server of FLOTILLA_URL can't be asked to prune tasks: `flotilla tasks prune` needs --store",
    );
  }
  const stop = new AbortController();
  void stopSignals().received.then(() => stop.abort());
  const progress = startProgressBar();
  try {
    await onStore(where, async (flotilla) => {
      const { deleted } = await flotilla.tasks.prune({
        olderThanMs: Math.max(60_000, Math.round(olderThan * dayMs)),
        ...(status && { status }),
        signal: stop.signal,
        onProgress: (done) =>
          progress.show(`${count(done.seen)} looked at, ${count(done.deleted)} deleted`),
      });
      progress.end();
      if (json) printJson({ deleted });
      else print(`deleted ${plural(deleted, "task")}${stop.signal.aborted ? ", and stopped" : ""}`);
    });
  } finally {
    progress.end();
  }
}
