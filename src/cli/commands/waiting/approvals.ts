import type { Command } from "commander";
import { systemClock } from "../../../base/clock.ts";
import type { Approval } from "../../../runtime/approvals.ts";
import { onTarget } from "../../connect.ts";
import { type TargetFlags, withJson, withPage, withTarget } from "../../flags.ts";
import { ago, columns, oneLine, paint, print, printJson, printNotice } from "../../output.ts";

type Flags = TargetFlags & { json?: true; tenant?: string; cursor?: string; limit: number };

export function approvalsCommand(program: Command): void {
  const listing = withJson(
    withTarget(
      program
        .command("approvals")
        .description("list everything that waits for a person, the nearest deadline first"),
    ),
  )
    .option("--tenant <tenant>", "only of this tenant")
    .addHelpText(
      "after",
      `
These are runs and tasks that wait for a signal, and tool calls of sessions that wait to be approved or
for a signal.

Examples:
  $ flotilla approvals
  $ flotilla runs signal 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e approve '{"by":"ada"}'`,
    );
  withPage(listing, 50).action(list);
}

async function list({ json, tenant, cursor, limit, ...flags }: Flags): Promise<void> {
  const options = {
    limit,
    ...(tenant !== undefined && { tenant }),
    ...(cursor !== undefined && { cursor }),
  };
  const page = await onTarget(flags, (flotilla) => flotilla.approvals(options));
  if (json) return printJson(page);
  if (page.approvals.length === 0) print("nothing waits for a person");
  else {
    const heading = ["waits", "until", "what", "name", "id", "for"];
    const rows = page.approvals.map((each) => toRow(each, systemClock.now()));
    print(columns([heading.map((each) => paint("dim", each)), ...rows]));
  }
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 500)}`));
  if (!page.isWhole) {
    printNotice("so many wait for a time or a signal that some may be missing here");
  }
}

function toRow(approval: Approval, nowMs: number): string[] {
  const { what, id, name, sinceMs, untilMs, signal, calls } = approval;
  const waitsFor =
    signal === null
      ? calls.map((call) =>
          call.signal === undefined ? call.tool : `${call.tool}: ${call.signal}`,
        )
      : [signal];
  return [
    ago(nowMs, sinceMs),
    untilMs === null ? "" : new Date(untilMs).toISOString(),
    what,
    oneLine(name ?? "", 60),
    oneLine(id, 100),
    oneLine(waitsFor.join(", "), 200),
  ];
}
