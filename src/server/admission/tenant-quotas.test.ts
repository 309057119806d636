import { describe, expect, test } from "vitest";
import { movableClock, type MovableClock } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import type { QuotaConfig } from "../../runtime/quota-config.ts";
import type { SessionView } from "../../sessions/service.ts";
import type { Caller } from "../auth/caller.ts";
import { createTenantQuotas, type Settle, type TenantQuotas } from "./tenant-quotas.ts";

const userOf = (tenant: string): Caller => ({
  kind: "user",
  tenant,
  user: "ada",
  verbs: new Set(["sessions:create", "sessions:write"]),
});
const acme = userOf("acme");
const admin: Caller = { kind: "server", tenant: "acme", verbs: new Set(["admin"]) };
const local: Caller = { kind: "local", tenant: "acme", verbs: new Set(["admin"]) };
const operator: Caller = {
  kind: "server",
  tenant: "acme",
  allTenants: true,
  verbs: new Set(["fleet:operate", "sessions:any"]),
};

/** What the store counts, shared by servers. */
function countedStore(clock: MovableClock) {
  const counts = new Map<string, { sessions: number; turnsAtOnce: number; storedBytes: number }>();
  const store = {
    reads: 0,
    servers: 1,
    isAway: false,
    /** Its answers don't come. */
    hangs: false,
    /** Sessions that exist, with what they do. */
    sessions: new Map<string, string>(),
    /** Messages that are stored. */
    said: new Set<string>(),
    counts,
    used(tenant: string) {
      const known = counts.get(tenant) ?? { sessions: 0, turnsAtOnce: 0, storedBytes: 0 };
      counts.set(tenant, known);
      return known;
    },
    refused: [] as string[],
    open: (config: QuotaConfig): TenantQuotas =>
      createTenantQuotas({
        config,
        counter: {
          async of(tenants) {
            store.reads++;
            if (store.isAway) throw new FlotillaError("store_unavailable", "away");
            if (store.hangs) await new Promise(() => {});
            return tenants.map((tenant) => ({ ...store.used(tenant) }));
          },
          announce: async () => store.servers,
          leave: async () => {},
        },
        sessions: {
          async get(_, sessionId) {
            const state = store.sessions.get(sessionId);
            if (state === undefined) throw new FlotillaError("not_found", "no session");
            return { state: { state } } as unknown as SessionView;
          },
          isStored: async (_, sessionId, id) => store.said.has(`${sessionId} ${id}`),
        },
        serverId: "server",
        clock,
        log: silentLogger,
        onRefused: ({ quota }) => store.refused.push(quota),
      }),
  };
  return store;
}

async function opened(config: QuotaConfig, servers = 1) {
  const clock = movableClock();
  const store = countedStore(clock);
  store.servers = servers;
  const quotas = store.open(config);
  await quotas.start();
  return { clock, store, quotas };
}

const begins = { begins: true };

describe("a quota of requests", () => {
  test("is never passed in any minute, says when to come back, and has room then", async () => {
    const { clock, quotas, store } = await opened({ perTenant: { requestsPerMinute: 10 } });
    for (let sent = 0; sent < 10; sent++) {
      quotas.request(acme);
      await clock.advance(1_000);
    }
    const refusal = errorOf(() => quotas.request(acme));
    expect(refusal).toMatchObject({
      code: "overloaded",
      details: { quota: "requestsPerMinute", limit: 10, used: 10 },
    });
    expect(refusal.message).toMatch(
      /^the tenant has sent all requests of its quota of 10 a minute: send this again in \d+ s, or have `server.quotas` raised$/,
    );
    expect(store.refused).toEqual(["requestsPerMinute"]);
    await clock.advance(refusal.retryAfterMs! - 1);
    expect(errorOf(() => quotas.request(acme)).code).toBe("overloaded");
    await clock.advance(1);
    quotas.request(acme);
  });

  test("counts no refused request, so that a tenant that goes on sending gets its share", async () => {
    const { clock, quotas } = await opened({ perTenant: { requestsPerMinute: 6 } });
    const sentMs: number[] = [];
    // Not at the beginning of any five seconds.
    clock.jump(4_900);
    for (let tries = 0; tries < 3_000; tries++) {
      try {
        quotas.request(acme);
        sentMs.push(clock.monotonic());
      } catch {
        // It comes back at once.
      }
      clock.jump(100);
    }
    expect(sentMs.length).toBeGreaterThanOrEqual(6 * 4);
    // No minute has more than six.
    for (const [at, ms] of sentMs.entries())
      expect((sentMs[at + 6] ?? Infinity) - ms).toBeGreaterThanOrEqual(60_000);
  });

  test("of one tenant leaves others alone, and callers of all tenants are not bounded", async () => {
    const { quotas } = await opened({ perTenant: { requestsPerMinute: 1 } });
    quotas.request(acme);
    expect(errorOf(() => quotas.request(acme)).code).toBe("overloaded");
    quotas.request(userOf("other"));
    for (let sent = 0; sent < 10; sent++)
      for (const caller of [admin, local, operator]) quotas.request(caller);
    expect([quotas.requestsOf("acme"), quotas.requestsOf("other")]).toEqual([1, 1]);
  });

  test("is divided among the servers that are up, as they come and go", async () => {
    const { clock, store, quotas } = await opened({ perTenant: { requestsPerMinute: 10 } }, 3);
    const admitted = () => {
      for (let sent = 0; ; sent++) {
        try {
          quotas.request(acme);
        } catch {
          return sent;
        }
      }
    };
    expect(admitted()).toBe(3);
    store.servers = 1;
    await clock.advance(3_000);
    expect(admitted()).toBe(7);
    store.servers = 100;
    await clock.advance(70_000);
    expect(admitted()).toBe(1);
  });

  test("keeps what it knows of few tenants, the quietest of which it forgets", async () => {
    const { quotas } = await opened({ perTenant: { requestsPerMinute: 1 } });
    quotas.request(acme);
    for (let name = 0; name < 10_001; name++) quotas.request(userOf(`tenant-${name}`));
    expect(quotas.requestsOf("acme")).toBe(0);
    expect(quotas.requestsOf("tenant-1")).toBe(1);
  });
});

describe("a quota of sessions", () => {
  const config = { perTenant: { sessions: 3 } };

  test("refuses one more than there may be, with how many there are and what to do", async () => {
    const { store, quotas } = await opened(config);
    store.used("acme").sessions = 3;
    await expect(quotas.session(acme, undefined)).rejects.toMatchObject({
      code: "quota_exceeded",
      message:
        "the tenant has 3 sessions, and its quota is 3: delete some that are no longer needed, or have `server.quotas` raised",
      details: { quota: "sessions", limit: 3, used: 3 },
      retryAfterMs: 60_000,
    });
    expect(store.refused).toEqual(["sessions"]);
    (await quotas.session(userOf("other"), undefined))!();
    for (const caller of [admin, local, operator])
      expect(quotas.session(caller, undefined)).toBeUndefined();
  });

  test("admits as many at once as there is room for, and not one more", async () => {
    const { store, quotas } = await opened(config);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 10 }, async () => {
        const settle = await quotas.session(acme, undefined);
        await Promise.resolve();
        store.used("acme").sessions++;
        settle!();
      }),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
    expect(store.used("acme").sessions).toBe(3);
  });

  test("gives the room back of what was admitted and not stored", async () => {
    const { store, quotas } = await opened({ perTenant: { sessions: 1 } });
    const settle = await quotas.session(acme, undefined);
    const waiting = quotas.session(acme, undefined) as Promise<Settle>;
    settle!();
    (await waiting)();
    store.used("acme").sessions = 1;
    await expect(quotas.session(acme, undefined)).rejects.toMatchObject({ code: "quota_exceeded" });
  });

  test("counts what is under way, however long it takes to be stored", async () => {
    const { clock, quotas } = await opened({ perTenant: { sessions: 1 } });
    const settle = await quotas.session(acme, undefined);
    const outcome = Promise.resolve(quotas.session(acme, undefined)).catch(({ code }) => code);
    await clock.advance(10_000);
    expect(await outcome).toBe("quota_exceeded");
    settle!();
  });

  test("knows of a deleted session after a moment, and asks little of the store meanwhile", async () => {
    const { clock, store, quotas } = await opened(config);
    store.used("acme").sessions = 3;
    for (let tries = 0; tries < 50; tries++)
      await expect(quotas.session(acme, undefined)).rejects.toThrow("its quota is 3");
    expect(store.reads).toBe(1);
    store.used("acme").sessions = 2;
    await clock.advance(300);
    (await quotas.session(acme, undefined))!();
  });

  test("lets a session be created again that exists", async () => {
    const { store, quotas } = await opened(config);
    store.used("acme").sessions = 3;
    store.sessions.set("known", "idle");
    (await quotas.session(acme, "known"))!();
    await expect(quotas.session(acme, "unknown")).rejects.toMatchObject({ code: "quota_exceeded" });
  });

  test("is passed by at most an eighth, or by one for each other server, where several admit", async () => {
    for (const [servers, sessions] of [
      [2, 10],
      [2, 800],
      [5, 3],
      [5, 400],
    ] as const) {
      const clock = movableClock();
      const store = countedStore(clock);
      store.servers = servers;
      const fleet = Array.from({ length: servers }, () => store.open({ perTenant: { sessions } }));
      for (const each of fleet) await each.start();
      // Each has read the store while it was empty, and uses that reading last.
      for (const each of fleet) (await each.session(acme, undefined))!();
      for (const each of fleet) {
        for (let tries = 0; tries < 2 * sessions; tries++) {
          try {
            const settle = await each.session(acme, undefined);
            store.used("acme").sessions++;
            settle!();
          } catch {
            break;
          }
        }
      }
      const over = store.used("acme").sessions - sessions;
      expect(over).toBeGreaterThanOrEqual(0);
      expect(over).toBeLessThanOrEqual(Math.max(servers - 1, sessions / 8));
    }
  });

  test("reads the store now and then, not for every session, while there is room", async () => {
    const { clock, store, quotas } = await opened({ perTenant: { sessions: 1_000 } });
    for (let made = 0; made < 999; made++) (await quotas.session(acme, undefined))!();
    expect(store.reads).toBe(1);
    await clock.advance(2_001);
    (await quotas.session(acme, undefined))!();
    expect(store.reads).toBe(2);
  });

  test("refuses nothing where the store can't be read: what follows needs it too", async () => {
    const { store, quotas } = await opened(config);
    store.isAway = true;
    expect(await quotas.session(acme, undefined)).toBeTypeOf("function");
  });
});

describe("a quota of turns", () => {
  const config = { perTenant: { turnsAtOnce: 2 } };

  test("refuses a message that would begin one more, and passes when one has ended", async () => {
    const { clock, store, quotas } = await opened(config);
    store.used("acme").turnsAtOnce = 2;
    store.sessions.set("idle", "idle");
    await expect(quotas.write(acme, "idle", begins)).rejects.toMatchObject({
      code: "overloaded",
      message:
        "2 turns of the tenant are under way, and its quota is 2 at once: send this again when one has ended, or have `server.quotas` raised",
      details: { quota: "turnsAtOnce", limit: 2, used: 2 },
      retryAfterMs: 2_000,
    });
    store.used("acme").turnsAtOnce = 1;
    await clock.advance(2_000);
    (await quotas.write(acme, "idle", begins))!();
  });

  test("lets a message through to a session that is in a turn: it begins no other", async () => {
    const { store, quotas } = await opened(config);
    store.used("acme").turnsAtOnce = 2;
    for (const state of ["catching_up", "waiting"]) {
      store.sessions.set("busy", state);
      (await quotas.write(acme, "busy", begins))!();
    }
    for (const state of ["idle", "compacting"]) {
      store.sessions.set("busy", state);
      await expect(quotas.write(acme, "busy", begins)).rejects.toMatchObject({
        code: "overloaded",
      });
    }
  });

  test("bounds no message that asks no agent", async () => {
    const { store, quotas } = await opened(config);
    store.used("acme").turnsAtOnce = 2;
    expect(quotas.write(acme, "idle", { begins: false })).toBeUndefined();
  });
});

describe("while the store is away, a quota", () => {
  const perTenant = { turnsAtOnce: 2, sessions: 3, storedBytes: 1_000, requestsPerMinute: 100 };

  test("refuses no turn, however many begin, and reads seldom", async () => {
    const { clock, store, quotas } = await opened({ perTenant });
    store.sessions.set("idle", "idle");
    store.used("acme").turnsAtOnce = 1;
    (await quotas.write(acme, "idle", begins))!();
    const readsBefore = store.reads;
    store.isAway = true;
    await clock.advance(2_001);
    for (let tries = 0; tries < 600; tries++) {
      (await quotas.write(acme, "idle", begins))!();
      (await quotas.session(acme, undefined))!();
      clock.jump(100);
    }
    expect(store.refused).toEqual([]);
    // One at once, some soon, and then one every four seconds of the minute.
    expect(store.reads - readsBefore).toBeLessThanOrEqual(20);
    expect(store.reads - readsBefore).toBeGreaterThanOrEqual(15);

    store.isAway = false;
    store.used("acme").turnsAtOnce = 2;
    clock.jump(4_000);
    // The call that has it read doesn't wait for it.
    (await quotas.write(acme, "idle", begins))!();
    await clock.advance(0);
    await expect(quotas.write(acme, "idle", begins)).rejects.toMatchObject({
      details: { quota: "turnsAtOnce", used: 2 },
    });
  });

  test("of sessions or bytes that was used up stays so, and is refused at once", async () => {
    const { clock, store, quotas } = await opened({ perTenant });
    store.used("acme").sessions = 3;
    store.used("other").storedBytes = 1_000;
    const other = userOf("other");
    const refusals = async () => {
      await expect(quotas.session(acme, undefined)).rejects.toMatchObject({
        code: "quota_exceeded",
        details: { quota: "sessions", used: 3 },
      });
      await expect(quotas.write(other, "idle", begins)).rejects.toMatchObject({
        code: "quota_exceeded",
        details: { quota: "storedBytes", used: 1_000 },
      });
    };
    await refusals();
    store.isAway = true;
    await clock.advance(60_000);
    await refusals();
    store.sessions.set("known", "idle");
    (await quotas.session(acme, "known"))!();
    (await quotas.write(acme, "known", begins))!();
  });

  test("has a call wait for a store that doesn't answer for two seconds, and no further call", async () => {
    const { clock, store, quotas } = await opened({ perTenant });
    store.hangs = true;
    let isAdmitted = false;
    const first = Promise.resolve(quotas.write(acme, "idle", begins)).then((settle) => {
      isAdmitted = true;
      settle!();
    });
    await clock.advance(1_999);
    expect(isAdmitted).toBe(false);
    await clock.advance(1);
    await first;
    for (let seconds = 0; seconds < 60; seconds++) {
      await clock.advance(1_000);
      expect(quotas.write(userOf("other"), "idle", begins)).toBeTypeOf("function");
    }
    store.hangs = false;
  });

  test("of requests is as ever", async () => {
    const { store, quotas } = await opened({ perTenant: { requestsPerMinute: 1 } });
    store.isAway = true;
    quotas.request(acme);
    expect(errorOf(() => quotas.request(acme)).code).toBe("overloaded");
  });
});

describe("a quota of bytes", () => {
  test("refuses what would store more once it is reached, also in a session that is in a turn", async () => {
    const { store, quotas } = await opened({ perTenant: { storedBytes: 1_000, turnsAtOnce: 0 } });
    store.used("acme").storedBytes = 999;
    (await quotas.write(acme, "any", { begins: false }))!();
    store.used("other").storedBytes = 1_234;
    store.sessions.set("busy", "catching_up");
    const refusal = {
      code: "quota_exceeded",
      message:
        "the sessions of the tenant store 1234 bytes, and its quota is 1000: delete some that are no longer needed, or have `server.quotas` raised",
      details: { quota: "storedBytes", limit: 1_000, used: 1_234 },
    };
    const other = userOf("other");
    await expect(quotas.write(other, "busy", begins)).rejects.toMatchObject(refusal);
    await expect(quotas.session(other, undefined)).rejects.toMatchObject(refusal);
  });

  test("admits what is stored already, which adds nothing to it", async () => {
    const { store, quotas } = await opened({ perTenant: { storedBytes: 1_000 } });
    store.used("acme").storedBytes = 1_000;
    store.said.add("talk first");
    (await quotas.write(acme, "talk", { begins: true, id: "first" }))!();
    const next = quotas.write(acme, "talk", { begins: true, id: "second" });
    await expect(next).rejects.toMatchObject({ code: "quota_exceeded" });
  });
});

function errorOf(act: () => void): FlotillaError {
  try {
    act();
  } catch (error) {
    return error as FlotillaError;
  }
  throw new Error("nothing was refused");
}
