import type { Command } from "commander";
import type { Verdict, WhyReason } from "../../../tasks/inspect/evidence.ts";
import { onTarget } from "../../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../../flags.ts";
import { oneLine, paint, paintStatus, print, printJson } from "../../output.ts";

type Flags = TargetFlags & { json?: true };

export function whyCommand(program: Command): void {
  withJson(
    withTarget(
      program
        .command("why <id>")
        .description("say why a task or a run waits, with what to do about it"),
    ),
  )
    .addHelpText(
      "after",
      `
The reasons are in the order in which to look at them. With --json each has its evidence, too.

Examples:
  $ flotilla why 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla why 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e --json`,
    )
    .action(why);
}

async function why(taskId: string, flags: Flags): Promise<void> {
  const verdict = await onTarget(flags, ({ tasks }) => tasks.why(taskId));
  if (flags.json) return printJson({ verdict });
  for (const line of linesOf(verdict)) print(line);
}

function linesOf({ name, isRun, status, reasons }: Verdict): string[] {
  const what = isRun ? "run of" : "task";
  return [
    `${what} ${oneLine(name, 200)}: ${paintStatus(status)}`,
    ...reasons.flatMap((reason, at) => reasonLines(reason, at + 1)),
  ];
}

function reasonLines({ sentence, advice, command }: WhyReason, number: number): string[] {
  return [
    `${number}. ${oneLine(sentence, 1_000)}`,
    ...(advice === null ? [] : [`   ${oneLine(advice, 500)}`]),
    ...(command === null ? [] : [`   ${paint("dim", `$ ${oneLine(command, 1_000)}`)}`]),
  ];
}
