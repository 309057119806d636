import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { beat } from "../../pods/sql.ts";
import { claimTasks, releaseCall } from "../../tasks/sql/claim.ts";
import { task } from "../../tasks/task.ts";
import { connect } from "../../runtime/connect.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { openStore } from "../open.ts";
import { render, sql, table } from "../sql.ts";
import { postgresDialect } from "./dialect.ts";
import { openPostgres } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
});
afterEach(() => remove());

const double = task("double", {}, ({ input }: { input: number }) => input * 2);
const settings = { use: [double], log: silentLogger, heartbeatMs: 100, deadAfterMs: 500 };

/** A connection of the test's own. */
async function withClient(ask: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await ask(client);
  } finally {
    await client.end();
  }
}

describe("pods on Postgres", () => {
  test("run what a producer enqueues elsewhere", async () => {
    await using pod = await startPod({ ...settings, store: url });
    await using producer = connect(url);
    const enqueued = await producer.enqueue(double, 21);
    expect(await producer.waitFor(enqueued)).toBe(42);
    await until("its lead", () => pod.leader === pod.podId);
  });

  test("each get some of what there is, and none gets what another has", async () => {
    // So much at once may take a busy machine longer than calls wait for a connection.
    const store = `${url}?connectTimeoutMs=60000`;
    await using first = await startPod({ ...settings, store });
    await using second = await startPod({ ...settings, store });
    const enqueued = await first.enqueueMany(
      double,
      Array.from({ length: 500 }, (_, at) => at),
    );
    const results = await Promise.all(enqueued.map(({ taskId }) => second.waitFor(taskId)));
    expect(results).toEqual(enqueued.map((_, at) => at * 2));
    expect((await second.tasks.stats()).byStatus).toMatchObject({ completed: 500, failed: 0 });
  });

  test("live in the schema that the URL names", async () => {
    const elsewhere = `${url}?schema=jobs`;
    await using pod = await startPod({ ...settings, store: elsewhere });
    expect(await pod.waitFor(await pod.enqueue(double, 4))).toBe(8);
    await withClient(async (client) => {
      const { rows } = await client.query("select count(*)::int as n from jobs.task");
      expect(rows).toEqual([{ n: 1 }]);
    });
  });

  test("run a row that was inserted by hand", async () => {
    await using pod = await startPod({ ...settings, store: url });
    let taskId = "";
    await withClient(async (client) => {
      const { rows } = await client.query(
        "insert into flotilla.task (name, payload) values ('double', '5') returning task_id",
      );
      taskId = (rows[0] as { task_id: string }).task_id;
    });
    expect(await pod.waitFor(taskId)).toBe(10);
  });

  test("fail a task whose result the store refuses for good, and no other", async () => {
    await using pod = await startPod({ ...settings, store: url });
    await withClient(async (client) => {
      await client.query("alter table flotilla.task add constraint fussy check (result <> '26')");
    });
    const [refused, taken] = await pod.enqueueMany(double, [13, 14]);
    await expect(pod.waitFor(refused!.taskId)).rejects.toMatchObject({
      code: "task_failed",
      details: { code: "payload_not_storable" },
    });
    expect(await pod.waitFor(taken!.taskId)).toBe(28);
  });

  test("go on after the server has cut every connection", async () => {
    await using pod = await startPod({ ...settings, store: url });
    await withClient(async (client) => {
      await client.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
      );
    });
    // Some may be found to be cut only by what is sent on them.
    const enqueued = await until("an enqueue", () => pod.enqueue(double, 3).catch(() => undefined));
    expect(await pod.waitFor(enqueued)).toBe(6);
  });
});

describe("how a task ended on Postgres", () => {
  test.each([
    ["40001", "as often as it is tried at once", 6],
    ["53200", "for want of memory", 2],
    ["58030", "because its disk fails", 2],
  ])("is stored in the end, though the server refuses it with %s, %s", async (state, _, times) => {
    await using pod = await startPod({ ...settings, store: url });
    await withClient(async (client) => {
      // What is taken from a sequence stays taken when the rest is undone.
      await client.query(`create sequence flotilla.refusals`);
      await client.query(`create function flotilla.refuse() returns trigger language plpgsql as $$
        begin
          if nextval('flotilla.refusals') <= ${times} then
            raise exception 'not now' using errcode = '${state}';
          end if;
          return new;
        end $$`);
      await client.query(`create trigger refuse before update on flotilla.task
        for each row when (new.status = 'completed') execute function flotilla.refuse()`);
    });
    expect(await pod.waitFor(await pod.enqueue(double, 3))).toBe(6);
  });
});

describe("a server that undoes transactions when they commit, as distributed ones do", () => {
  /** One of four transactions that change a row of these is refused with 40001 as it commits. */
  const undoing = (tables: readonly string[]) =>
    withClient(async (client) => {
      await client.query("create sequence flotilla.commits");
      await client.query("create sequence flotilla.undone");
      await client.query(`create function flotilla.undo() returns trigger language plpgsql as $$
        begin
          -- Only the first of a transaction's rows is counted.
          if current_setting('flotilla.counted', true) is distinct from txid_current()::text then
            perform set_config('flotilla.counted', txid_current()::text, true);
            if nextval('flotilla.commits') % 4 = 1 then
              perform nextval('flotilla.undone');
              raise exception 'restart transaction' using errcode = '40001';
            end if;
          end if;
          return null;
        end $$`);
      for (const name of tables) {
        await client.query(`create constraint trigger undo after insert or update or delete
          on flotilla.${name} deferrable initially deferred
          for each row execute function flotilla.undo()`);
      }
    });

  test("is one on which tasks are stored, claimed, tried again, cancelled and ended once", async () => {
    const runs: string[] = [];
    const flaky = task<number, number, number>(
      "flaky",
      { attempts: 3, backoff: { baseMs: 1 } },
      ({ input, attempt, taskId }) => {
        runs.push(`${taskId} ${attempt}`);
        if (attempt < 2) throw new Error("as ordered");
        return input * 2;
      },
    );
    const asleep = task("asleep", {}, ({ signal }) => {
      const waiting = Promise.withResolvers<never>();
      signal.addEventListener("abort", () => waiting.reject(signal.reason as Error));
      return waiting.promise;
    });
    await (await openStore(url)).close();
    await undoing(["task", "task_event", "task_dependency", "pod"]);

    await using flotilla = connect(url);
    const inputs = Array.from({ length: 10 }, (_, at) => at);
    const tasks = await flotilla.enqueueMany(flaky, inputs, { key: String });
    const again = await flotilla.enqueueMany(flaky, inputs, { key: String });
    expect(again.every(({ created }) => !created)).toBe(true);
    const last = await flotilla.enqueue(flaky, 21, { after: tasks });
    const unwanted = await flotilla.enqueue(asleep, null);
    const pod = { ...settings, use: [flaky, asleep], deadAfterMs: 20_000 };
    await using _one = await startPod({ ...pod, store: url });
    await using _other = await startPod({ ...pod, store: url });

    expect(await flotilla.waitFor(last)).toBe(42);
    await flotilla.tasks.cancel(unwanted.taskId);
    expect((await flotilla.tasks.settled(unwanted.taskId)).status).toBe("cancelled");
    for (const [at, each] of tasks.entries()) expect(await flotilla.waitFor(each)).toBe(2 * at);
    const wanted = [...tasks, last].flatMap(({ taskId }) => [`${taskId} 1`, `${taskId} 2`]);
    expect(runs.toSorted()).toEqual(wanted.toSorted());
    await withClient(async (client) => {
      const { rows } = await client.query("select last_value from flotilla.undone");
      expect(Number(rows[0].last_value)).toBeGreaterThan(5);
    });
  });
});

const waitingForLocks = `select 1 from pg_stat_activity
  where wait_event_type = 'Lock' and datname = current_database()`;

describe("a claim on Postgres that is given up while it is under way", () => {
  test("is waited for, given back, and can't be made again", async () => {
    const database = await openStore(url);
    await database.write([
      beat("pod", "{}", 0),
      sql`insert into ${table("task")} (task_id, name) values ('x', 'a')`,
    ]);
    const call = { podId: "pod", call: 7, names: ["a"], limit: 1 };
    const { text, values } = render(claimTasks(call), postgresDialect({ schema: "flotilla" }));
    const status = async () =>
      (await database.read(sql`select status from ${table("task")}`))[0]!["status"];
    await withClient(async (claiming) => {
      await claiming.query("begin");
      expect((await claiming.query(text, values as unknown[])).rowCount).toBe(1);
      let released = false;
      const release = database.write(releaseCall("pod", 7)).then(() => (released = true));
      await withClient(async (watching) => {
        const waiting = async () => (await watching.query(waitingForLocks)).rowCount === 1;
        await until("the release to wait", waiting);
      });
      // A beat isn't kept waiting by either of them.
      await database.write([beat("pod", "{}", 0)]);
      expect(released).toBe(false);
      await claiming.query("commit");
      await release;
      expect(await status()).toBe("pending");
      expect((await claiming.query(text, values as unknown[])).rowCount).toBe(0);
    });
    await database.close();
  });
});

describe("the caller's own Postgres transaction", () => {
  test("brings a task if, and only if, it commits", async () => {
    await using flotilla = connect(url);
    await flotilla.tasks.stats();
    await withClient(async (client) => {
      for (const end of ["rollback", "commit"]) {
        await client.query("begin");
        await flotilla.enqueue(double, 1, { tx: client });
        await client.query(end);
      }
    });
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(1);
  });
});

describe("opening a Postgres store", () => {
  test("that can't be reached is refused with that, without its password", async () => {
    const error = await openStore("postgres://ada:s3cret@127.0.0.1:1/app").catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code: "store_unavailable" });
    expect(String(error)).not.toContain("s3cret");
  });

  test("that doesn't exist is refused with that", async () => {
    await expect(openStore(url.replace(/[^/]*$/, "nowhere"))).rejects.toMatchObject({
      code: "store_missing",
    });
  });

  test.each(["Flotilla", "a-b", 'x"; drop schema public', ""])(
    "in a schema called %j is refused",
    async (schema) => {
      await expect(openPostgres({ url, schema })).rejects.toMatchObject({ code: "invalid_option" });
    },
  );
});

describe("durability on Postgres", () => {
  test.each([
    ["full", "on"],
    ["relaxed", "off"],
  ] as const)("that is %s means synchronous_commit = %s", async (durability, setting) => {
    const database = await openPostgres({ url, durability });
    expect(await database.read(sql`show synchronous_commit`)).toEqual([
      { synchronous_commit: setting },
    ]);
    await database.close();
  });

  test("isn't less for what follows a write that may be lost", async () => {
    const database = await openPostgres({ url, connections: 1 });
    await database.write([sql`select 1`], { lossy: true });
    const [answer] = await database.write([sql`show synchronous_commit`]);
    expect(answer).toEqual([{ synchronous_commit: "on" }]);
    await database.close();
  });
});
