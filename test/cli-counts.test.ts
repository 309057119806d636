import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../src/runtime/connect.ts";
import { run as runIn } from "./command.ts";

let folder: string;
const run = (args: string[]) => runIn(args, { cwd: folder });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-counts-"));
  const file = join(folder, "flotilla.db");
  await using flotilla = connect(`sqlite:${file}`);
  const old = await flotilla.enqueueMany("mail", [1, 2, 3]);
  await flotilla.enqueue("post", 1);
  await flotilla.tasks.pause("post", { reason: "holidays" });
  const database = new DatabaseSync(file);
  const age = database.prepare(
    "update flotilla_task set status = ?, created_at = 1, last_update = 1 where task_id = ?",
  );
  ["completed", "completed", "failed"].forEach((status, at) => age.run(status, old[at]!.taskId));
  database.close();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the command line", () => {
  test("counts tasks, and says what is paused and what no pod works on", async () => {
    const { code, stdout } = await run(["stats"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^mail +0 +0 +2 +1 +0$/m);
    expect(stdout).toMatch(/^post +1 +0 +0 +0 +0 .*no worker$/m);
    expect(stdout).toMatch(/^post has been paused for \d+s: holidays$/m);
    expect((await run(["stats", "--exact"])).stdout).toMatch(/^mail +0 +0 +2 +1 +0$/m);
  });

  test("deletes old tasks once it is sure, of one outcome or of all", async () => {
    const prune = ["tasks", "prune", "--older-than", "1"];
    const unsure = await run(prune);
    expect(unsure).toMatchObject({ code: 2, stderr: expect.stringContaining("add --yes") });
    const failed = await run([...prune, "--status", "failed", "--yes", "--json"]);
    expect(JSON.parse(failed.stdout)).toEqual({ deleted: 1 });
    expect(await run([...prune, "--yes"])).toMatchObject({ code: 0, stdout: "deleted 2 tasks\n" });
    const { byStatus } = JSON.parse((await run(["stats", "--json"])).stdout);
    expect(byStatus).toMatchObject({ pending: 1, completed: 0, failed: 0 });
  });

  test("prints what the server takes and answers, without a store", async () => {
    const { code, stdout } = await run(["openapi"]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ openapi: "3.1.1", paths: { "/v1/tasks": {} } });
  });
});
