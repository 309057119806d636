import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { run as runIn } from "./command.ts";

let folder: string;
const run = (...args: string[]) => runIn(["schedules", ...args], { cwd: folder });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-schedules-"));
  await runIn(["migrate"], { cwd: folder });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("flotilla schedules", () => {
  test("adds, lists, shows, pauses, resumes, fires and removes", async () => {
    const added = await run("add", "nightly", "mail", `{"to":"ada"}`, "--pattern", "0 3 * * *");
    expect(added).toMatchObject({ code: 0, stderr: "" });
    expect(added.stdout).toMatch(/schedule nightly is stored; its next time is \d{4}-.*T03:00:00/);

    const listed = await run("list");
    expect(listed.stdout).toMatch(/nightly\s+mail\s+0 3 \* \* \*\s+UTC\s+active\s+\d.*no worker/);
    const json = JSON.parse((await run("list", "--json")).stdout);
    expect(json).toMatchObject({
      schedules: [{ scheduleId: "nightly", input: { to: "ada" }, noWorker: true }],
      next: null,
    });

    const shown = await run("show", "nightly");
    expect(shown.stdout.match(/^next {2}\d{4}-.*T03:00:00.000Z$/gm)).toHaveLength(5);
    const paused = JSON.parse((await run("pause", "nightly", "--json")).stdout);
    expect(paused.schedule.state).toBe("paused");
    expect((await run("resume", "nightly")).stdout).toContain("resumes at");
    const { taskId } = JSON.parse((await run("fire", "nightly", "--json")).stdout);
    const fired = await runIn(["tasks", "show", taskId, "--json"], { cwd: folder });
    expect(JSON.parse(fired.stdout).task).toMatchObject({ name: "mail", payload: { to: "ada" } });
    await run("add", "poll", "mail", "--every-ms", "300000");
    expect((await run("list")).stdout).toMatch(/poll\s+mail\s+every 300000 ms\s+active/);
    expect((await run("show", "poll")).stdout).toMatch(/^when +every 300000 ms$/m);
    expect((await run("remove", "poll")).stdout).toContain("is removed");
    expect((await run("remove", "nightly")).stdout).toContain("is removed");
    expect(await run("remove", "nightly")).toMatchObject({ code: 4 });
  });

  test.each<[string[], string]>([
    [["add", "bad", "mail", "--pattern", "0 25 * * *"], "field 2, hour, can't be 25"],
    [["add", "bad", "mail", "--pattern", "* * * * *", "--zone", "Mars/Phobos"], "time zone"],
    [["add", "bad", "mail"], "`pattern` and `everyMs`: neither"],
    [["add", "bad", "mail", "{", "--every-ms", "1000"], "isn't JSON"],
  ])("refuses %j as wrong usage, and says why", async (args, why) => {
    const refused = await run(...args);
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toContain(why);
  });
});
