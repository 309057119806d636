import process from "node:process";
import { type Command, Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Redrive, Selection } from "../../dead-letters/redrive.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { onStore } from "../connect.ts";
import { number, type StoreFlags, withJson, withStore } from "../flags.ts";
import { ago, columns, oneLine, paint, print, printJson } from "../output.ts";
import { bar, plural, startProgress } from "../progress.ts";
import { type StopSignals, stopSignals } from "../signals.ts";
import { type SelectFlags, selectionOf, withSelection } from "../selection.ts";

type Flags = StoreFlags & { json?: true };
type RedriveFlags = SelectFlags & { wait: boolean; maxStep?: number };

const interrupted = 130;

export function redriveCommands(dlq: Command): void {
  withSelection(
    withJson(
      withStore(
        dlq
          .command("redrive [group|id]")
          .description(
            "start failed tasks over: one, then more and more, until the error comes back",
          ),
      ),
    ),
  )
    .addOption(
      new Option("--max-step <number>", "how many at once at most (default: 256)").argParser(
        number("--max-step", { min: 1, max: 1_000 }),
      ),
    )
    .option("--no-wait", "don't follow it to its end")
    .action(redrive);
  withJson(withStore(dlq.command("redrives").description("list redrives, newest first"))).action(
    redrives,
  );
  withJson(
    withStore(dlq.command("follow <redrive>").description("follow a redrive to its end")),
  ).action(async (redriveId: string, flags: Flags) => {
    const signals = stopSignals();
    await onStore(storeOf(flags), (flotilla) => follow(flotilla, redriveId, { ...flags, signals }));
  });
  withJson(
    withStore(
      dlq
        .command("cancel <redrive>")
        .description("have a redrive take no more; what it has taken goes on"),
    ),
  ).action(cancel);
}

function storeOf({ config, store }: StoreFlags): StoreFlags {
  return { ...(config && { config }), ...(store && { store }) };
}

async function redrive(given: string | undefined, flags: RedriveFlags): Promise<void> {
  const selection = selectionOf(given, flags);
  const { maxStep, json, wait } = flags;
  // Whoever has had enough before there is something to follow gets an answer all the same.
  const signals = wait ? stopSignals() : undefined;
  await onStore(storeOf(flags), async (flotilla) => {
    const { deadLetters } = flotilla;
    const begun = await deadLetters.redrive(selection, {
      ...(maxStep !== undefined && { maxStep }),
    });
    if (!json) print(`redrive ${begun.redriveId}`);
    const pods = await flotilla.pods();
    if (!pods.some((pod) => pod.status === "up")) {
      process.stderr.write("flotilla: no pod is up; the redrive begins when one leads\n");
    }
    if (signals) return follow(flotilla, begun.redriveId, { signals, ...(json && { json }) });
    if (json) printJson(begun);
  });
}

/** Shows how far a redrive is until it has ended, or until somebody has seen enough: it goes on without. */
async function follow(
  flotilla: Flotilla,
  redriveId: string,
  { json, signals }: { json?: true; signals: StopSignals },
): Promise<void> {
  const progress = startProgress();
  const enough = new AbortController();
  void signals.asked.then(() => enough.abort());
  let ended: Redrive;
  try {
    ended = await flotilla.deadLetters.followRedrive(redriveId, {
      signal: enough.signal,
      onProgress: (each) => progress.show(lineOf(each)),
    });
  } catch (error) {
    if (!enough.signal.aborted || !hasCode(error, "cancelled")) throw error;
    process.stderr.write(`flotilla: it goes on; see \`flotilla dlq follow ${redriveId}\`\n`);
    process.exitCode = interrupted;
    return;
  } finally {
    progress.end();
  }
  if (json) printJson(ended);
  else print(summaryOf(ended));
  if (ended.state !== "stopped") return;
  throw new FlotillaError("task_failed", `the redrive stopped: ${ended.reason?.message ?? ""}`, {
    details: { redriveId, ...ended.reason },
  });
}

function lineOf({ taken, remaining, open, stepSize, state }: Redrive): string {
  if (remaining === null && state === "running") return "waiting for the leader to begin";
  const step = open > 0 ? `, ${open} of a step of ${stepSize} still run` : "";
  const more = state === "stopping" ? ", and it takes no more" : "";
  return `${bar(taken - open, taken + (remaining ?? 0))}${step}${more}`;
}

function summaryOf({ taken, succeeded, failed, failedOtherwise, gone, state }: Redrive): string {
  if (taken === 0 && state === "done") {
    return "it took nothing: there is no failed task of that kind (any more)";
  }
  const parts = [
    `${plural(taken, "task")} started over`,
    `${succeeded} succeeded`,
    ...(failed > 0 ? [`${failed} failed as before`] : []),
    ...(failedOtherwise > 0 ? [`${failedOtherwise} failed with another error`] : []),
    ...(gone > 0 ? [`${gone} cancelled or deleted`] : []),
  ];
  return `${state}: ${parts.join(", ")}`;
}

async function redrives(flags: Flags): Promise<void> {
  const page = await onStore(storeOf(flags), ({ deadLetters }) => deadLetters.redrives());
  if (flags.json) return printJson(page);
  const found = page.redrives;
  if (found.length === 0) return print("no redrives");
  const nowMs = systemClock.now();
  const heading = ["redrive", "state", "of", "age", "started over", "succeeded", ""];
  const rows = found.map((each) => [
    each.redriveId,
    each.state,
    oneLine(selectionText(each.selection), 60),
    ago(nowMs, each.createdAtMs),
    `${each.taken}${each.remaining ? ` of ${each.taken + each.remaining}` : ""}`,
    String(each.succeeded),
    paint("dim", oneLine(each.reason?.message ?? "", 60)),
  ]);
  print(columns([heading.map((each) => paint("dim", each)), ...rows]));
}

function selectionText({ group, taskId, name }: Selection): string {
  return group ?? taskId ?? (name === undefined ? "all" : `--name ${name}`);
}

async function cancel(redriveId: string, flags: Flags): Promise<void> {
  const found = await onStore(storeOf(flags), ({ deadLetters }) =>
    deadLetters.cancelRedrive(redriveId),
  );
  if (flags.json) return printJson(found);
  print(`redrive ${redriveId} takes no more; ${plural(found.open, "task")} of it still run`);
}
