import { FlotillaError } from "../base/errors.ts";
import { checkNumber, checkOptions, checkText } from "../base/options.ts";

/** What tenants may use. Callers that act for all tenants aren't bounded. */
export type QuotaConfig = {
  /** What each tenant may use. */
  perTenant?: TenantQuota;
  /** What single tenants may use, by name. What one leaves out is as in `perTenant`. */
  tenants?: Readonly<Record<string, TenantQuota>>;
};

/** `null`: no bound, whatever `perTenant` says. */
export type TenantQuota = {
  /** Requests in any minute, frames of sockets among them. Servers divide them evenly. */
  requestsPerMinute?: number | null;
  /** Sessions that exist, archived ones too. */
  sessions?: number | null;
  /** Turns under way at once, over all pods. */
  turnsAtOnce?: number | null;
  /** Bytes of all entries of its sessions, as JSON. */
  storedBytes?: number | null;
};

export type QuotaName = keyof TenantQuota;

/** The quotas of one tenant; undefined where there is none. */
export type ResolvedQuota = { readonly [Name in QuotaName]: number | undefined };

const ranges = {
  requestsPerMinute: { min: 1, max: 1_000_000_000 },
  sessions: { min: 0, max: 1_000_000_000 },
  turnsAtOnce: { min: 0, max: 1_000_000 },
  storedBytes: { min: 0, max: Number.MAX_SAFE_INTEGER },
} as const satisfies Record<QuotaName, { min: number; max: number }>;

export const quotaNames = Object.keys(ranges) as QuotaName[];
const maxNameChars = 500;
const maxTenants = 100_000;

/** Refuses invalid quotas. */
export function checkQuotas(quotas: QuotaConfig): void {
  const what = "server.quotas";
  checkOptions(what, quotas, ["perTenant", "tenants"]);
  const { perTenant, tenants } = quotas;
  if (perTenant !== undefined) checkQuota(`${what}.perTenant`, perTenant);
  if (tenants === undefined) return;
  if (typeof tenants !== "object" || tenants === null || Array.isArray(tenants))
    throw invalid(`${what}.tenants must be an object of quotas by the names of tenants`);
  const names = Object.keys(tenants);
  if (names.length > maxTenants)
    throw invalid(`${what}.tenants has ${names.length} tenants, and ${maxTenants} is the most`);
  for (const name of names) {
    checkText(`${what}.tenants: the name of a tenant`, name, { max: maxNameChars });
    checkQuota(`${what}.tenants[${JSON.stringify(name.slice(0, 80))}]`, tenants[name]!);
  }
}

function checkQuota(what: string, quota: TenantQuota): void {
  checkOptions(what, quota, quotaNames);
  for (const name of quotaNames) {
    const value = quota[name];
    if (value !== undefined && value !== null) checkNumber(`${what}.${name}`, value, ranges[name]);
  }
}

/** The quotas of a tenant. Its name may be anything, such as `__proto__`. */
export function quotaOf({ perTenant, tenants = {} }: QuotaConfig, tenant: string): ResolvedQuota {
  const own = Object.hasOwn(tenants, tenant) ? tenants[tenant] : undefined;
  const valueOf = (name: QuotaName) =>
    (own?.[name] === undefined ? perTenant?.[name] : own[name]) ?? undefined;
  return {
    requestsPerMinute: valueOf("requestsPerMinute"),
    sessions: valueOf("sessions"),
    turnsAtOnce: valueOf("turnsAtOnce"),
    storedBytes: valueOf("storedBytes"),
  };
}

/** The quotas of a tenant as they are shown; null where there is none. */
export type ShownQuota = { readonly [Name in QuotaName]: number | null };

export function shownQuota(config: QuotaConfig | undefined, tenant: string): ShownQuota {
  const quota = quotaOf(config ?? {}, tenant);
  return {
    requestsPerMinute: quota.requestsPerMinute ?? null,
    sessions: quota.sessions ?? null,
    turnsAtOnce: quota.turnsAtOnce ?? null,
    storedBytes: quota.storedBytes ?? null,
  };
}

/** Whether pods have to count what tenants use: a rate of requests is known to servers alone. */
export function needsCounts({ perTenant = {}, tenants = {} }: QuotaConfig = {}): boolean {
  return [perTenant, ...Object.values(tenants)].some(
    ({ sessions, turnsAtOnce, storedBytes }) =>
      (sessions ?? turnsAtOnce ?? storedBytes ?? undefined) !== undefined,
  );
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
