import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { copyKey } from "../src/protocol/copies.ts";
import { built } from "./built.ts";
import { run as runIn, type Running, start } from "./command.ts";

const key = "a-key-of-16-chars-or-more";
// The input of a step differs in every attempt, and what is done is written down.
const config = `
  import { appendFileSync, existsSync } from "node:fs";
  import { abort, defineConfig, flow, task } from ${JSON.stringify(built.index)};
  const soon = { baseMs: 1, factor: 1, jitter: 0 };
  const times = new Map();
  const next = (id) => {
    times.set(id, (times.get(id) ?? 0) + 1);
    return times.get(id);
  };
  const note = (id, what) => appendFileSync("calls-" + id, what + "\\n");
  const waiting = task("waiting", {}, ({ step }) => step.signal("review"));
  const changing = async (step, id) => {
    await step("before", () => note(id, "before"));
    const input = next(id);
    const read = await step("read", { input }, () => (note(id, "read"), input));
    if (input === 1) throw new Error("once");
    return { read };
  };
  const changed = task("changed", { backoff: soon }, ({ step, taskId }) => changing(step, taskId));
  const order = flow("order", { version: 1, backoff: soon })
    .to("ship", ({ step, runId }) => changing(step, runId))
    .end();
  const failing = task("failing", { version: 2 }, async ({ step, taskId }) => {
    for (const name of ["one", "two"]) await step(name, () => note(taskId, name));
    if (!existsSync("mended")) throw abort("it is broken");
  });
  export default defineConfig({
    use: [waiting, changed, order, failing],
    server: { apiKeys: ["${key}"] },
  });`;

let folder: string;
let elsewhere: string;
let server: Running;
let url: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-steps-"));
  elsewhere = mkdtempSync(join(tmpdir(), "flotilla-cli-elsewhere-"));
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  server = start(["serve", "--port", "0"], { cwd: folder });
  url = await vi.waitUntil(() => /listens on (\S+)/.exec(server.output.stdout)?.[1], {
    timeout: 90_000,
  });
});
afterAll(async () => {
  server.child.kill("SIGKILL");
  await server.ended;
  for (const each of [folder, elsewhere]) rmSync(each, { recursive: true, force: true });
});

const onStore = (...args: string[]) => runIn(args, { cwd: folder });
const onServer = (...args: string[]) =>
  runIn([...args, "--url", url], { cwd: elsewhere, env: { FLOTILLA_API_KEY: key } });
const ask = async (method: string, path: string, body?: unknown) => {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as any };
};
const enqueue = async (name: string) => (await onStore("enqueue", name, "1")).stdout.trim();
const until = (what: string, is: () => Promise<boolean>) =>
  vi.waitFor(async () => expect((await is()) ? what : `not yet: ${what}`).toBe(what), {
    timeout: 90_000,
    interval: 50,
  });
const inState = (taskId: string, is: (task: any) => boolean) =>
  until(`${taskId} is as wanted`, async () =>
    is((await ask("GET", `/v1/tasks/${taskId}`)).body.task),
  );
const callsOf = (id: string) =>
  existsSync(join(folder, `calls-${id}`))
    ? readFileSync(join(folder, `calls-${id}`), "utf8")
        .trim()
        .split("\n")
    : [];
const mend = (isMended: boolean) => {
  const path = join(folder, "mended");
  if (isMended) writeFileSync(path, "");
  else rmSync(path, { force: true });
};

describe.each([
  ["on the store", onStore],
  ["through a server", onServer],
])("a person %s", (_, flotilla) => {
  test("sends a signal to a task that waits for it", async () => {
    const taskId = await enqueue("waiting");
    const sent = await flotilla("tasks", "signal", taskId, "review", '{"ok":true}', "--id", "one");
    expect(sent).toMatchObject({ code: 0, stdout: `sent signal review to task ${taskId}\n` });
    await inState(taskId, ({ status }) => status === "completed");
    expect((await ask("GET", `/v1/tasks/${taskId}`)).body.task.result).toEqual({ ok: true });
    const late = await flotilla("tasks", "signal", taskId, "review");
    expect(late.code).not.toBe(0);
    expect(late.stderr).toContain("it takes no signals");
    expect((await flotilla("tasks", "signal", "none", "review")).code).toBe(4);
    const { stdout } = await flotilla("tasks", "show", taskId);
    expect(stdout).toMatch(/steps\n +review +done +/);
  });

  test("sees the copies of a task that were run", async () => {
    const taskId = await enqueue("waiting");
    const copied = await ask("POST", "/v1/tasks", {
      name: "waiting",
      input: 2,
      options: { key: copyKey(taskId, "0123456789abcdef") },
    });
    const { stdout } = await flotilla("tasks", "show", taskId);
    expect(stdout).toMatch(new RegExp(`\ncopies\n +${copied.body.taskId} +waiting +\\w+\n`));
    const ofCopy = await flotilla("tasks", "show", copied.body.taskId as string);
    expect(ofCopy.stdout).not.toContain("copies");
  });

  test("lets a task go on that was set aside, without the step that has changed", async () => {
    const taskId = await enqueue("changed");
    await inState(taskId, ({ setAside }) => Boolean(setAside));
    const { stdout } = await flotilla("tasks", "show", taskId);
    expect(stdout).toContain("(set aside)");
    expect(stdout).toContain('step "read" is stored for another input');
    const missing = await flotilla("tasks", "resume", taskId, "--forget", "raed");
    expect(missing).toMatchObject({ code: 4, stderr: expect.stringContaining('"raed"') });
    const resumed = await flotilla("tasks", "resume", taskId, "--forget", "read");
    expect(resumed.stdout).toBe(`task ${taskId} goes on without 1 stored step\n`);
    await inState(taskId, ({ status }) => status === "completed");
    expect(callsOf(taskId)).toEqual(["before", "read", "read"]);
  });

  test("lets a run go on that was set aside, without the step that has changed", async () => {
    const { stdout } = await onStore("runs", "start", "order", "{}");
    const runId = stdout.trim();
    const state = async () => (await ask("GET", `/v1/runs/${runId}`)).body.run;
    await until("it is set aside", async () => (await state()).doing?.type === "set_aside");
    const shown = await flotilla("runs", "show", runId);
    expect(shown.stdout).toContain('step "read" is stored for another input');
    expect((await flotilla("runs", "resume", runId, "--forget", "no")).code).toBe(4);
    const resumed = await flotilla("runs", "resume", runId, "--forget", "read");
    expect(resumed).toMatchObject({ code: 0, stdout: expect.stringContaining("resumes") });
    await until("its end", async () => (await state()).status === "completed");
    expect(callsOf(runId)).toEqual(["before", "read", "read"]);
  });

  test("starts a task over behind its steps, or from its start", async () => {
    mend(false);
    const taskId = await enqueue("failing");
    const failed = () => inState(taskId, ({ status }) => status === "failed");
    await failed();
    expect((await flotilla("tasks", "retry", taskId)).stdout).toBe(`task ${taskId} starts over\n`);
    await failed();
    expect(callsOf(taskId)).toEqual(["one", "two"]);
    mend(true);
    const again = await flotilla("tasks", "retry", taskId, "--from-start");
    expect(again.stdout).toBe(`task ${taskId} starts over, and 2 stored steps are forgotten\n`);
    await inState(taskId, ({ status }) => status === "completed");
    expect(callsOf(taskId)).toEqual(["one", "two", "one", "two"]);
    expect((await flotilla("tasks", "show", taskId)).stdout).toMatch(/version +2\n/);
  });

  test("redrives failed tasks from their start", async () => {
    mend(false);
    const taskId = await enqueue("failing");
    await inState(taskId, ({ status }) => status === "failed");
    mend(true);
    const redriven = await flotilla("dlq", "redrive", taskId, "--from-start");
    expect(redriven.stdout).toContain("1 task started over, 1 succeeded, 2 stored steps forgotten");
    expect(callsOf(taskId)).toEqual(["one", "two", "one", "two"]);
  });
});

describe("over HTTP", () => {
  test("a signal is sent, and refused where there is no task that takes it", async () => {
    const taskId = await enqueue("waiting");
    const signal = { name: "review", payload: [1], id: "same" };
    expect((await ask("POST", `/v1/tasks/${taskId}/signals`, signal)).status).toBe(202);
    await inState(taskId, ({ status }) => status === "completed");
    expect((await ask("POST", `/v1/tasks/${taskId}/signals`, { name: "review" })).status).toBe(409);
    expect((await ask("POST", "/v1/tasks/none/signals", { name: "review" })).status).toBe(404);
    expect((await ask("POST", `/v1/tasks/${taskId}/signals`, { name: "a#b" })).status).toBe(400);
  });

  test("a task is resumed without steps, and its steps are listed", async () => {
    const taskId = await enqueue("changed");
    await inState(taskId, ({ setAside }) => Boolean(setAside));
    const { body } = await ask("GET", `/v1/tasks/${taskId}/steps`);
    expect(body.steps).toMatchObject([
      { key: "before", kind: "done", token: 1, transition: null, requested: true },
      { key: "read", kind: "done", token: 1 },
    ]);
    const resume = (forget: unknown) => ask("POST", `/v1/tasks/${taskId}/resume`, { forget });
    expect((await resume(["no"])).status).toBe(404);
    expect((await resume("read")).status).toBe(400);
    expect(await resume(["read"])).toMatchObject({ status: 200 });
    await inState(taskId, ({ status }) => status === "completed");
    expect((await resume([])).status).toBe(409);
  });

  test("a retry and a redrive from the start say how many steps they have forgotten", async () => {
    mend(false);
    const taskId = await enqueue("failing");
    const failed = () => inState(taskId, ({ status }) => status === "failed");
    await failed();
    const retried = await ask("POST", `/v1/tasks/${taskId}/retry?fromStart=true`);
    expect(retried).toMatchObject({ status: 200, body: { forgottenSteps: 2 } });
    await failed();
    mend(true);
    const begun = await ask("POST", "/v1/dlq/redrives", { taskId, fromStart: true });
    expect(begun).toMatchObject({ status: 202, body: { fromStart: true } });
    const { redriveId } = begun.body;
    await until("its end", async () => {
      const { body } = await ask("GET", `/v1/dlq/redrives/${redriveId}`);
      return body.state === "done" && body.forgottenSteps === 2;
    });
    expect(callsOf(taskId)).toHaveLength(6);
  });
});
