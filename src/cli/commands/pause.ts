import type { Command } from "commander";
import { systemClock } from "../../base/clock.ts";
import type { Paused } from "../../tasks/claim/pauses.ts";
import { allNames } from "../../protocol/task-options.ts";
import { onTarget } from "../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../flags.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";

type Flags = TargetFlags & { json?: true };

export function pauseCommands(program: Command): void {
  withJson(
    withTarget(
      program.command("pause [name]").description("stop claiming tasks of a name, or all tasks"),
    ),
  )
    .option("--reason <text>", "the reason, for other operators")
    .addHelpText(
      "after",
      `
Running tasks go on. A name that no pod knows can be paused, too.

Examples:
  $ flotilla pause mail --reason "the provider is down"
  $ flotilla pause
  $ flotilla resume mail`,
    )
    .action(async (name: string | undefined, flags: Flags & { reason?: string }) => {
      const { reason } = flags;
      const paused = await onTarget(flags, async (flotilla) => {
        await flotilla.tasks.pause(name, reason === undefined ? {} : { reason });
        return flotilla.tasks.paused();
      });
      show(paused, flags);
    });
  withJson(
    withTarget(
      program.command("resume [name]").description("end the pause of a name, or of everything"),
    ),
  ).action(async (name: string | undefined, flags: Flags) => {
    const paused = await onTarget(flags, async (flotilla) => {
      await flotilla.tasks.resume(name);
      return flotilla.tasks.paused();
    });
    show(paused, flags);
  });
}

function show(paused: readonly Paused[], { json }: Flags): void {
  if (json) return printJson({ paused });
  if (paused.length === 0) return print("nothing is paused");
  const nowMs = systemClock.now();
  const rows = paused.map(({ name, sinceMs, reason, by }) => [
    name === allNames ? "everything" : oneLine(name, 200),
    `paused ${ago(nowMs, sinceMs)} ago${by == null ? "" : ` by ${oneLine(by, 100)}`}`,
    paint("dim", oneLine(reason ?? "", 200)),
  ]);
  print(columns(rows));
}
