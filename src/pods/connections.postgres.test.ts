import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import { temporaryDatabase } from "../store/contract/kinds.ts";
import { planning } from "../store/contract/planning.ts";
import type { Database } from "../store/database.ts";
import { openForHeartbeat, openStore } from "../store/open.ts";
import { postgresDialect } from "../store/postgres/dialect.ts";
import { emptyLiveness, type Liveness, observe, silentPods } from "./liveness.ts";
import { beat, readPods, toPodSeen } from "./sql.ts";

let url: string;
let remove: () => Promise<void>;
let opened: Database[];
beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  await (await openStore(url)).close();
  opened = [];
});
afterEach(async () => {
  await Promise.all(opened.map((database) => database.close()));
  await remove();
});

async function open(at = url): Promise<Database> {
  const database = await openForHeartbeat({ store: at }, { heartbeatMs: 1_000 });
  opened.push(database);
  return database;
}

/** One beat, and what it sees of the other pods. */
async function beatOn(database: Database, podId: string) {
  const [, rows] = await database.write([beat(podId, "{}", 0), readPods()]);
  return rows!.map(toPodSeen);
}

async function asked(text: string, at = url): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(at);
  await client.connect();
  try {
    return (await client.query(text)).rows as Record<string, unknown>[];
  } finally {
    await client.end();
  }
}

describe("the connection that a pod beats on", () => {
  test("is in its row, and is seen to end", async () => {
    const [other, observer] = [await open(), await open()];
    const [own] = await beatOn(other, "other");
    const backends = await asked(
      "select pid from pg_stat_activity where application_name = 'flotilla'",
    );
    expect(backends.map(({ pid }) => pid)).toContain(own!.connection!.id);
    const seen = async () => {
      const pods = await beatOn(observer, "observer");
      return pods.find(({ podId }) => podId === "other")!;
    };
    expect(await seen()).toMatchObject({ connection: { ...own!.connection, isOpen: true } });
    await other.close();
    await until("its end", async () => (await seen()).connection?.isOpen === false);
    expect((await seen()).connection).toEqual({ id: own!.connection!.id, isOpen: false });
  });

  test("is another one after the server has ended it, and its pod isn't taken for dead", async () => {
    const limits = { heartbeatMs: 1_000, deadAfterMs: 600_000, gapMs: 3_000 };
    const [other, observer] = [await open(), await open()];
    let liveness: Liveness = emptyLiveness;
    let atMs = 0;
    const silent = async () => {
      const pods = await beatOn(observer, "observer");
      const connectionId = pods.find(({ podId }) => podId === "observer")!.connection?.id;
      liveness = observe(liveness, { atMs: (atMs += 1_000), pods, connectionId }, limits);
      return silentPods(liveness, limits).map(({ podId }) => podId);
    };
    const [first] = await beatOn(other, "other");
    expect(await silent()).toEqual([]);
    await asked(`select pg_terminate_backend(${first!.connection!.id})`);
    await until("its end", async () => {
      const rows = await asked(
        `select 1 from pg_stat_activity where pid = ${first!.connection!.id}`,
      );
      return rows.length === 0;
    });
    expect(await silent()).toEqual([]);
    expect(await silent()).toEqual([]);
    // The driver may notice the end of its connection by this beat alone.
    await beatOn(other, "other").catch(() => beatOn(other, "other"));
    expect(await silent()).toEqual([]);
    expect(liveness.pods.get("other")!.connection).toMatchObject({ isOpen: true });
    expect(liveness.pods.get("other")!.connection!.id).not.toBe(first!.connection!.id);
    // Were there no beat, this many of the observer's would be enough.
    await other.close();
    await until("its end", async () => (await silent()).includes("other"));
    expect(liveness.pods.get("other")!.silentMs).toBeLessThan(limits.deadAfterMs);
  });

  test("isn't stored by any other connection than that of a heartbeat", async () => {
    const database = await openStore(url);
    opened.push(database);
    const [pod] = await beatOn(database, "pod");
    expect(pod).not.toHaveProperty("connection");
  });

  test("isn't stored for a role that may not see which connections there are", async () => {
    const role = `blind_${new URL(url).pathname.slice(1)}`;
    await asked(`create role ${role} login;
      grant usage on schema flotilla to ${role};
      grant all on all tables in schema flotilla to ${role};
      revoke select on pg_stat_activity from public`);
    const blind = new URL(url);
    blind.username = role;
    const observer = await open();
    const database = await open(blind.href);
    expect((await beatOn(database, "blind"))[0]).toMatchObject({ podId: "blind", beat: 1 });
    expect((await beatOn(database, "blind"))[0]).toMatchObject({ podId: "blind", beat: 2 });
    const pods = await beatOn(observer, "observer");
    expect(pods.find(({ podId }) => podId === "blind")).not.toHaveProperty("connection");
    expect(pods.find(({ podId }) => podId === "observer")).toHaveProperty("connection");
    // What was seen may be forbidden later. That costs one beat.
    await asked("grant select on pg_stat_activity to public");
    const later = await open(blind.href);
    const own = async () => (await beatOn(later, "blind")).find(({ podId }) => podId === "blind");
    expect(await own()).toHaveProperty("connection");
    await asked("revoke select on pg_stat_activity from public");
    await expect(own()).rejects.toMatchObject({ code: "store_read_only" });
    expect(await own()).not.toHaveProperty("connection");
    await asked(`drop owned by ${role}; drop role ${role}`);
  });
});

describe("reading pods with their connections", () => {
  const planOf = planning([
    "insert into flotilla.pod (pod_id) select 'pod ' || n from generate_series(1, 100) n",
    "analyze flotilla.pod",
  ]);

  test("looks at the server's connections once, and not for each pod", async () => {
    const dialect = postgresDialect({ schema: "flotilla", seesConnections: true });
    const plan = await planOf(readPods(), dialect);
    expect(plan).toMatch(/hashed SubPlan/);
    expect(plan.match(/Function Scan on pg_stat_get_activity/g)).toHaveLength(1);
    expect(plan).not.toMatch(/pg_authid|pg_database/);
  });
});
