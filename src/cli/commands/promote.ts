import { type Command, InvalidArgumentError } from "commander";
import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { PromotionPlan, PromotionProgress, Promoted } from "../../promote/promote.ts";
import type { Store } from "../../store/open.ts";
import { type StoreFlags, withJson, withStore } from "../flags.ts";
import { columns, print, printJson } from "../output.ts";
import { bar, count, plural, startProgressBar } from "../progress.ts";
import { loadStore } from "../settings.ts";

export type PromoteFlags = StoreFlags & {
  to: string;
  from?: string;
  logs?: number;
  wait?: true;
  dryRun?: true;
  undo?: true;
  json?: true;
};

const maxLogs = 256;

export function promoteCommand(program: Command): void {
  withJson(
    withStore(
      program
        .command("promote")
        .description(
          "move everything of a SQLite store to Postgres, or the logs of sessions to NATS and back",
        )
        .requiredOption(
          "--to <place>",
          "an empty database, such as postgres://user@host/app; or nats, or postgres: where logs of sessions go",
        )
        .option(
          "--from <url>",
          "the SQLite store to move (default: that of --store or the config)",
        ),
    ),
  )
    .option("--wait", "wait until all pods on the source have stopped, rather than refuse")
    .option("--dry-run", "say what would be moved, and about how long it takes")
    .option("--logs <number>", "how many logs sessions are spread over then (default: 8)", toLogs)
    .option("--undo", "give up a promotion that isn't finished: the source goes on as before")
    .addHelpText(
      "after",
      `
One that was killed goes on where it was when it is started again.

From SQLite to Postgres neither store can be used until it is done. The source stays as it is, and says where
its data went. To NATS and back pods go on running, and clients keep their place: sessions wait while the logs
change hands, usually a second or two; a pod that doesn't answer is waited for, and on the way back the archive.

Examples:
  $ flotilla promote --to postgres://user@host/app --dry-run
  $ flotilla promote --from sqlite:flotilla.db --to postgres://user@host/app --wait
  $ flotilla promote --to nats
  $ flotilla promote --to postgres`,
    )
    .action(runPromote);
}

async function runPromote(flags: PromoteFlags): Promise<void> {
  if (flags.to === "nats" || flags.to === "postgres") {
    const { runPromoteLogs } = await import("./cluster/promote-logs.ts");
    return runPromoteLogs(flags.to, flags);
  }
  const { identifyProcess } = await import("../../runtime/process.ts");
  const { logsFor } = await import("../../runtime/config.ts");
  const { openStores } = await import("../../promote/stores.ts");
  const { planPromotion, promote, undoPromotion } = await import("../../promote/promote.ts");
  const from: Store = flags.from ?? (await loadStore(flags));
  const stores = await openStores({ from, to: flags.to }, { readOnly: flags.dryRun === true });
  const own = identifyProcess();
  const progress = startProgressBar();
  const startedMs = systemClock.monotonic();
  const parts = {
    ...stores,
    clock: systemClock,
    random: systemRandom,
    ids: uuidv7(systemClock, systemRandom),
    host: own?.host ?? null,
    isGone: (host: string) => own?.isGone(host) ?? false,
    logs: flags.logs,
    defaultLogs: logsFor(flags.to),
    wait: flags.wait === true,
    onProgress: (each: PromotionProgress) => progress.show(lineOf(each)),
  };
  try {
    if (flags.dryRun) return showPlan(await planPromotion(parts), parts, flags);
    if (flags.undo) {
      const { rows, isElsewhere } = await undoPromotion(parts);
      progress.end();
      if (flags.json) return printJson({ undone: true, rows });
      const source = isElsewhere ? "is moved to another store, as before" : "goes on as before";
      return print(`given up: ${parts.from} ${source}, and ${parts.to} is empty`);
    }
    const promoted = await promote(parts);
    progress.end();
    showPromoted(promoted, { ...parts, durationMs: systemClock.monotonic() - startedMs }, flags);
  } finally {
    progress.end();
    await stores.close();
  }
}

type Names = { readonly from: string; readonly to: string };

function showPlan(plan: PromotionPlan, { from, to }: Names, { json }: PromoteFlags): void {
  if (json) return printJson({ from, to, ...plan });
  const { tables, rows, logs, pods, schema, copied, durationMs } = plan;
  const filled = Object.entries(tables).filter(([, each]) => each > 0);
  print(`would move ${plural(rows, "row")} from ${from} to ${to}, in about ${seconds(durationMs)}`);
  if (filled.length > 0) print(columns(filled.map(([name, each]) => [`  ${name}`, count(each)])));
  if (copied > 0) print(`${plural(copied, "row")} of it are there from an earlier start`);
  if (schema.from < schema.to)
    print(`migrates the source from schema ${schema.from} to ${schema.to}`);
  print(aboutLogs(logs.to));
  if (pods.length > 0)
    print(`${plural(pods.length, "pod")} would have to stop first: ${pods.join(", ")}`);
}

function showPromoted(
  promoted: Promoted,
  { from, to, durationMs }: Names & { durationMs: number },
  { json }: PromoteFlags,
): void {
  if (json) return printJson({ from, to, ...promoted, durationMs: Math.round(durationMs) });
  const { rows, logs, already } = promoted;
  print(
    already
      ? `was moved to ${to} before: ${plural(rows, "row")}`
      : `moved ${plural(rows, "row")} to ${to} in ${seconds(durationMs)}, and compared them`,
  );
  print(aboutLogs(logs));
  print(`${from} can be kept as a back-up: nothing starts on it any more`);
  print("next: set the store of all pods and programs to the new one, and start them");
}

function aboutLogs(logs: number): string {
  return logs === 0
    ? "sessions have no logs in the database: the first pod makes them, by sessions.logs of its config"
    : `sessions are spread over ${plural(logs, "log")}; clients keep their place`;
}

function lineOf(progress: PromotionProgress): string {
  if (progress.phase === "waiting")
    return `waiting for ${plural(progress.pods.length, "pod")} to stop: ${progress.pods.join(", ")}`;
  const { phase, table, rows, total } = progress;
  return `${phase} ${table.padEnd(18)} ${bar(rows, total)}`;
}

function seconds(ms: number): string {
  return ms < 1_000 ? "a second" : `${count(Math.ceil(ms / 1_000))} s`;
}

function toLogs(text: string): number {
  const logs = Number(text);
  const isPower = Number.isInteger(Math.log2(logs));
  if (isPower && logs >= 1 && logs <= maxLogs) return logs;
  throw new InvalidArgumentError(`It must be a power of two up to ${maxLogs}.`);
}
