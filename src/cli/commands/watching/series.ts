import { type Command, Option } from "commander";
import type { Series, SeriesPoint, SeriesStep } from "../../../series/series.ts";
import type { SubjectKind } from "../../../protocol/series-subject.ts";
import { onTarget } from "../../connect.ts";
import { type TargetFlags, timeOf, withJson, withTarget } from "../../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../../output.ts";

type Flags = TargetFlags & {
  json?: true;
  step?: SeriesStep;
  since?: number;
  until?: number;
  kind?: SubjectKind;
};

const barChars = 20;
// What a subject does most, by its kind: the first of these that it has is drawn.
const drawn = ["completed", "success", "ended", "begun"];

export function seriesCommand(program: Command): void {
  withJson(
    withTarget(
      program
        .command("series")
        .argument("[subject]", "such as task:mail, or task for all tasks")
        .description("show what was counted over time, or list what there are counts of"),
    ),
  )
    .addOption(
      new Option("--step <step>", "how much time a line stands for").choices(["minute", "hour"]),
    )
    .option("--since <time>", "from this time on (default: an hour ago, with hours a day)", timeOf)
    .option("--until <time>", "up to this time (default: now)", timeOf)
    .addOption(
      new Option("--kind <kind>", "without a subject: only of this kind").choices([
        "task",
        "flow",
        "agent",
        "throttle",
        "pod",
      ]),
    )
    .addHelpText(
      "after",
      `
Subjects are task:<name>, flow:<name>, "flow:<name> <transition>", agent:<name>, throttle:<name>,
"throttle:<name> <key>" and pod:<id>; task, flow, agent and pod stand for all of their kind. Minutes are
kept for a day, hours for 30 days. Where nothing was counted there is no line.

Examples:
  $ flotilla series
  $ flotilla series task:mail
  $ flotilla series throttle:openai --step hour`,
    )
    .action(show);
}

async function show(subject: string | undefined, given: Flags): Promise<void> {
  const { json, step, since, until, kind, ...flags } = given;
  if (subject === undefined) {
    const options = kind === undefined ? {} : { kind };
    const page = await onTarget(flags, ({ series }) => series.subjects(options));
    if (json) return printJson(page);
    if (page.subjects.length === 0) return print("nothing was counted yet: pods count by minutes");
    const rows = page.subjects.map(({ subject: name, lastAtMs }) => [
      oneLine(name, 200),
      new Date(lastAtMs).toISOString(),
    ]);
    return print(columns([["subject", "last"].map(dim), ...rows]));
  }
  const options = {
    subject,
    ...(step !== undefined && { step }),
    ...(since !== undefined && { fromMs: since }),
    ...(until !== undefined && { toMs: until }),
  };
  const series = await onTarget(flags, (flotilla) => flotilla.series.read(options));
  if (json) return printJson(series);
  if (series.points.length === 0)
    return print(`nothing was counted of ${oneLine(subject, 200)} in that time`);
  print(tableOf(series));
}

/** A line for each point: its counts and gauges, how long things took, and what it did most as a bar. */
export function tableOf({ points, step }: Pick<Series, "points" | "step">): string {
  const counts = namesOf(points, ({ counts: each }) => each);
  const gauges = namesOf(points, ({ gauges: each }) => each);
  const main = drawn.find((name) => counts.includes(name)) ?? counts[0];
  const most = Math.max(1, ...points.map((point) => point.counts[main ?? ""] ?? 0));
  const hasWait = points.some(({ wait }) => wait !== null);
  const hasRun = points.some(({ run }) => run !== null);
  const heading = [
    step,
    ...counts,
    ...gauges,
    ...(hasWait ? ["wait p95"] : []),
    ...(hasRun ? ["run p95"] : []),
    main ?? "",
  ];
  const rows = points.map((point) => [
    new Date(point.atMs).toISOString().slice(0, 16).replace("T", " "),
    ...counts.map((name) => shown(point.counts[name])),
    ...gauges.map((name) => shown(point.gauges[name])),
    ...(hasWait ? [durationOf(point.wait)] : []),
    ...(hasRun ? [durationOf(point.run)] : []),
    "█".repeat(Math.round(((point.counts[main ?? ""] ?? 0) / most) * barChars)),
  ]);
  return columns([heading.map(dim), ...rows]);
}

/** All names that any point has, the largest first. */
function namesOf(
  points: readonly SeriesPoint[],
  of: (point: SeriesPoint) => Readonly<Record<string, number>>,
): string[] {
  const totals = new Map<string, number>();
  for (const point of points) {
    for (const [name, value] of Object.entries(of(point)))
      totals.set(name, (totals.get(name) ?? 0) + value);
  }
  return [...totals].toSorted(([, one], [, other]) => other - one).map(([name]) => name);
}

function shown(value: number | undefined): string {
  return value === undefined ? "" : value.toLocaleString("en-US");
}

function durationOf(durations: SeriesPoint["run"]): string {
  return durations === null ? "" : `${shown(Math.round(durations.p95Ms))} ms`;
}

function dim(text: string): string {
  return paint("dim", text);
}
