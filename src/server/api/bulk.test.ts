import { describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import { createTasks } from "../../tasks/tasks.ts";
import { findKeys } from "../../tasks/sql/enqueue.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { memoryDatabase } from "../../store/sqlite/inline.ts";
import { appHarness, emailContracts, openTestStore } from "../contract/app-harness.ts";

const testStore = openTestStore();

function post(body: string | Uint8Array, type = "application/x-ndjson") {
  const { post } = appHarness(testStore.flotilla, { contracts: emailContracts });
  return post("/v1/tasks/bulk", body, { "Content-Type": type });
}

const line = (value: unknown) => `${JSON.stringify(value)}\n`;

describe("many tasks in one request", () => {
  test("come one per line, and each has its outcome in its place", async () => {
    const answer = await post(
      line({ name: "mail", input: { to: "ada" }, options: { key: "a", priority: 5 } }) +
        "\n" +
        line({ name: "mail", input: { to: 5 } }) +
        "{nonsense\n" +
        line({ name: "post", options: { runAt: "2100-01-01T00:00:00Z" } }) +
        line({ name: "mail", input: { to: "bob" }, options: { key: "a" } }) +
        line({ name: "post", options: { tx: 1 } }) +
        line({ input: 1 }) +
        // The last line needs no end.
        JSON.stringify({ name: "post", options: { runAt: "soon" } }),
    );
    expect(answer).toMatchObject({
      status: 200,
      body: {
        rows: 8,
        created: 2,
        existing: 1,
        replaced: 0,
        rejected: 5,
        outcomes: [
          { index: 0, outcome: "created" },
          { index: 1, outcome: "rejected", code: "invalid_input" },
          { index: 2, outcome: "rejected", message: "line 4 isn't JSON" },
          { index: 3, outcome: "created" },
          { index: 4, outcome: "existing" },
          { index: 5, outcome: "rejected", code: "invalid_option" },
          {
            index: 6,
            outcome: "rejected",
            message: expect.stringContaining("line 8 needs `name`"),
          },
          { index: 7, outcome: "rejected", message: expect.stringContaining("runAt must be") },
        ],
      },
    });
    const { outcomes } = answer.body;
    expect(outcomes[4].taskId).toBe(outcomes[0].taskId);
    const stored = await testStore.flotilla.tasks.get(outcomes[3].taskId);
    expect(stored!.runAtMs).toBe(Date.UTC(2100, 0));
  });

  test("come as an array, too", async () => {
    const rows = [{ name: "post", input: 1 }, 5, { name: "post", input: 2 }];
    const answer = await post(JSON.stringify(rows), "application/json; charset=utf-8");
    expect(answer.body).toMatchObject({ rows: 3, created: 2, rejected: 1 });
    expect((await testStore.flotilla.tasks.list()).tasks.map(({ payload }) => payload)).toEqual([
      2, 1,
    ]);
  });

  test("may hold one that is far too long, which is rejected alone", async () => {
    const long = line({ name: "post", input: "x".repeat(2_000_000) });
    const answer = await post(line({ name: "post" }) + long + line({ name: "post" }));
    expect(answer.body).toMatchObject({ created: 2, rejected: 1 });
    expect(answer.body.outcomes[1]).toMatchObject({ code: "payload_too_large" });
  });

  test("may hold bytes that are no text, in a row that is rejected alone", async () => {
    const bytes = Buffer.concat([Buffer.from([0xff, 0x0a]), Buffer.from(line({ name: "post" }))]);
    expect((await post(bytes)).body).toMatchObject({
      created: 1,
      outcomes: [{ message: "line 1 isn't UTF-8" }, { outcome: "created" }],
    });
  });

  test("are refused as a whole where there are too many, or of another kind", async () => {
    const many = await post("{}\n".repeat(100_001));
    expect(many).toMatchObject({ status: 413, body: { error: { details: { maxRows: 100_000 } } } });
    const large = await post(" ".repeat(32 * 1024 * 1024 + 1));
    expect(large).toMatchObject({ status: 413, body: { error: { code: "payload_too_large" } } });
    expect(await post("{}", "text/csv")).toMatchObject({ status: 415 });
    expect(await post("{}", "application/json")).toMatchObject({ status: 400 });
    expect(await post("[{", "application/json")).toMatchObject({ status: 400 });
    expect((await post("")).body).toMatchObject({ rows: 0, outcomes: [] });
    expect((await testStore.flotilla.tasks.list()).tasks).toEqual([]);
  });
});

describe("tasks whose store answers no more when some of them are stored", () => {
  const tasksOf = async () => {
    const database = memoryDatabase(systemClock);
    await migrate(database);
    const asks = findKeys([]).strings;
    const refusing: Database = {
      ...database,
      write: (statements, options) =>
        statements.some(({ strings }) => strings === asks)
          ? Promise.reject(new FlotillaError("store_busy", "10.20.30.40:5432 is busy"))
          : database.write(statements, options),
    };
    const random = seededRandom(1);
    const parts = { clock: systemClock, random, ids: uuidv7(systemClock, random) };
    const tasks = createTasks({ ...parts, database: refusing });
    await tasks.enqueue("mail", { to: "ada" }, { key: "k" });
    return {
      tasks,
      post: appHarness({ ...testStore.flotilla, enqueueEach: tasks.enqueueEach }).post,
    };
  };
  const rows = [
    { name: "mail", input: { to: "ada" }, options: { key: "k" } },
    { name: "mail", input: { to: "bob" } },
  ];
  const json = { "Content-Type": "application/json" };

  test("are reported so one by one", async () => {
    const { tasks, post } = await tasksOf();
    const answer = await post("/v1/tasks/bulk", JSON.stringify(rows), json);
    expect(answer).toMatchObject({
      status: 200,
      body: { outcomes: [{ outcome: "rejected", code: "store_busy" }, { outcome: "created" }] },
    });
    expect(JSON.stringify(answer.body)).not.toContain("5432");
    expect((await tasks.stats()).byStatus.pending).toBe(2);
    tasks.close();
  });
});
