import type { Command } from "commander";
import type { AuditEntry, AuditListOptions } from "../../../audit/audit.ts";
import { sleep, systemClock } from "../../../base/clock.ts";
import { onTarget } from "../../connect.ts";
import { type TargetFlags, timeOf, withJson, withPage, withTarget } from "../../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../../output.ts";
import type { Operations } from "../../remote.ts";
import { stopSignals } from "../../signals.ts";

type Flags = TargetFlags & {
  json?: true;
  follow?: true;
  actor?: string;
  action?: string;
  subject?: string;
  since?: number;
  until?: number;
  cursor?: string;
  limit: number;
};

const pollMs = 1_000;
// A transaction that began before another may be committed after it.
const overlapMs = 30_000;
const pageEntries = 1_000;
const maxTextChars = 80;

export function auditCommand(program: Command): void {
  const audit = withJson(
    withTarget(program.command("audit").description("show who did what, newest first")),
  )
    .option("--actor <actor>", "only of this actor, such as key/web or cli/root")
    .option("--action <action>", "only this action, such as tasks.cancel")
    .option("--subject <id>", "only on the task, run, name or other thing with this id")
    .option(
      "--since <time>",
      "only from this time on, such as 2026-11-17 or 2026-11-17T09:30Z",
      timeOf,
    )
    .option("--until <time>", "only up to this time", timeOf)
    .option("--follow", "go on printing new entries, oldest first, until it is stopped")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla audit --action tasks.cancel
  $ flotilla audit --subject 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla audit --follow --json`,
    );
  withPage(audit, 50).action(show);
}

async function show({ json, follow: follows, cursor, limit, ...flags }: Flags): Promise<void> {
  const { actor, action, subject, since, until, ...target } = flags;
  const filter: AuditListOptions = {
    ...(actor !== undefined && { actor }),
    ...(action !== undefined && { action }),
    ...(subject !== undefined && { subject }),
    ...(since !== undefined && { sinceMs: since }),
    ...(until !== undefined && { untilMs: until }),
  };
  await onTarget(target, async ({ audit }) => {
    if (follows) return follow(audit, filter, limit, json === true);
    const page = await audit.list({ ...filter, limit, ...(cursor !== undefined && { cursor }) });
    if (json) return printJson(page);
    if (page.entries.length === 0) return print("no entries");
    print(columns(page.entries.map(toRow)));
    if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 200)}`));
  });
}

/** Prints the latest entries, then each new one once. */
async function follow(
  audit: Operations["audit"],
  filter: AuditListOptions,
  limit: number,
  json: boolean,
): Promise<void> {
  const stop = new AbortController();
  void stopSignals().received.then(() => stop.abort());
  /** Printed entries that a later look may find again, with their times. */
  const printed = new Map<string, number>();
  const printNew = (entries: readonly AuditEntry[]) => {
    for (const entry of entries.toReversed()) {
      if (printed.has(entry.id)) continue;
      printed.set(entry.id, entry.atMs);
      if (json) printJson(entry);
      else print(columns([toRow(entry)]));
    }
  };
  const first = await audit.list({ ...filter, limit });
  printNew(first.entries);
  let newestMs = first.entries[0]?.atMs ?? filter.sinceMs ?? 0;
  while (!stop.signal.aborted) {
    await sleep(systemClock, pollMs, stop.signal).catch(() => {});
    const found: AuditEntry[] = [];
    const sinceMs = Math.max(filter.sinceMs ?? 0, newestMs - overlapMs);
    let cursor: string | null = null;
    do {
      const page = await audit.list({
        ...filter,
        sinceMs,
        limit: pageEntries,
        ...(cursor !== null && { cursor }),
      });
      found.push(...page.entries);
      cursor = page.next;
    } while (cursor !== null && !stop.signal.aborted);
    // What is older than the first page wasn't asked for.
    const oldestMs = first.entries.at(-1)?.atMs ?? 0;
    printNew(found.filter(({ atMs }) => atMs >= oldestMs));
    newestMs = Math.max(newestMs, found[0]?.atMs ?? 0);
    for (const [id, atMs] of printed) if (atMs < newestMs - 2 * overlapMs) printed.delete(id);
  }
}

function toRow(entry: AuditEntry): string[] {
  const { atMs, actor, action, subject, filter, count, before, after, outcome, reason } = entry;
  const short = (value: unknown) => oneLine(JSON.stringify(value), maxTextChars);
  const change = before === null ? after : after === null ? before : [before, after];
  return [
    paint("dim", new Date(atMs).toISOString()),
    oneLine(actor, 60),
    paint("bold", oneLine(action, 40)),
    subject === null ? (filter === null ? "" : short(filter)) : oneLine(subject, maxTextChars),
    [
      ...(count === null || count === 1 ? [] : [`${count} changed`]),
      ...(change === null
        ? []
        : [Array.isArray(change) ? change.map(short).join(" → ") : short(change)]),
      ...(outcome === "done" ? [] : [outcome]),
      ...(reason === null ? [] : [oneLine(reason, maxTextChars)]),
    ].join(", "),
  ];
}
