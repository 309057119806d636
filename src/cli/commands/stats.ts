import type { Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import { allNames } from "../../protocol/task-options.ts";
import { taskStatuses } from "../../tasks/rows.ts";
import { onTarget } from "../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../flags.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";
import { boundedCount } from "../live-counts.ts";
import { count } from "../progress.ts";

const heading = ["name", ...taskStatuses, ""].map((each) => paint("dim", each));

type Flags = TargetFlags & { json?: true; exact?: boolean };

export function statsCommand(program: Command): void {
  withJson(
    withTarget(
      program
        .command("stats")
        .description("count tasks by name and state, and show what blocks them")
        .option("--exact", "count every task, which takes as long as there are tasks"),
    ),
  ).action(async ({ json, exact = false, ...where }: Flags) => {
    const { stats, depth, paused } = await onTarget(where, async (flotilla) => {
      const [stats, depth, paused] = await Promise.all([
        flotilla.tasks.stats({ exact }),
        flotilla.tasks.depth(),
        flotilla.tasks.paused(),
      ]);
      return { stats, depth, paused };
    });
    if (json) return printJson({ ...stats, depth: Object.fromEntries(depth), paused });
    const names = Object.keys(stats.byName).toSorted();
    if (names.length === 0) print("no tasks");
    else print(columns([heading, ...names.map(rowOf)]));
    if (stats.atLeast.length > 0)
      print(paint("dim", "+: there are more than were counted; --exact counts all"));
    const nowMs = systemClock.now();
    for (const { name, sinceMs, reason } of paused) {
      const what = name === allNames ? "everything" : oneLine(name, 200);
      const why = reason === null ? "" : `: ${oneLine(reason, 200)}`;
      print(paint("yellow", `${what} has been paused for ${ago(nowMs, sinceMs)}${why}`));
    }

    function rowOf(name: string): string[] {
      const of = stats.byName[name]!;
      const state = depth.get(name);
      const notes = [
        ...(state && state.waiting > 0 ? [`${count(state.waiting)} wait for dependencies`] : []),
        ...(state && state.blocked > 0 ? [`${count(state.blocked)} blocked by a limit`] : []),
        ...(state && state.oldestMs > 0 ? [`due for ${ago(state.oldestMs, 0)}`] : []),
        ...(stats.noWorker.includes(name) ? ["no worker"] : []),
      ];
      return [
        oneLine(name, 40),
        ...taskStatuses.map((status) => boundedCount(stats, status, of[status])),
        paint("dim", notes.join(", ")),
      ];
    }
  });
}
