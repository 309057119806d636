import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/movable-clock.contract.ts";
import { task } from "../../queue/task.ts";
import { startPod } from "../../runtime/pod.ts";
import type { Database } from "../database.ts";
import { temporaryDatabase } from "../kinds.contract.ts";
import { sql } from "../sql.ts";
import { openPostgres } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;
let database: Database;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  database = await openPostgres({ url });
});
afterEach(async () => {
  await database.close();
  await remove();
});

const listening = () =>
  database.read(sql`
    select pid from pg_stat_activity
    where datname = current_database() and query like 'listen%'`);

describe("listening on Postgres", () => {
  test("ends when nobody subscribes, and begins again with the next", async () => {
    for (let round = 0; round < 2; round++) {
      let hints = 0;
      const stop = database.subscribe(() => hints++);
      await until("listening to begin", () => hints > 0);
      expect(await listening()).toHaveLength(1);
      stop();
      const gone = async () => (await listening()).length === 0;
      expect(await until("the connection to be closed", gone)).toBe(true);
    }
  });

  test("goes on when its connection was cut, and hints at what it has missed", async () => {
    let hints = 0;
    const stop = database.subscribe(() => hints++);
    await until("listening to begin", () => hints > 0);
    const [first] = await listening();
    const before = hints;
    await database.read(sql`select pg_terminate_backend(${first!["pid"]})`);
    await until("a hint after the cut", () => hints > before);
    const [second] = await listening();
    expect(second!["pid"]).not.toBe(first!["pid"]);
    stop();
  });
});

describe("a producer on Postgres that has waited for a task", () => {
  test("ends by itself, without a close", async () => {
    const double = task("double", {}, ({ input }: { input: number }) => input * 2);
    await using _pod = await startPod({ store: url, use: [double], log: silentLogger });
    const producer = spawn(
      process.execPath,
      [
        "--conditions=flotilla:source",
        "--input-type=module",
        "--eval",
        `import { connect } from "flotilla";
         const flotilla = connect(${JSON.stringify(url)});
         process.stdout.write(String(await flotilla.waitFor(await flotilla.enqueue("double", 21))));`,
      ],
      { stdio: ["ignore", "pipe", "inherit"], cwd: import.meta.dirname },
    );
    let said = "";
    producer.stdout.on("data", (chunk) => (said += String(chunk)));
    const [code] = await once(producer, "exit");
    expect({ code, said }).toEqual({ code: 0, said: "42" });
  });
});
