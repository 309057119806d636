import { type Command, Option } from "commander";
import { systemClock } from "../../../base/clock.ts";
import { type Bulk, type BulkAction, type BulkRequest, statusesOf } from "../../../bulk/bulk.ts";
import type { BulkPreview } from "../../../bulk/bulks.ts";
import type { PodInfo } from "../../../runtime/pods.ts";
import type { TaskFilter } from "../../../tasks/inspect/filter.ts";
import { ifAllowed, onTarget } from "../../connect.ts";
import {
  listsByDefault,
  number,
  type TargetFlags,
  type TaskFilterFlags,
  taskFilterOf,
  withJson,
  withPage,
  withTarget,
  withTaskFilter,
} from "../../flags.ts";
import { confirm, showUntilEnded } from "./long-acts.ts";
import { ago, columns, oneLine, paint, print, printJson, printNotice } from "../../output.ts";
import { bar, count, plural } from "../../progress.ts";
import type { Operations } from "../../remote.ts";
import { type StopSignals, stopSignals } from "../../signals.ts";
import { parseInput } from "../../task-flags.ts";

type Flags = TargetFlags & { json?: true };
type ActFlags = Flags &
  TaskFilterFlags & {
    fromStart?: true;
    as?: number;
    reason?: string;
    preview?: true;
    yes?: true;
    wait: boolean;
  };

const descriptions: Readonly<Record<BulkAction, string>> = {
  cancel: "cancel all pending and claimed tasks and runs that match",
  retry: "start all failed and cancelled tasks and runs over that match",
  delete: "delete all ended tasks and runs that match",
  signal: "send a signal to all open tasks and runs that match",
  resume: "let all tasks and runs go on that were set aside and match",
};

export function bulkCommand(program: Command): void {
  const bulk = program
    .command("bulk")
    .description("act on all tasks and runs that match a filter")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla bulk cancel --name mail --tenant acme --preview   how many would be cancelled
  $ flotilla bulk retry --group g2-79ef601d010c6cb2 --yes      starts them over, without asking
  $ flotilla bulk resume --name order --as 3                   hands runs back to version 3
  $ flotilla bulk stop 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e    what it has done stays done`,
    );
  const listing = withJson(withTarget(bulk.command("list", { isDefault: true })));
  withPage(listing.description("list bulks, newest first"), 20).action(list);
  listsByDefault(bulk, listing);
  actCommand(bulk, "cancel").action((flags: ActFlags) => act({ action: "cancel" }, flags));
  actCommand(bulk, "retry")
    .option("--from-start", "forget stored steps, so that all of them run again")
    .action((flags: ActFlags) =>
      act({ action: "retry", ...(flags.fromStart && { fromStart: true }) }, flags),
    );
  actCommand(bulk, "delete").action((flags: ActFlags) => act({ action: "delete" }, flags));
  actCommand(bulk, "signal", "signal <signal> [payload]").action(
    async (signal: string, payload: string | undefined, flags: ActFlags) =>
      act({ action: "signal", signal, payload: await parseInput(payload) }, flags),
  );
  actCommand(bulk, "resume")
    .addOption(
      new Option(
        "--as <version>",
        "hand runs that a later version has advanced to this version of the flow",
      ).argParser(number("--as", { min: 1, max: 1_000_000_000 })),
    )
    .action((flags: ActFlags) =>
      act({ action: "resume", ...(flags.as !== undefined && { as: flags.as }) }, flags),
    );
  withJson(
    withTarget(bulk.command("follow <bulk>").description("follow a bulk to its end")),
  ).action(async (bulkId: string, flags: Flags) => {
    const signals = stopSignals();
    await onTarget(flags, (flotilla) => follow(flotilla, bulkId, { ...flags, signals }));
  });
  withJson(
    withTarget(bulk.command("stop <bulk>").description("stop a bulk; what it has done stays done")),
  ).action(stop);
}

function actCommand(bulk: Command, action: BulkAction, words: string = action): Command {
  const command = withJson(withTarget(bulk.command(words).description(descriptions[action])));
  return withTaskFilter(command, statusesOf[action])
    .option("--reason <text>", "the reason, for the audit")
    .option("--preview", "count what matches, and change nothing")
    .option("--yes", "don't ask for confirmation")
    .option("--no-wait", "return at once instead of following it to its end");
}

async function act(
  what: Omit<BulkRequest, "filter" | "reason">,
  { json, reason, preview, yes, wait, ...flags }: ActFlags,
): Promise<void> {
  const request: BulkRequest = {
    ...what,
    filter: taskFilterOf(flags),
    ...(reason !== undefined && { reason }),
  };
  // Listen for signals before the bulk is stored, so that an early Ctrl-C still prints its id.
  const signals = wait && !preview ? stopSignals() : undefined;
  await onTarget(flags, async (flotilla) => {
    if (preview || !yes) {
      const found = await flotilla.bulk.preview(request);
      if (preview) return showPreview(request, found, json);
      await confirmAct(request, found);
    }
    const begun = await flotilla.bulk.start(request);
    if (!json) print(`bulk ${oneLine(begun.bulkId, 100)}`);
    const pods = await ifAllowed<readonly PodInfo[] | undefined>(flotilla.pods(), undefined);
    const noPods = pods !== undefined && !pods.some((pod) => pod.status === "up");
    if (noPods) printNotice("no pod is up: the bulk begins when one leads");
    if (signals) return follow(flotilla, begun.bulkId, { signals, ...(json && { json }) });
    if (json) printJson(begun);
  });
}

function showPreview({ action }: BulkRequest, found: BulkPreview, json: true | undefined): void {
  if (json) return printJson(found);
  print(`${action} would be for ${matchedText(found)}`);
  for (const taskId of found.sample) print(`  ${oneLine(taskId, 100)}`);
  if (found.matched > found.sample.length) print(paint("dim", "  and more"));
}

function matchedText({ matched, isExact }: Pick<BulkPreview, "matched" | "isExact">): string {
  return isExact ? plural(matched, "task") : `${count(matched)}+ tasks`;
}

/** Asks for confirmation, with the number of tasks that match. */
function confirmAct({ action }: BulkRequest, found: BulkPreview): Promise<void> {
  return confirm({
    question: `${action} ${matchedText(found)}?`,
    refusal: `${action} would be for ${matchedText(found)}: add --yes to confirm, or --preview to see some`,
  });
}

/** Shows the progress of a bulk until it ends. A signal only ends the display; the bulk goes on. */
async function follow(
  flotilla: Operations,
  bulkId: string,
  { json, signals }: { json?: true; signals: StopSignals },
): Promise<void> {
  const goesOn = `the bulk goes on: follow it with \`flotilla bulk follow ${bulkId}\``;
  const shown = { lineOf, goesOn, signals };
  const ended = await showUntilEnded((options) => flotilla.bulk.follow(bulkId, options), shown);
  if (!ended) return;
  if (json) printJson(ended);
  else print(summaryOf(ended));
}

function lineOf(bulk: Bulk): string {
  const through = bulk.done + bulk.skipped + bulk.refused;
  if (bulk.lastTaskId === null) return "waiting for the leader to begin";
  return bulk.isExact ? bar(through, Math.max(through, bulk.matched)) : plural(through, "task");
}

function summaryOf({ state, done, skipped, refused }: Bulk): string {
  const parts = [
    `${plural(done, "task")} done`,
    ...(skipped > 0 ? [`${count(skipped)} skipped, because they had changed`] : []),
    ...(refused > 0 ? [`${count(refused)} refused`] : []),
  ];
  return `${oneLine(state, 40)}: ${parts.join(", ")}`;
}

async function list({
  json,
  cursor,
  limit,
  ...flags
}: Flags & { cursor?: string; limit: number }): Promise<void> {
  const page = await onTarget(flags, ({ bulk }) =>
    bulk.list({ limit, ...(cursor !== undefined && { cursor }) }),
  );
  if (json) return printJson(page);
  if (page.bulks.length === 0) return print("no bulks");
  const nowMs = systemClock.now();
  const heading = ["bulk", "action", "of", "state", "age", "matched", "done", "skipped", "refused"];
  const rows = page.bulks.map((each) => [
    oneLine(each.bulkId, 100),
    oneLine(each.action, 20),
    oneLine(filterText(each.filter), 60),
    oneLine(each.state, 20),
    ago(nowMs, each.createdAtMs),
    `${count(each.matched)}${each.isExact ? "" : "+"}`,
    count(each.done),
    count(each.skipped),
    count(each.refused),
  ]);
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 200)}`));
}

function filterText({ payload, ...filter }: TaskFilter): string {
  // A caller that may not see payloads gets a text in place of the values.
  const values = typeof payload === "object" ? Object.entries(payload) : [];
  return [
    ...Object.entries(filter).map(([name, value]) =>
      value === true ? name : `${name} ${[value].flat().join(" ")}`,
    ),
    ...values.map(([path, value]) => `payload.${path} ${JSON.stringify(value)}`),
  ].join(", ");
}

async function stop(bulkId: string, flags: Flags): Promise<void> {
  const bulk = await onTarget(flags, (flotilla) => flotilla.bulk.stop(bulkId));
  if (flags.json) return printJson(bulk);
  print(summaryOf(bulk));
}
