import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { nearest } from "../../base/options.ts";
import type { RunView } from "../../flows/rows.ts";
import type { RunFilter } from "../../flows/list.ts";
import type { StartOptions } from "../../flows/runs.ts";
import type { Workable } from "../../runtime/handlers.ts";
import { onTarget } from "../connect.ts";
import {
  type ListingFlags,
  listsByDefault,
  moreText,
  number,
  spanIn,
  type TargetFlags,
  withJson,
  withListing,
  withPage,
  withTarget,
} from "../flags.ts";
import { warnNoWorker } from "../why.ts";
import { ago, columns, oneLine, paint, print, printJson, printNotice } from "../output.ts";
import type { Operations } from "../remote.ts";
import { loadHandlers } from "../settings.ts";
import {
  type NewTaskFlags,
  parseInput,
  traceOfCaller,
  type WaitFlags,
  withTaskOptions,
  withWait,
} from "../task-flags.ts";
import { doingText, paintRunStatus, printRun } from "./runs-show.ts";
import type { FlowContract } from "../../tasks/model.ts";

type Flags = TargetFlags & { json?: true };
type ListFlags = Flags &
  ListingFlags &
  Omit<RunFilter, "sinceMs" | "untilMs"> & { cursor?: string; limit: number };

const statuses = ["open", "pending", "claimed", "completed", "failed", "cancelled"] as const;

export function runsCommand(program: Command): void {
  const runs = program
    .command("runs")
    .description("start, list, show, signal, cancel and resume runs of flows")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla runs start order '{"item":"book"}' --wait
  $ flotilla runs list --flow order --status open
  $ flotilla runs show 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla runs signal 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e approve '{"by":"ada"}'
  $ flotilla runs resume 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e

They need no live pod: the store has all that they show.`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(runs.command(words, options).description(does)));

  const listing = command("list", "list runs, newest first", { isDefault: true })
    .option("--flow <name>", "only runs of this flow")
    .addOption(new Option("--status <status>", "only runs in this state").choices(statuses))
    .option("--at <transition>", "only runs at this transition")
    .option("--parent <id>", "only runs that this run started")
    .option("--set-aside", "only runs set aside, because no pod can read them")
    .option("--tenant <tenant>", "only runs of this tenant");
  withPage(withListing(listing, "runs"), 20).action(list);
  listsByDefault(runs, listing);
  command("show <id>", "show one run: its transition, its state and its history").action(printRun);
  const starting = command("start <flow> [json]", "start a run of a flow");
  withWait(withTaskOptions(starting, "run")).action(start);
  command("cancel <id>", "cancel a run; its finalizers still run").action(cancel);
  command("signal <id> <name> [json]", "send a signal to a run")
    .option("--id <id>", "sending the same id again does nothing")
    .action(signal);
  command("resume <id>", "resume a run that was set aside, failed or cancelled")
    .addOption(
      new Option(
        "--as <version>",
        "hand a run that a later version has advanced to this version",
      ).argParser(number("--as", { min: 1, max: 1_000_000_000 })),
    )
    .option("--forget <key...>", "stored steps that run again")
    .action(resume);
}

async function list({ json, url, config, store, ...flags }: ListFlags): Promise<void> {
  const { since, until, ...named } = flags;
  const span = spanIn({
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  });
  const filter = { ...named, ...span };
  const page = await onTarget({ url, config, store }, ({ runs }) => runs.list(filter));
  if (json) return printJson(page);
  const more = page.next === null ? undefined : moreText(page.next, page.lookedBackTo);
  if (page.runs.length === 0)
    return print(more === undefined ? "no runs" : `no runs so far; ${more}`);
  const nowMs = systemClock.now();
  const heading = ["id", "flow", "version", "status", "at", "attempt", "age", ""];
  const rows = page.runs.map((run) => toRow(run, nowMs));
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  if (more !== undefined) print(paint("dim", more));
}

function toRow(run: RunView, nowMs: number): string[] {
  const { status, at, attempt, version, error } = run;
  const isOpen = status === "open";
  const remarks = [doingText(run, nowMs), error?.message ?? ""].filter((each) => each !== "");
  return [
    oneLine(run.runId, 100),
    oneLine(run.flow, 40),
    version === 0 ? "" : String(version),
    paintRunStatus(status),
    isOpen ? oneLine(at ?? "start", 40) : "",
    isOpen ? String(attempt) : "",
    ago(nowMs, run.createdAtMs),
    paint("dim", oneLine(remarks.join("; "), 120)),
  ];
}

async function cancel(runId: string, flags: Flags): Promise<void> {
  const status = await onTarget(flags, ({ runs }) => runs.cancel(runId));
  if (status === "finished") {
    throw new FlotillaError("conflict", `run ${runId} has ended already and can't be cancelled`);
  }
  if (flags.json) return printJson({ runId, status });
  print(
    status === "cancelled"
      ? `run ${runId} is cancelled`
      : `run ${runId} will be cancelled once its finalizers have run`,
  );
}

async function signal(
  runId: string,
  name: string,
  inputText: string | undefined,
  { id, ...flags }: Flags & { id?: string },
): Promise<void> {
  const payload = await parseInput(inputText);
  const options = id === undefined ? {} : { id };
  await onTarget(flags, ({ runs }) => runs.signal(runId, name, payload, options));
  if (flags.json) return printJson({ runId, name, status: "sent" });
  print(`sent signal ${name} to run ${runId}`);
}

async function resume(
  runId: string,
  { as, forget, ...flags }: Flags & { as?: number; forget?: string[] },
): Promise<void> {
  const options = { ...(as !== undefined && { as }), ...(forget && { forget }) };
  const run = await onTarget(flags, async ({ runs }) => {
    await runs.resume(runId, options);
    return runs.get(runId);
  });
  if (flags.json) return printJson({ runId, status: run?.status ?? "open" });
  const where = run?.at == null ? "" : ` at ${oneLine(run.at, 100)}`;
  print(`run ${runId} resumes${where}`);
}

type StartFlags = TargetFlags &
  Omit<NewTaskFlags, "attempts" | "onDuplicate"> &
  WaitFlags & { json?: true; onDuplicate?: "existing" | "reject" };

/** Starts a run. With a config its input is validated here, and its queue's limit applies. */
async function start(
  name: string,
  inputText: string | undefined,
  flags: StartFlags,
): Promise<void> {
  const { json, wait, timeoutMs, url, config, store, ...rest } = flags;
  const input = await parseInput(inputText);
  const { workables, maxPayloadBytes } = await loadHandlers(flags);
  const flow = flowOf(name, workables, json);
  const options: StartOptions = { ...rest, trace: traceOfCaller() };
  const work = async (flotilla: Operations): Promise<void> => {
    const { runs } = flotilla;
    const { runId, created } = await runs.start(flow, input, options);
    if (!json) print(oneLine(runId, 100));
    await warnNoWorker(flotilla, [name]);
    if (!wait) {
      if (json) printJson({ runId, created });
      return;
    }
    const output = await runs.wait(runId, { ...(timeoutMs !== undefined && { timeoutMs }) });
    printJson(json ? { runId, created, output } : output);
  };
  await onTarget({ url, config, store }, work, { maxPayloadBytes });
}

/** A name that the config doesn't have is started anyway: its flow may be in another program. */
function flowOf(name: string, use: readonly Workable[], json: true | undefined): FlowContract {
  const found = use.find((each) => each.name === name);
  if (found && !found.isFlow) {
    const message = `${name} is a task and no flow: use \`flotilla enqueue ${name}\``;
    throw new FlotillaError("invalid_option", message);
  }
  if (found) return { ...found, isFlow: true };
  const names = use.filter(({ isFlow }) => isFlow).map((each) => each.name);
  const meant = nearest(name, names);
  if (meant !== undefined && !json) {
    const doubt = `the config has no flow "${name}", did you mean "${meant}"?`;
    printNotice(`${doubt} The run is started anyway`);
  }
  return { name, input: undefined, output: undefined, isFlow: true };
}
