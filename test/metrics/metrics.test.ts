import { fork } from "node:child_process";
import { once } from "node:events";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { connect, type Flotilla, type Pod, startPod, task, throttle } from "flotilla";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { built } from "../built.ts";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { createApp } from "../../src/server/app.ts";
import { listen, type ListeningServer } from "../../src/server/serve.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";
import { parseExposition, valueOf } from "./exposition.ts";

/** Another program at the same database, with a connection of its own. */
type Other = { run(text: string): Promise<unknown>; close(): Promise<void> };
type Place = { url: string; prefix: string; other(): Promise<Other>; remove(): Promise<void> };

const sqlite = async (): Promise<Place> => {
  const { path, remove } = temporaryFile();
  const other = async (): Promise<Other> => {
    const db = new DatabaseSync(path, { timeout: 30_000 });
    return { run: async (text) => db.exec(text), close: async () => db.close() };
  };
  return { url: `sqlite:${path}`, prefix: "flotilla_", other, remove };
};
const postgres = async (): Promise<Place> => {
  const { url, remove } = await temporaryDatabase();
  const other = async (): Promise<Other> => {
    const client = new pg.Client(url);
    await client.connect();
    return { run: async (text) => client.query(text), close: () => client.end() };
  };
  return { url, prefix: "flotilla.", other, remove };
};

const podFile = fileURLToPath(new URL("./pod-process.ts", import.meta.url));
const mail = task("mail").handle(async () => {});
const broken = task("broken").handle({ attempts: 1 }, async () => {
  throw new Error("as ordered");
});
const endless = task("endless").handle(async () => {});
const api = throttle("api");
const call = task("call").handle({ throttle: api, attempts: 1 }, async ({ input }) => {
  if (input === "refused") throw Object.assign(new Error("too many"), { status: 429 });
});

type Scraped = {
  readonly flotilla: Flotilla;
  readonly metrics: ReturnType<typeof createMetrics>;
  readonly place: Place;
  readonly other: Other;
  value(series: string, ...labels: string[]): Promise<number>;
  atLeast(least: number, series: string, ...labels: string[]): Promise<unknown>;
};

function onStore(name: string, open: () => Promise<Place>, more: (now: () => Scraped) => void) {
  const isPostgres = name === "Postgres";
  let place: Place;
  let other: Other;
  let flotilla: Flotilla;
  let pod: Pod | undefined;
  let server: ListeningServer;
  let metrics: ReturnType<typeof createMetrics>;

  beforeEach(async () => {
    place = await open();
    pod = undefined;
    metrics = createMetrics({ pod: () => pod, slots: 7, names: ["mail", "broken", "endless"] });
    flotilla = connect(place.url, { onEvent: metrics.observe });
    await flotilla.ping();
    other = await place.other();
    const parts = { flotilla, apiKeys: [], metrics, isStopping: () => false, log: silentLogger };
    const app = createApp({ ...parts, clock: systemClock });
    server = await listen(app, { host: "127.0.0.1", port: 0, clock: systemClock });
  });
  afterEach(async () => {
    await pod?.stop();
    await server.close();
    await flotilla.close();
    await other.close();
    await place.remove();
  });

  const work = async () => {
    const config = {
      store: place.url,
      slots: 7,
      use: [mail, broken, endless, call],
      log: silentLogger,
    };
    // Only what is killed is taken for dead, and that soon.
    const pace = { heartbeatMs: 100, deadAfterMs: 4_000, pollMs: 50 };
    pod = await startPod({ ...config, ...pace }, { onEvent: metrics.observe });
  };
  const scrape = async () => {
    const answer = await fetch(`${server.url}/metrics`);
    expect(answer.headers.get("content-type")).toContain("version=0.0.4");
    return parseExposition(await answer.text());
  };
  const value = async (series: string, ...labels: string[]) =>
    valueOf(await scrape(), series, ...labels);
  const atLeast = (least: number, series: string, ...labels: string[]) =>
    until(`${series} reaching ${least}`, async () => (await value(series, ...labels)) >= least);

  test("shows claims, attempts, slots and who leads", async () => {
    await work();
    const { taskId } = await flotilla.enqueue(mail, null);
    await flotilla.waitFor(taskId);
    await flotilla.tasks.settled((await flotilla.enqueue(broken, null)).taskId);
    await atLeast(1, "flotilla_attempts_total", `name="broken"`, `outcome="failed"`);
    const seen = await scrape();
    expect(valueOf(seen, "flotilla_attempts_total", `name="mail"`, `outcome="completed"`)).toBe(1);
    expect(valueOf(seen, "flotilla_task_duration_seconds_count")).toBe(2);
    expect(valueOf(seen, "flotilla_tasks_claimed_total")).toBe(2);
    expect(valueOf(seen, "flotilla_claim_duration_seconds_count")).toBeGreaterThanOrEqual(2);
    expect(valueOf(seen, "flotilla_claim_duration_seconds_sum")).toBeGreaterThan(0);
    expect(valueOf(seen, "flotilla_slots")).toBe(7);
    await atLeast(1, "flotilla_is_leader");
    await atLeast(1, "flotilla_queue_depth", `name="broken"`, `state="failed"`);
  });

  test("shows how many wait, and how long, by the names that the program knows", async () => {
    await flotilla.enqueueMany(mail, [null, null, null]);
    await flotilla.enqueue(mail, null, { delayMs: 3_600_000 });
    await flotilla.enqueue("unheard-of", null);
    await other.run(
      `update ${place.prefix}task set run_at = run_at - 100000 where name = 'unheard-of'`,
    );
    const seen = await scrape();
    expect(valueOf(seen, "flotilla_queue_depth", `name="mail"`, `state="ready"`)).toBe(3);
    expect(valueOf(seen, "flotilla_queue_depth", `name="mail"`, `state="delayed"`)).toBe(1);
    expect(valueOf(seen, "flotilla_queue_depth", `name="other"`, `state="ready"`)).toBe(1);
    expect(valueOf(seen, "flotilla_queue_oldest_seconds", `name="mail"`)).toBeLessThan(100);
    expect(valueOf(seen, "flotilla_queue_oldest_seconds", `name="other"`)).toBeGreaterThan(99);
    expect(valueOf(seen, "flotilla_queue_depth", `name="unheard-of"`)).toBe(0);
  });

  test("shows claims that failed, and how long the next ones waited", async () => {
    await work();
    const tasks = `${place.prefix}task`;
    await other.run(`alter table ${tasks} rename to ${isPostgres ? "" : "flotilla_"}away`);
    await atLeast(3, "flotilla_claim_failures_total", `code="store_outdated"`);
    await atLeast(3, "flotilla_store_errors_total", `code="store_outdated"`);
    await atLeast(3, "flotilla_backoff_wait_seconds_count", `what="claim"`);
    expect(await value("flotilla_backoff_wait_seconds_sum", `what="claim"`)).toBeGreaterThan(0);
    const away = `${place.prefix}away`;
    const back = isPostgres ? "task" : tasks;
    await other.run(`alter table ${away} rename to ${back}`);
    await flotilla.waitFor((await flotilla.enqueue(mail, null)).taskId);
  });

  test("shows heartbeats that came late, and that failed", async () => {
    await work();
    await atLeast(1, "flotilla_heartbeat_lag_seconds_count");
    const pods = `${place.prefix}pod`;
    await other.run(`alter table ${pods} rename to ${isPostgres ? "" : "flotilla_"}away`);
    await atLeast(3, "flotilla_heartbeat_failures_total");
    await until(
      "the age of the last beat",
      async () => (await value("flotilla_heartbeat_age_seconds")) > 0.3,
    );
    const late = await value("flotilla_heartbeat_lag_seconds_sum");
    const back = isPostgres ? "pod" : pods;
    await other.run(`alter table ${place.prefix}away rename to ${back}`);
    await atLeast(late + 0.2, "flotilla_heartbeat_lag_seconds_sum");
    expect(await value("flotilla_heartbeat_failures_total")).toBeGreaterThanOrEqual(3);
  });

  test("shows what throttles let through and what became of it, on this pod and of all", async () => {
    await work();
    await flotilla.waitFor((await flotilla.enqueue(call, "well")).taskId);
    await flotilla.tasks.settled((await flotilla.enqueue(call, "refused")).taskId);
    const ofApi = `throttle="api"`;
    await atLeast(1, "flotilla_throttle_calls_total", ofApi, `outcome="throttled"`);
    const seen = await scrape();
    expect(valueOf(seen, "flotilla_throttle_calls_total", ofApi, `outcome="success"`)).toBe(1);
    expect(valueOf(seen, "flotilla_throttle_call_duration_seconds_count", ofApi)).toBe(1);
    expect(valueOf(seen, "flotilla_throttle_in_flight", ofApi)).toBe(0);
    await atLeast(1, "flotilla_fleet_throttle_calls_total", ofApi, `outcome="success"`);
    await atLeast(1, "flotilla_fleet_throttle_limit", ofApi);
    await flotilla.throttles.pin("api", 9);
    await atLeast(9, "flotilla_fleet_throttle_limit", ofApi);
    expect(await value("flotilla_fleet_throttle_pinned", ofApi)).toBe(1);
  });

  test("shows how soon a dead leader was replaced, and its task given back", async () => {
    const child = fork(built.program(podFile), [place.url], { execArgv: [] });
    const told: unknown[] = [];
    child.on("message", (message) => told.push(message));
    await until("the older pod", () => told.includes("ready"));
    await flotilla.enqueue(endless, null);
    await until("its run", () => told.includes("running"));
    await work();
    await until("the older pod's lead", () => pod!.leader !== undefined);
    expect(pod!.leader).not.toBe(pod!.podId);
    const before = await scrape();
    expect(valueOf(before, "flotilla_leader_detection_seconds_count")).toBe(0);
    expect(valueOf(before, "flotilla_is_leader")).toBe(0);
    child.kill("SIGKILL");
    await once(child, "exit");
    await atLeast(1, "flotilla_tasks_recovered_total");
    const seen = await scrape();
    expect(valueOf(seen, "flotilla_is_leader")).toBe(1);
    expect(valueOf(seen, "flotilla_leader_detection_seconds_count")).toBe(1);
    expect(valueOf(seen, "flotilla_recovery_latency_seconds_count")).toBe(1);
    // Its process is seen to be gone with the next beat, which may come right behind its own last one.
    const detected = valueOf(seen, "flotilla_leader_detection_seconds_sum");
    expect(detected).toBeGreaterThanOrEqual(0);
    // If that one landed after this pod saw the process gone, the recovery counts from it.
    expect(valueOf(seen, "flotilla_recovery_latency_seconds_sum")).toBeGreaterThan(0);
    await atLeast(1, "flotilla_attempts_total", `name="endless"`, `outcome="completed"`);
  });

  more(() => ({ flotilla, metrics, place, other, value, atLeast }));
}

describe("a scrape of a pod on a SQLite file", () => {
  onStore("a SQLite file", sqlite, (now) => {
    test("shows writes that waited for others", async () => {
      const { flotilla, other, value } = now();
      await until("a write that waited", async () => {
        await other.run("begin immediate");
        const enqueued = flotilla.enqueue(mail, null);
        await value("flotilla_slots");
        await other.run("commit");
        await enqueued;
        return (await value("flotilla_contention_total", `cause="busy"`)) > 0;
      });
      const times = await value("flotilla_backoff_wait_seconds_count", `what="store"`);
      expect(times).toBe(await value("flotilla_contention_total", `cause="busy"`));
      expect(await value("flotilla_backoff_wait_seconds_sum", `what="store"`)).toBeGreaterThan(0);
    });
  });
});

describe("a scrape of a pod on Postgres", () => {
  onStore("Postgres", postgres, (now) => {
    const insert = (key: string) =>
      `insert into flotilla.task (name, unique_key) values ('mail', '${key}')`;
    const insertWaits = () =>
      until("its wait", async () => {
        const { rows } = (await now().other.run(
          `select pid from pg_stat_activity where wait_event_type = 'Lock'
            and query like '%insert into flotilla.task (task_id%'`,
        )) as pg.QueryResult<{ pid: number }>;
        return rows[0]?.pid;
      });

    test("shows the deadlocks that were lost and made good", async () => {
      const { place, metrics, value } = now();
      const rival = await place.other();
      const gate = await place.other();
      // The transaction that first checks for a deadlock is its victim, and that should be ours: it checks a
      // moment after it has begun to wait for the rival, which waits for it by then.
      await rival.run("set deadlock_timeout = '10min'");
      const fresh = connect(place.url, { onEvent: metrics.observe });
      await rival.run("begin");
      await rival.run(insert("c"));
      await gate.run("begin");
      await gate.run(insert("b"));
      const key = (input: unknown) => String(input);
      const enqueued = fresh.enqueueMany("mail", ["a", "b", "c"], { key });
      await insertWaits();
      const inserted = rival.run(insert("a"));
      await until("the rival's wait", async () => {
        const { rows } = (await now().other.run(
          `select pid from pg_stat_activity where wait_event_type = 'Lock' and query = $$${insert("a")}$$`,
        )) as pg.QueryResult;
        return rows[0];
      });
      await gate.run("commit");
      await inserted;
      await rival.run("commit");
      expect((await enqueued).map(({ created }) => created)).toEqual([false, false, false]);
      expect(await value("flotilla_contention_total", `cause="deadlock"`)).toBe(1);
      expect(await value("flotilla_backoff_wait_seconds_count", `what="store"`)).toBe(1);
      await fresh.close();
      await gate.close();
      await rival.close();
    });

    test("shows writes that are sent again because their answer was lost", async () => {
      const { flotilla, place, other, value, atLeast } = now();
      const holder = await place.other();
      await holder.run("begin");
      await holder.run("lock table flotilla.task in exclusive mode");
      const enqueued = flotilla.enqueue(mail, null);
      await other.run(`select pg_terminate_backend(${await insertWaits()})`);
      await atLeast(1, "flotilla_store_errors_total", `code="unknown_outcome"`);
      await holder.run("commit");
      await enqueued;
      expect(await value("flotilla_backoff_wait_seconds_count", `what="write"`)).toBe(1);
      expect(await value("flotilla_backoff_wait_seconds_sum", `what="write"`)).toBeGreaterThan(0);
      await holder.close();
    });
  });
});
