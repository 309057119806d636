import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, type Flotilla, startPod, task } from "flotilla";
import { silentLogger } from "../src/base/log.ts";
import { built } from "./built.ts";
import { run as runIn, start as startIn } from "./command.ts";

let folder: string;
let flotilla: Flotilla;
let pod: Awaited<ReturnType<typeof startPod>>;
const mended = () => join(folder, "mended");
const run = (...args: string[]) => runIn(["dlq", ...args], { cwd: folder });
const listed = async () => JSON.parse((await run("list", "--json")).stdout);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-dlq-"));
  writeFileSync(
    join(folder, "flotilla.config.mjs"),
    `import { defineConfig } from ${JSON.stringify(built.index)};
     export default defineConfig({});`,
  );
  const store = `sqlite:${join(folder, "flotilla.db")}`;
  const flaky = task("flaky", { attempts: 1 }, ({ input }) => {
    if (!existsSync(mended())) throw new Error(`no\u001b[2J answer for ${JSON.stringify(input)}`);
  });
  pod = await startPod({ store, use: [flaky], log: silentLogger, heartbeatMs: 100 });
  flotilla = connect(store);
  const made = await pod.enqueueMany("flaky", [1, 2, 3, 4]);
  for (const { taskId } of made) await pod.tasks.settled(taskId);
});
afterAll(async () => {
  await pod?.stop();
  await flotilla?.close();
  rmSync(folder, { recursive: true, force: true });
});

test("failed tasks are listed by their errors, shown, redriven and given up by the command", async () => {
  const { groups, tasks } = await listed();
  expect({ groups: groups.length, tasks }).toEqual({ groups: 1, tasks: 4 });
  const [{ group, taskIds }] = groups;
  const list = await run("list", "--name", "flaky");
  expect(list.stdout.split("\n")[1]).toMatch(
    new RegExp(`^${group}  4 +flaky .*handler_failed no \\[2J answer for \\d$`),
  );

  const shown = await run("show", group, "--limit", "1");
  expect(shown.stdout).toMatch(new RegExp(`${taskIds[0]}  1 failure .*\n.* answer for`));
  expect(shown.stdout).toContain("failed  attempt 1");
  const nobody = await run("show", "g2-0000000000000000");
  expect(nobody).toMatchObject({ code: 4, stderr: expect.stringContaining("no failed task") });

  for (const command of ["show", "redrive", "discard"]) {
    const part = await run(command, group.slice(0, 8));
    expect(part).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("not a complete group id"),
    });
    expect(part.stderr).toContain("flotilla dlq list");
  }

  // The first one shows that nothing was fixed, and so the others are spared.
  const stopped = await run("redrive", group);
  expect(stopped).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(
      /stopped: 1 task started over, 0 succeeded, 1 failed with the same error/,
    ),
    stderr: expect.stringContaining("the error came back"),
  });
  expect((await listed()).tasks).toBe(4);

  expect((await run("discard", taskIds[0], "--yes")).stdout).toBe("discarded 1 failed task\n");
  expect(await flotilla.tasks.get(taskIds[0])).toMatchObject({ status: "cancelled" });

  writeFileSync(mended(), "");
  const done = await run("redrive", "--name", "flaky", "--json");
  expect(JSON.parse(done.stdout)).toMatchObject({ state: "done", taken: 3, succeeded: 3 });
  const again = await run("redrive", group);
  expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining("nothing to redrive") });
  const redrives = JSON.parse((await run("redrives", "--json")).stdout).redrives;
  expect(redrives.map((each: { state: string }) => each.state)).toEqual([
    "done",
    "done",
    "stopped",
  ]);
  expect((await run("list")).stdout).toBe("no failed tasks\n");
});

test("a redrive goes on without the command that followed it, and can be cancelled", async () => {
  const begun = await run("redrive", "--all", "--no-wait", "--json");
  const { redriveId } = JSON.parse(begun.stdout);
  expect((await run("follow", redriveId)).code).toBe(0);
  expect(await run("follow", "nowhere")).toMatchObject({ code: 4 });

  // Without a leader it waits, and so does who follows it.
  await pod.stop();
  const waiting = startIn(["dlq", "redrive", "--all"], { cwd: folder });
  const said = new Promise<void>((resolve) =>
    waiting.child.stderr!.on("data", () => {
      if (waiting.output.stderr.includes("no pod is up")) resolve();
    }),
  );
  await said;
  waiting.child.kill("SIGINT");
  const { code, stderr, stdout } = await waiting.ended;
  expect(code).toBe(130);
  const [, goesOn] = /flotilla dlq follow (\S+)`/.exec(stderr) ?? [];
  expect(stdout).toContain(`redrive ${goesOn}`);
  expect((await flotilla.deadLetters.getRedrive(goesOn!))?.state).toBe("running");
  expect((await run("cancel", goesOn!)).stdout).toContain("starts no more");
});

test.each([
  [["redrive"], "name exactly one of a group, a task, --name <name> and --all"],
  [["ignore", "g2-79ef601d010c6cb2", "--until", "soon"], "--until must be a time"],
  [["list", "--state", "closed"], "Allowed choices are open, resolved, ignored"],
  [["discard", "--all"], "this discards 0 failed tasks: add --yes to confirm"],
])("%j is refused as wrong usage", async (args, message) => {
  expect(await run(...args)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
});
