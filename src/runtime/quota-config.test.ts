import { describe, expect, test } from "vitest";
import { defineConfig } from "./config.ts";
import { needsCounts, type QuotaConfig, quotaOf, shownQuota } from "./quota-config.ts";

const nothing = {
  requestsPerMinute: undefined,
  sessions: undefined,
  turnsAtOnce: undefined,
  storedBytes: undefined,
};

describe("quotas in a config", () => {
  test.each<[unknown, string]>([
    [5, "server.quotas: its options must be an object, not 5"],
    [null, "server.quotas: its options must be an object, not null"],
    [{ perTennant: {} }, "unknown option `perTennant`, did you mean `perTenant`?"],
    [{ perTenant: { session: 5 } }, "did you mean `sessions`?"],
    [{ perTenant: [5] }, "server.quotas.perTenant: unknown option `0`"],
    [{ perTenant: { sessions: -1 } }, "server.quotas.perTenant.sessions must be a whole number"],
    [{ perTenant: { sessions: 1.5 } }, "server.quotas.perTenant.sessions must be a whole number"],
    [{ perTenant: { turnsAtOnce: "5" } }, "server.quotas.perTenant.turnsAtOnce must be"],
    [{ perTenant: { storedBytes: Number.NaN } }, "server.quotas.perTenant.storedBytes must be"],
    [{ perTenant: { storedBytes: Infinity } }, "server.quotas.perTenant.storedBytes must be"],
    [{ perTenant: { requestsPerMinute: 0 } }, "must be a whole number from 1 to"],
    [{ tenants: [] }, "server.quotas.tenants must be an object of quotas by the names of tenants"],
    [{ tenants: { "": {} } }, "the name of a tenant must be 1 to 500 characters"],
    [{ tenants: { "a\u0000": {} } }, "the name of a tenant must be 1 to 500 characters"],
    [{ tenants: { acme: 5 } }, 'server.quotas.tenants["acme"]: its options must be an object'],
    [{ tenants: { acme: { sessions: -1 } } }, 'server.quotas.tenants["acme"].sessions must be'],
  ])("are refused where they are nonsense: %j", (quotas, message) => {
    expect(() => defineConfig({ server: { quotas: quotas as QuotaConfig } })).toThrow(message);
  });

  test("of a single tenant go before those of all, and null takes one away", () => {
    const quotas: QuotaConfig = {
      perTenant: { sessions: 10, turnsAtOnce: 2 },
      tenants: { acme: { sessions: 100, requestsPerMinute: 5 }, free: { sessions: null } },
    };
    defineConfig({ server: { quotas } });
    expect(quotaOf(quotas, "acme")).toEqual({
      ...nothing,
      requestsPerMinute: 5,
      sessions: 100,
      turnsAtOnce: 2,
    });
    expect(quotaOf(quotas, "free")).toEqual({ ...nothing, turnsAtOnce: 2 });
    expect(quotaOf(quotas, "other")).toEqual({ ...nothing, sessions: 10, turnsAtOnce: 2 });
    expect(shownQuota(quotas, "free")).toEqual({
      requestsPerMinute: null,
      sessions: null,
      turnsAtOnce: 2,
      storedBytes: null,
    });
  });

  test("are found by the very name, also one that objects have of themselves", () => {
    const quotas = { tenants: { acme: { sessions: 0 } } };
    for (const tenant of ["__proto__", "constructor", "toString", "ACME", "acme "])
      expect(quotaOf(quotas, tenant)).toEqual(nothing);
    expect(quotaOf(quotas, "acme")).toEqual({ ...nothing, sessions: 0 });
  });

  test("make pods count only where one of sessions, turns or bytes is set", () => {
    expect(needsCounts(undefined)).toBe(false);
    expect(needsCounts({})).toBe(false);
    expect(needsCounts({ perTenant: { requestsPerMinute: 5, sessions: null } })).toBe(false);
    expect(needsCounts({ perTenant: { storedBytes: 0 } })).toBe(true);
    expect(needsCounts({ tenants: { acme: { turnsAtOnce: 1 } } })).toBe(true);
  });
});
