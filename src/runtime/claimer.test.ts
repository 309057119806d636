import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { silentLogger } from "../base/log.ts";
import { task } from "../tasks/task.ts";
import { type ClaimerConfig, startClaimer } from "./claimer.ts";
import { connect } from "./connect.ts";

test("a claimer beats while it holds tasks, and is gone from the pods when it stops", async () => {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-claimer-"));
  const store = `sqlite:${join(folder, "store.db")}`;
  const flotilla = connect(store);
  onTestFinished(async () => {
    await flotilla.close();
    rmSync(folder, { recursive: true });
  });
  const limited = task("limited", { concurrency: { limit: 1 } });
  const claimer = await startClaimer({
    store,
    names: ["a", limited],
    heartbeatMs: 50,
    log: silentLogger,
  });
  const { taskId } = await flotilla.enqueue("a", { n: 1 });
  await flotilla.enqueue(limited, 1);
  await flotilla.enqueue(limited, 2);
  const claims = await claimer.claim(10);
  expect(claims.map(({ name }) => name).toSorted()).toEqual(["a", "limited"]);
  const [pod] = await flotilla.pods();
  expect(pod).toMatchObject({ podId: claimer.podId, metadata: { names: ["a", "limited"] } });

  await expect.poll(async () => (await flotilla.pods())[0]!.beat).toBeGreaterThan(pod!.beat + 2);
  expect(
    await claimer.complete(
      claims.find(({ name }) => name === "a")!,
      "done",
    ),
  ).toBe("stored");
  expect(await flotilla.waitFor(taskId)).toBe("done");
  await claimer.stop();
  expect(await flotilla.pods()).toMatchObject([{ status: "down" }]);
  const left = await flotilla.tasks.list({ name: "limited" });
  expect(left.tasks.map(({ status }) => status)).toEqual(["pending", "pending"]);
});

test.each<[object, string]>([
  [{}, "names must be a list of 1 to 500 names"],
  [{ names: [] }, "names must be a list of 1 to 500 names"],
  [{ names: "a" }, "names must be a list of 1 to 500 names"],
  [{ names: ["no good"] }, "a task's name is"],
  [{ names: ["a"], attempts: 0 }, "attempts must be"],
  [{ names: ["a"], slots: 5 }, "unknown option `slots`"],
  [{ names: ["a"], heartbeatMs: 1 }, "heartbeatMs must be"],
])("a claimer refuses %j", async (config, message) => {
  await expect(startClaimer(config as ClaimerConfig)).rejects.toMatchObject({
    code: "invalid_option",
    message: expect.stringContaining(message),
  });
});
