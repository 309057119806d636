import type { Flotilla } from "../../../runtime/connect.ts";
import { needsCounts, shownQuota } from "../../../runtime/quota-config.ts";
import type { TenantQuotas } from "../../admission/tenant-quotas.ts";
import { heldTenant } from "../../auth/caller.ts";
import { route, type Route } from "../../route.ts";
import { withoutUndefined } from "../tasks.ts";
import { quotaSpecs } from "./quotas.schema.ts";

type QuotaRouteParts = {
  flotilla: Pick<Flotilla, "quotas">;
  quotas?: Pick<TenantQuotas, "config" | "requestsOf" | "servers"> | undefined;
};

/** What tenants use, and what they may use. */
export function quotaRoutes({ flotilla, quotas }: QuotaRouteParts): Route[] {
  const isCounted = needsCounts(quotas?.config);
  return [
    route(quotaSpecs.list).to(async ({ caller, query }) => {
      const tenant = heldTenant(caller, query.tenant);
      const page = await flotilla.quotas.list(withoutUndefined({ ...query, tenant }));
      const tenants = page.tenants.map(({ tenant: name, used }) => ({
        tenant: name,
        used: isCounted ? used : null,
        requestsHere: quotas?.requestsOf(name) ?? 0,
        limits: shownQuota(quotas?.config, name),
      }));
      return { status: 200, body: { tenants, servers: quotas?.servers ?? 1, next: page.next } };
    }),
  ];
}
