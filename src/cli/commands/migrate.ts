import type { Command } from "commander";
import { type StoreFlags, withJson, withStore } from "../flags.ts";
import type { RecordingOptions } from "../../changes/recording.ts";
import type { PodSettings } from "../../runtime/config.ts";
import { print, printJson } from "../output.ts";
import { loadChanges, loadStore } from "../settings.ts";

export function migrateCommand(program: Command): void {
  withJson(
    withStore(
      program
        .command("migrate")
        .description(
          "migrate the store's schema to this release, creating the file or the tables if there are none, and have it record changes if the config says so",
        ),
    ),
  )
    .option("--dry-run", "print the SQL without running it")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla migrate --dry-run
  $ flotilla migrate --store sqlite:/var/lib/app/flotilla.db
  $ flotilla migrate --store postgres://flotilla_owner@host/app`,
    )
    .action(migrate);
}

async function migrate(flags: StoreFlags & { json?: true; dryRun?: true }): Promise<void> {
  const { openStore } = await import("../../store/open.ts");
  const { planMigrations } = await import("../../store/migration-plan.ts");
  const store = await loadStore(flags);
  const { version, known, statements } = await planMigrations(store);
  if (flags.dryRun) {
    if (flags.json) return printJson({ version, known, statements });
    if (statements.length === 0) return print(`-- schema ${version} is up to date`);
    print(`-- from schema ${version} to ${known}`);
    return print(["begin;", ...statements, "commit;"].join("\n\n"));
  }
  const changes = await loadChanges(flags);
  const database = await openStore(store);
  try {
    if (changes !== undefined) await recordAs(changes, database);
  } finally {
    await database.close();
  }
  const after = Math.max(version, known);
  if (flags.json) return printJson({ from: version, to: after });
  print(
    version === after
      ? `schema ${version} is up to date`
      : `migrated from schema ${version} to ${after}`,
  );
}

async function recordAs(
  changes: NonNullable<PodSettings["changes"]> | false,
  database: RecordingOptions["database"],
): Promise<void> {
  const { systemClock: clock } = await import("../../base/clock.ts");
  const { systemRandom: random } = await import("../../base/random.ts");
  const { uuidv7 } = await import("../../base/ids.ts");
  const { setRecording } = await import("../../changes/recording.ts");
  const ids = uuidv7(clock, random);
  await setRecording(changes, { database, clock, random, ids, migrate: "auto" });
}
