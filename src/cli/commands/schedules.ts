import { type Command, Option } from "commander";
import { FlotillaError } from "../../base/errors.ts";
import { everyRange, missedPolicies } from "../../schedules/plan.ts";
import type { Schedule } from "../../schedules/rows.ts";
import type { ScheduleOf } from "../../schedules/schedule.ts";
import { onTarget } from "../connect.ts";
import {
  listsByDefault,
  number,
  type TargetFlags,
  withJson,
  withPage,
  withTarget,
} from "../flags.ts";
import { columns, oneLine, paint, paintState, paintStatus, print, printJson } from "../output.ts";
import { loadHandlers } from "../settings.ts";
import { type NewTaskFlags, withTaskOptions } from "../task-flags.ts";
import type { TaskContract } from "../../tasks/model.ts";

type Flags = TargetFlags & { json?: true };
type ListFlags = Flags & { cursor?: string; limit: number };
type AddFlags = Flags &
  Pick<NewTaskFlags, "priority" | "attempts" | "tenant" | "concurrencyKey"> & {
    pattern?: string;
    zone?: string;
    everyMs?: number;
    missed?: "skip" | "once" | "all";
  };

const stateStyles = { active: "green", paused: "yellow", ended: "gray", broken: "red" } as const;

export function schedulesCommand(program: Command): void {
  const schedules = program
    .command("schedules")
    .description(
      "list, show, add, remove, pause, resume and fire schedules, and list what they made",
    )
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla schedules add nightly report '{"full":true}' --pattern '0 3 * * *' --zone Europe/Berlin
  $ flotilla schedules add poll fetch --every-ms 300000 --missed skip
  $ flotilla schedules show nightly
  $ flotilla schedules pause nightly`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(schedules.command(words, options).description(does)));

  const listing = command("list", "list schedules, ordered by id", { isDefault: true });
  withPage(listing, 100).action(list);
  listsByDefault(schedules, listing);
  command("show <id>", "show one schedule and its next times").action(show);
  const fired = command("firings <id>", "list the tasks that a schedule has made, newest first");
  withPage(fired, 20).action(firings);
  const adding = command("add <id> <name> [json]", "create or replace a schedule")
    .option("--pattern <cron>", "when, as cron: minute, hour, day of month, month, day of week")
    .option("--zone <zone>", "the time zone of the pattern, as in Europe/Berlin (default: UTC)")
    .addOption(
      new Option("--every-ms <ms>", "instead of a pattern: every so many milliseconds").argParser(
        number("--every-ms", everyRange),
      ),
    )
    .addOption(
      new Option("--missed <policy>", "what to do for missed times (default: once)").choices(
        missedPolicies,
      ),
    );
  withTaskOptions(adding, "task", ["priority", "attempts", "tenant", "concurrencyKey"]).action(add);
  command("remove <id>", "remove a schedule; its tasks stay").action(remove);
  command("pause <id>", "pause a schedule until it is resumed").action(pause);
  command("resume <id>", "resume a schedule, from its next time after now").action(resume);
  command("fire <id>", "enqueue a task now, in addition to its times").action(fire);
}

async function list({ json, cursor, limit, ...flags }: ListFlags): Promise<void> {
  const { all, next } = await onTarget(flags, async (flotilla) => {
    const from = { limit, ...(cursor !== undefined && { cursor }) };
    const page = await flotilla.schedules.list(from);
    const noWorker = new Set(await flotilla.tasks.noWorker(page.schedules.map(({ name }) => name)));
    const shown = page.schedules.map((each) => ({ ...each, noWorker: noWorker.has(each.name) }));
    return { all: shown, next: page.next };
  });
  if (json) return printJson({ schedules: all, next });
  if (all.length === 0) return print("no schedules");
  const heading = ["id", "task", "when", "zone", "state", "next", ""];
  const rows = all.map((each) => [
    oneLine(each.scheduleId, 100),
    oneLine(each.name, 40),
    when(each, 40),
    oneLine(each.zone ?? "", 40),
    paintState(stateStyles, each.state),
    time(each.nextAtMs),
    paint("dim", oneLine(each.error ?? (each.noWorker ? "no worker" : ""), 60)),
  ]);
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  if (next !== null) print(paint("dim", `more: --cursor ${oneLine(next, 500)}`));
}

async function show(scheduleId: string, flags: Flags): Promise<void> {
  const { schedule, upcomingMs, noWorker } = await onTarget(flags, async (flotilla) => {
    const { schedules } = flotilla;
    const found = await schedules.get(scheduleId);
    if (!found) throw missing(scheduleId);
    const coming = found.state === "broken" ? [] : await schedules.upcoming(scheduleId);
    const noWorker = (await flotilla.tasks.noWorker([found.name])).length > 0;
    return { schedule: found, upcomingMs: coming, noWorker };
  });
  if (flags.json) return printJson({ schedule: { ...schedule, noWorker }, upcomingMs });
  const { name, zone, missed, state, error, revision, options, lastTaskId } = schedule;
  const facts: [string, string][] = [
    ["id", schedule.scheduleId],
    ["task", oneLine(name, 200) + (noWorker ? " (no worker)" : "")],
    ["when", `${when(schedule, 200)}${zone === null ? "" : `  ${oneLine(zone, 100)}`}`],
    ["missed", missed],
    ["state", paintState(stateStyles, state)],
    ...(error === null ? [] : [["error", oneLine(error, 1_000)] as [string, string]]),
    ["revision", String(revision)],
    ["input", oneLine(JSON.stringify(schedule.input), 1_000)],
    ["options", oneLine(JSON.stringify(options), 1_000)],
    ["last", `${time(schedule.lastAtMs)}${lastTaskId === null ? "" : `  ${lastTaskId}`}`],
  ];
  print(columns(facts.map(([what, value]) => [paint("dim", what), value])));
  for (const atMs of upcomingMs) print(`${paint("dim", "next")}  ${time(atMs)}`);
}

async function firings(
  scheduleId: string,
  { json, cursor, limit, ...flags }: ListFlags,
): Promise<void> {
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  const page = await onTarget(flags, ({ schedules }) => schedules.firings(scheduleId, options));
  if (json) return printJson(page);
  if (page.firings.length === 0) return print("no task of it is kept");
  const heading = ["for", "lag", "task", "status", "failures"];
  const rows = page.firings.map(({ scheduledAtMs, lagMs, taskId, status, failures }) => [
    scheduledAtMs === null ? "by hand" : time(scheduledAtMs),
    lagMs === null ? "" : `${lagMs} ms`,
    oneLine(taskId, 100),
    paintStatus(status),
    String(failures),
  ]);
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 500)}`));
}

async function add(
  scheduleId: string,
  name: string,
  inputText: string | undefined,
  flags: AddFlags,
): Promise<void> {
  const { json, url, config, store, pattern, zone, everyMs, missed, ...options } = flags;
  // The config's handler has the schema, so that an invalid payload is refused here.
  const { use, maxPayloadBytes } = await loadHandlers(flags);
  const { schedule: declare } = await import("../../schedules/schedule.ts");
  const handler = use.find((each) => each.name === name);
  const task = { ...handler, name } as TaskContract;
  const declared = declare(scheduleId, {
    task,
    input: parseInput(inputText),
    options,
    ...(pattern !== undefined && { pattern }),
    ...(everyMs !== undefined && { everyMs }),
    ...(zone !== undefined && { zone }),
    ...(missed !== undefined && { missed }),
  } as object as ScheduleOf<TaskContract>);
  const where = { url, config, store };
  const put = await onTarget(where, ({ schedules }) => schedules.put(declared), {
    maxPayloadBytes,
  });
  printSchedule(
    put,
    json,
    `schedule ${scheduleId} is stored; its next time is ${time(put.nextAtMs)}`,
  );
}

async function remove(scheduleId: string, flags: Flags): Promise<void> {
  if (!(await onTarget(flags, ({ schedules }) => schedules.remove(scheduleId)))) {
    throw missing(scheduleId);
  }
  if (flags.json) return printJson({ scheduleId, removed: true });
  print(`schedule ${scheduleId} is removed`);
}

async function pause(scheduleId: string, flags: Flags): Promise<void> {
  const paused = await onTarget(flags, ({ schedules }) => schedules.pause(scheduleId));
  printSchedule(paused, flags.json, `schedule ${scheduleId} is paused`);
}

async function resume(scheduleId: string, flags: Flags): Promise<void> {
  const resumed = await onTarget(flags, ({ schedules }) => schedules.resume(scheduleId));
  printSchedule(resumed, flags.json, `schedule ${scheduleId} resumes at ${time(resumed.nextAtMs)}`);
}

async function fire(scheduleId: string, flags: Flags): Promise<void> {
  const fired = await onTarget(flags, ({ schedules }) => schedules.fire(scheduleId));
  if (flags.json) return printJson(fired);
  print(oneLine(fired.taskId, 100));
}

function printSchedule(schedule: Schedule, json: true | undefined, text: string): void {
  if (json) printJson({ schedule });
  else print(text);
}

function parseInput(inputText: string | undefined): unknown {
  if (inputText === undefined) return null;
  try {
    return JSON.parse(inputText);
  } catch (error) {
    throw new FlotillaError(
      "invalid_option",
      `the payload isn't JSON: quote it for the shell, as in '{"to":"ada"}'`,
      { cause: error },
    );
  }
}

function when({ pattern, everyMs }: Schedule, maxChars: number): string {
  return pattern === null ? `every ${everyMs} ms` : oneLine(pattern, maxChars);
}

function time(atMs: number | null): string {
  return atMs === null ? "never" : new Date(atMs).toISOString();
}

function missing(scheduleId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no schedule ${scheduleId}`);
}
