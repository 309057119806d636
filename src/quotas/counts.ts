import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Database, Row } from "../store/database.ts";
import {
  announceServer,
  countServers,
  dropServers,
  listCounts,
  readCounts,
  removeServer,
} from "./sql.ts";

/** What the sessions of a tenant come to. */
export type TenantCounts = {
  /** Sessions that exist, archived ones too. */
  readonly sessions: number;
  /** Turns under way, over all pods. */
  readonly turnsAtOnce: number;
  /** The bytes of all entries, as JSON. */
  readonly storedBytes: number;
};

export type CountedTenant = { readonly tenant: string; readonly used: TenantCounts };

export type CountedPage = {
  readonly tenants: readonly CountedTenant[];
  /** The cursor of the next page; null if this is the last. */
  readonly next: string | null;
};

export type CountedListOptions = {
  /** This tenant alone, counted or not. */
  tenant?: string;
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
};

/**
 * What tenants use, as the store has counted it. Pods count while their config has a quota of sessions,
 * turns or bytes.
 */
export type TenantCounter = {
  /** The counts of these tenants, in their order. */
  of(tenants: readonly string[]): Promise<TenantCounts[]>;
  /** A page of tenants and their counts, by name. */
  list(options?: CountedListOptions): Promise<CountedPage>;
  /** Says that a server is up, and returns how many are. */
  announce(serverId: string): Promise<number>;
  /** The server stops. */
  leave(serverId: string): Promise<void>;
};

const none: TenantCounts = { sessions: 0, turnsAtOnce: 0, storedBytes: 0 };
const maxNameChars = 500;
// Several times as long as between two announcements.
const silentMs = 10_000;

export function createTenantCounter({ database }: { database: Database }): TenantCounter {
  const of = async (tenants: readonly string[]): Promise<TenantCounts[]> => {
    const found = new Map<string, TenantCounts>();
    for (const row of await database.read(readCounts(tenants)))
      found.set(row["tenant"] as string, toCounts(row));
    return tenants.map((tenant) => found.get(tenant) ?? none);
  };

  return {
    of,
    async list(options = {}) {
      checkOptions("quotas.list", options, ["tenant", "cursor", "limit"]);
      const { tenant, cursor = "", limit = 50 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (cursor !== "") checkText("cursor", cursor, { max: maxNameChars });
      if (tenant !== undefined) {
        checkText("tenant", tenant, { max: maxNameChars });
        const [used] = await of([tenant]);
        return { tenants: [{ tenant, used: used! }], next: null };
      }
      const found = await database.read(listCounts(cursor, limit + 1), { cold: true });
      const tenants = found
        .slice(0, limit)
        .map((row) => ({ tenant: row["tenant"] as string, used: toCounts(row) }));
      const { items, hasMore } = fitPage(tenants, found.length > limit);
      return { tenants: items, next: hasMore ? items.at(-1)!.tenant : null };
    },
    async announce(serverId) {
      const statements = [announceServer(serverId), dropServers(silentMs), countServers()];
      const [, , counted] = await database.write(statements, { lossy: true });
      return Number(counted![0]!["servers"]);
    },
    async leave(serverId) {
      await database.write([removeServer(serverId)], { lossy: true });
    },
  };
}

/** Pods that are upgraded one by one may not all count: a difference can be below zero until it is corrected. */
function toCounts(row: Row): TenantCounts {
  return {
    sessions: Math.max(0, Number(row["sessions"])),
    turnsAtOnce: Math.max(0, Number(row["turns"])),
    storedBytes: Math.max(0, Number(row["bytes"])),
  };
}
