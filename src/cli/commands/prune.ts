import { type Command, Option } from "commander";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Retention } from "../../tasks/leader/prune.ts";
import { onStore } from "../connect.ts";
import { number, type StoreFlags, withJson, withStore } from "../flags.ts";
import { print, printJson } from "../output.ts";
import { bar, plural, startProgress } from "../progress.ts";
import { stopSignals } from "../signals.ts";

type PruneFlags = StoreFlags & {
  json?: true;
  olderThan: number;
  status?: keyof Retention;
  yes?: true;
};

export function pruneCommand(tasks: Command): void {
  withJson(
    withStore(
      tasks
        .command("prune")
        .description("delete finished tasks now, which the leader does by and by"),
    ),
  )
    .addOption(
      new Option("--older-than <days>", "only tasks that ended so many days ago")
        .makeOptionMandatory()
        .argParser(number("--older-than", { min: 0.001, max: 3_650, whole: false })),
    )
    .addOption(
      new Option("--status <status>", "only tasks that ended so").choices([
        "completed",
        "failed",
        "cancelled",
      ]),
    )
    .option("--yes", "do it")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla tasks prune --older-than 30 --yes
  $ flotilla tasks prune --older-than 1 --status completed --yes

How long finished tasks are kept without this is \`retentionMs\` of the config, 7 days unless told.`,
    )
    .action(prune);
}

async function prune({ json, olderThan, status, yes, ...where }: PruneFlags): Promise<void> {
  if (!yes) {
    const which = status === undefined ? "finished" : status;
    const message = `this would delete tasks that are ${which} for ${olderThan} days or longer: say --yes`;
    throw new FlotillaError("invalid_option", message);
  }
  const stop = new AbortController();
  void stopSignals().asked.then(() => stop.abort());
  const progress = startProgress();
  try {
    await onStore(where, async (flotilla) => {
      const { byStatus } = await flotilla.stats();
      const all = Object.values(byStatus).reduce((sum, each) => sum + each, 0);
      const { deleted } = await flotilla.prune({
        olderThanMs: Math.max(60_000, Math.round(olderThan * dayMs)),
        ...(status && { status }),
        signal: stop.signal,
        onProgress: (done) =>
          progress.show(`${bar(Math.min(done.seen, all), all)}, ${done.deleted} deleted`),
      });
      progress.end();
      if (json) printJson({ deleted });
      else print(`deleted ${plural(deleted, "task")}${stop.signal.aborted ? ", and stopped" : ""}`);
    });
  } finally {
    progress.end();
  }
}
