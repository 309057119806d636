import { type Command, Option } from "commander";
import { FlotillaError } from "../../../base/errors.ts";
import type { BrokenLog, RebasedLog, RebaseParts } from "../../../sessions/log/archive/rebase.ts";
import { number, type StoreFlags, withJson, withStoreOnly } from "../../flags.ts";
import { columns, print, printJson } from "../../output.ts";
import { loadSettings } from "../../settings.ts";
import { withServers } from "./with-servers.ts";

type RebaseFlags = StoreFlags & { log?: number; yes?: true; json?: true };

const reasons: Readonly<Record<BrokenLog["why"], string>> = {
  set_back: "the database was set back, and the log begins later",
  different: "the database has other records than the log",
  missing: "the database has nothing of it",
};

export function rebaseCommand(cluster: Command): void {
  withJson(withStoreOnly(cluster.command("rebase")))
    .addOption(
      new Option("--log <number>", "only this log (default: all that can't be served)").argParser(
        number("--log", { min: 0, max: 255 }),
      ),
    )
    .option("--yes", "do it; without it, only say what would be done")
    .description("have logs go on without what a restored database lacks of them")
    .addHelpText(
      "after",
      `
A database that was restored from a back-up lacks records that the logs may not have any more: such a log isn't
served, so that nothing is taken for whole that isn't. Restore a later back-up if there is one. If there is
none, this gives the log a new stream behind what the database has. Records that only the log has are kept in
the table archive_aside. Clients of its sessions begin anew with what is there.

Examples:
  $ flotilla cluster rebase
  $ flotilla cluster rebase --log 3 --yes`,
    )
    .action(runRebase);
}

async function runRebase(flags: RebaseFlags): Promise<void> {
  const { log: wanted, yes, json } = flags;
  const { findBroken, rebase } = await import("../../../sessions/log/archive/rebase.ts");
  await withLogs(flags, async (parts) => {
    const broken = (await findBroken(parts)).filter(
      ({ logId }) => wanted === undefined || logId === wanted,
    );
    if (!yes) {
      if (json) return printJson({ broken });
      return print(broken.length === 0 ? nothing : `${tableOf(broken)}\n${advice}`);
    }
    const rebased: RebasedLog[] = [];
    for (const { logId } of broken) {
      const done = await rebase(logId, parts);
      if (done) rebased.push(done);
    }
    if (json) return printJson({ rebased });
    print(rebased.length === 0 ? nothing : tableOf(rebased));
  });
}

const nothing = "every log can be served: nothing is to be done";
const advice =
  "Nothing was changed. Restore a later back-up of the database, or run it again with --yes to go on without what it lacks.";

function tableOf(logs: readonly (BrokenLog | RebasedLog)[]): string {
  return columns(
    logs.map((each) => {
      const { logId, archived, through, why } = each;
      const kept = "aside" in each ? `goes on; ${each.aside} records set aside` : reasons[why];
      return [`log ${logId}`, `in the database up to ${archived} of ${through}`, kept];
    }),
  );
}

async function withLogs(
  flags: StoreFlags,
  act: (parts: RebaseParts) => Promise<void>,
): Promise<void> {
  const settings = await loadSettings(flags);
  const { connectStreamLogs } = await import("../../../runtime/logs/stream-logs.ts");
  const { logPlaceOf } = await import("../../../sessions/log/place.ts");
  await withServers(settings, { without: areElsewhere }, async (servers) => {
    const { database, processId: podId, host } = servers;
    if ((await logPlaceOf(database)).place === "sql") throw areElsewhere();
    const { streamLog } = await connectStreamLogs(servers);
    await act({ ...servers, stream: streamLog, owner: { podId, host } });
  });
}

function areElsewhere(): FlotillaError {
  return new FlotillaError(
    "invalid_option",
    "the logs of sessions aren't on NATS, or this config doesn't say where: give it that of the pods, with `nats`",
  );
}
