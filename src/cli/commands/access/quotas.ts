import type { Command } from "commander";
import { onTarget } from "../../connect.ts";
import { type TargetFlags, withJson, withPage, withTarget } from "../../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../../output.ts";
import type { QuotaPage } from "../../remote.ts";
import { loadQuotas } from "../../settings.ts";

type Flags = TargetFlags & { json?: true; cursor?: string; limit: number };
type ShownTenant = QuotaPage["tenants"][number];

export function quotasCommand(program: Command): void {
  const quotas = withJson(
    withTarget(
      program.command("quotas").description("show what tenants use and may use, by their names"),
    ),
  )
    .argument("[tenant]", "only of this tenant")
    .addHelpText(
      "after",
      `
Quotas are set in the config, as \`server.quotas\`. Requests are counted by each server: only through one
(--url) are those of its last minute shown.

Examples:
  $ flotilla quotas
  $ flotilla quotas acme --url https://flotilla.example --json`,
    );
  withPage(quotas, 50).action(show);
}

async function show(
  tenant: string | undefined,
  { json, cursor, limit, ...target }: Flags,
): Promise<void> {
  const options = {
    limit,
    ...(tenant !== undefined && { tenant }),
    ...(cursor !== undefined && { cursor }),
  };
  const found = await onTarget(target, ({ quotas }) => quotas.list(options));
  const page = target.url === undefined ? await withLimits(found, target) : found;
  if (json) return printJson(page);
  if (page.tenants.length === 0)
    return print("no tenant is counted: set `server.quotas` in the config of the pods");
  const heading = ["", "requests a minute", "sessions", "turns at once", "stored bytes"];
  print(columns([heading.map((each) => paint("dim", each)), ...page.tenants.map(toRow)]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 500)}`));
}

/** The store has what tenants use; what they may use is in the config, if there is one here. */
async function withLimits(page: QuotaPage, target: TargetFlags): Promise<QuotaPage> {
  const config = await loadQuotas(target);
  if (!config) return page;
  const { shownQuota } = await import("../../../runtime/quota-config.ts");
  const tenants = page.tenants.map((each) => ({
    ...each,
    limits: shownQuota(config, each.tenant),
  }));
  return { ...page, tenants };
}

function toRow({ tenant, used, requestsHere, limits }: ShownTenant): string[] {
  const cell = (counted: number | undefined, bound: number | null | undefined) =>
    `${counted ?? "?"}${typeof bound === "number" ? ` of ${bound}` : ""}`;
  return [
    oneLine(tenant, 80),
    cell(requestsHere, limits?.requestsPerMinute),
    cell(used?.sessions, limits?.sessions),
    cell(used?.turnsAtOnce, limits?.turnsAtOnce),
    cell(used?.storedBytes, limits?.storedBytes),
  ];
}
