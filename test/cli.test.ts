import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { silentLogger } from "../src/base/log.ts";
import { connect, type Flotilla } from "../src/runtime/connect.ts";
import { built } from "./built.ts";
import { type Outcome, run as runIn, type Running, start as startIn } from "./command.ts";

const config = `
  import { z } from ${JSON.stringify(import.meta.resolve("zod"))};
  import { abort, defineConfig, task } from ${JSON.stringify(built.index)};
  const seconds = (ms, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)));
  });
  // As a pool of connections would, this keeps the process alive that imports it.
  setInterval(() => {}, 1_000);
  export default defineConfig({
    slots: 7,
    use: [
      task("mail", { input: z.object({ to: z.string() }) }, async ({ input }) => "to " + input.to),
      task("doomed", {}, async () => { throw abort("no such\\u001b[2J address"); }),
      task("long", {}, ({ signal }) => seconds(600_000, signal)),
      task("deaf", { timeoutMs: 600_000 }, () => new Promise(() => setInterval(() => {}, 1_000))),
    ],
  });`;

let folder: string;
let flotilla: Flotilla;
let worker: Running;
const others: Running[] = [];

const run = (args: string[], more: { env?: Record<string, string>; stdin?: string } = {}) =>
  runIn(args, { cwd: folder, ...more });
const start = (args: string[], env: Record<string, string> = {}) => {
  const running = startIn(args, { cwd: folder, env });
  others.push(running);
  return running;
};

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-"));
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  worker = startIn(["work"], { cwd: folder });
  await said(worker, "stderr", /pod started/);
  flotilla = connect(`sqlite:${join(folder, "flotilla.db")}`, { create: false });
});
afterAll(async () => {
  await flotilla?.close();
  for (const { child } of [worker, ...others]) child.kill("SIGKILL");
  await Promise.all([worker, ...others].map(({ ended }) => ended));
  rmSync(folder, { recursive: true, force: true });
});

describe("enqueue", () => {
  test("stores a task, waits for its result and prints it", async () => {
    const { code, stdout } = await run(["enqueue", "mail", `{"to":"ada"}`, "--wait"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^[0-9a-f-]{36}\n"to ada"\n$/);
  });

  test("reads the payload from standard input, and gives the same task for the same key", async () => {
    const args = ["enqueue", "mail", "-", "--key", "k", "--json"];
    const first = await run(args, { stdin: `{"to":"bob"}` });
    const { taskId, created } = JSON.parse(first.stdout);
    expect(created).toBe(true);
    const again = await run([...args, "--wait"], { stdin: `{"to":"eve"}` });
    expect(JSON.parse(again.stdout)).toEqual({ taskId, created: false, result: "to bob" });
  });

  test("lets a task wait for others, and shows for which", async () => {
    const first = await run(["enqueue", "mail", `{"to":"ada"}`, "--delay-ms", "600000"]);
    const awaited = first.stdout.trim();
    const args = ["enqueue", "mail", `{"to":"bob"}`, "--after-failed", "run", "--after", awaited];
    const waiter = (await run(args)).stdout.trim();
    const { stdout } = await run(["tasks", "show", waiter]);
    expect(stdout).toMatch(new RegExp(`waits for +${awaited}`));
    const unknown = await run(["enqueue", "mail", `{"to":"eve"}`, "--after", "nobody"]);
    expect(unknown.stderr).toContain("there is no task nobody");
  });

  test("hands on every option", async () => {
    const flags = ["--priority", "-5", "--delay-ms", "600000", "--attempts", "9", "--tenant", "t"];
    const { stdout } = await run(["enqueue", "elsewhere", ...flags]);
    expect(await flotilla.tasks.get(stdout.trim())).toMatchObject({
      payload: null,
      priority: -5,
      maxAttempts: 9,
      tenant: "t",
    });
  });

  test.each([
    [["enqueue", "mail", `{"to":5}`], 1, /doesn't fit its schema: to: /],
    [["enqueue", "mail", "{to:5}"], 2, /the payload isn't JSON: quote it/],
    [["enqueue", "mail", "--priority", "101"], 2, /--priority must be a whole number from -100/],
    [["enqueue", "two words"], 2, /a task's name is/],
    [["enqueue", "doomed", "--wait"], 1, /failed: no such/],
    [["enqueue", "elsewhere", "--wait", "--timeout-ms", "1"], 1, /didn't finish within 1 ms/],
  ])("%j is refused or fails", async (args, code, message) => {
    const outcome = await run(args);
    expect(outcome).toMatchObject({ code, stderr: expect.stringMatching(message) });
    expect(outcome.stderr).not.toContain("    at ");
  });
});

describe("tasks", () => {
  test("are listed, shown, cancelled and started over", async () => {
    const { taskId } = await flotilla.enqueue("nobody", { secret: 1 });
    const list = await run(["tasks", "list", "--name", "nobody"]);
    expect(list.stdout.split("\n")[1]).toMatch(new RegExp(`^${taskId}  nobody  pending`));
    const json = await run(["tasks", "list", "--name", "nobody", "--limit", "1", "--json"]);
    expect(JSON.parse(json.stdout)).toMatchObject({ tasks: [{ taskId }], next: null });

    expect((await run(["tasks", "cancel", taskId])).stdout).toContain("is cancelled");
    expect(await run(["tasks", "cancel", taskId, "--json"])).toMatchObject({ code: 0 });
    expect((await run(["tasks", "retry", taskId])).stdout).toContain("starts over");
    const retry = await run(["tasks", "retry", taskId]);
    expect(retry).toMatchObject({ code: 4, stderr: expect.stringMatching(/is pending: only/) });

    const shown = await run(["tasks", "show", taskId]);
    expect(shown.stdout).toMatch(/payload +\{"secret":1\}/);
    expect(shown.stdout).toMatch(
      /cancel_requested  \{"request":"[0-9a-f-]{36}","wake":\d+\}\n.*retried  \{"request":"[0-9a-f-]{36}","token":\d+\}\n$/,
    );
  });

  test("that run are cancelled where they run", async () => {
    const { taskId } = await flotilla.enqueue("long", null);
    await until(async () => (await flotilla.tasks.get(taskId))?.status === "claimed");
    expect((await run(["tasks", "cancel", taskId])).stdout).toContain("its pod cancels it");
    expect((await flotilla.tasks.settled(taskId)).status).toBe("cancelled");
  });

  test("that have ended can't be cancelled, and unknown ones nothing", async () => {
    const { taskId } = await flotilla.enqueue("mail", { to: "eve" });
    await flotilla.tasks.settled(taskId);
    expect(await run(["tasks", "cancel", taskId])).toMatchObject({ code: 4 });
    const nowhere = await run(["tasks", "show", "nowhere", "--json"]);
    expect(nowhere).toMatchObject({ code: 4, stdout: "" });
    expect(JSON.parse(nowhere.stderr)).toMatchObject({ error: { code: "not_found" } });
  });

  test("can't reach the terminal with what their errors hold", async () => {
    const { taskId } = await flotilla.enqueue("doomed", null);
    await flotilla.tasks.settled(taskId);
    const env = { FORCE_COLOR: "1" };
    for (const args of [
      ["list", "--name", "doomed"],
      ["show", taskId],
    ]) {
      const { stdout } = await run(["tasks", ...args], { env });
      expect(stdout).toContain("\u001b[31mfailed");
      expect(stdout).not.toContain("\u001b[2J");
    }
  });
});

describe("pods and doctor", () => {
  test("show the pod that runs, and find nothing wrong", async () => {
    const pods = JSON.parse((await run(["pods", "--json"])).stdout).pods;
    const names = ["mail", "doomed", "long", "deaf", "flotilla:wake"];
    const metadata = { pid: worker.child.pid, names };
    expect(pods).toEqual([
      expect.objectContaining({ status: "up", metadata: expect.objectContaining(metadata) }),
    ]);
    expect((await run(["pods"])).stdout).toContain(pods[0].podId);

    const { code, stdout } = await run(["doctor", "--json"]);
    const report = JSON.parse(stdout);
    expect({ code, ok: report.ok }).toEqual({ code: 0, ok: true });
    const verdicts = Object.fromEntries(
      report.checks.map((check: { name: string; verdict: string }) => [check.name, check.verdict]),
    );
    expect(verdicts).toMatchObject({
      node: "ok",
      file: "ok",
      journal: "ok",
      integrity: "ok",
      schema: "ok",
      pods: "ok",
      claims: "ok",
    });
  });

  test("doctor names tasks that no pod works on, and claims that no pod holds", async () => {
    await flotilla.enqueue("orphan", null);
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-doctor-"));
    const store = `sqlite:${join(cwd, "stuck.db")}`;
    const other = connect(store);
    const { taskId } = await other.enqueue("mail", null);
    await other.close();
    const { DatabaseSync } = await import("node:sqlite");
    const database = new DatabaseSync(join(cwd, "stuck.db"));
    database.exec(
      `update flotilla_task set status = 'claimed', claimed_by = 'gone' where task_id = '${taskId}'`,
    );
    database.close();
    expect((await run(["doctor"])).stdout).toMatch(/warn +workers .*no running pod.*orphan \(1\)/);
    const stuck = await run(["doctor", "--store", store]);
    expect(stuck).toMatchObject({ code: 0 });
    expect(stuck.stdout).toMatch(/warn +pods +none is running/);
    expect(stuck.stdout).toMatch(/warn +claims +1 tasks are claimed by pods that aren't running/);
    rmSync(cwd, { recursive: true });
  });
});

describe("wrong usage ends with 2 and says what was meant", () => {
  test.each([
    [["wrok"], /unknown command 'wrok'\n\(Did you mean work\?\)/],
    [["tasks", "lisst"], /unknown command 'lisst'\n\(Did you mean list\?\)/],
    [["sessions", "exprt"], /unknown command 'exprt'\n\(Did you mean export\?\)/],
    [["dlq", "everything"], /unknown command 'everything'\n$/],
    [["work", "--slot", "3"], /unknown option '--slot'\n\(Did you mean --slots\?\)/],
    [["work", "--only", "mial"], /`use` has no handler for "mial", did you mean "mail"\?/],
    [["work", "--slots", "0"], /--slots must be a whole number from 1 to 100000, not 0/],
    [["serve", "--port", "http"], /--port must be a whole number from 0 to 65535, not "http"/],
    [["tasks", "list", "--status", "done"], /Allowed choices are pending, claimed/],
    [["enqueue"], /the task's name is missing/],
    [["pods", "extra"], /unknown command 'extra'\n$/],
    [["pods", "drian", "x"], /unknown command 'drian'\n\(Did you mean drain\?\)/],
    [["pods", "--store", "mysql://me:hidden@host/db"], /"mysql:.*isn't supported: use sqlite:/],
    [["pods", "--config", "nowhere.ts"], /there is no config file .*nowhere\.ts: check --config/],
    [["serve", "--host", "0.0.0.0"], /no credentials are configured: set server\.apiKeys/],
    [[], /Usage: flotilla/],
  ])("%j", async (args, message) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/    at |hidden/);
  });

  test.each([
    ["export default { slotts: 3 };", /unknown option `slotts`, did you mean `slots`\?/],
    ["export const config = {};", /has no default export/],
    ["throw new Error('not today');", /can't be loaded: not today\n +at .*broken\.config\.mjs:1/],
  ])("a config that says %j", async (text, message) => {
    writeFileSync(join(folder, "broken.config.mjs"), text);
    const { code, stderr } = await run(["pods", "--config", "broken.config.mjs"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});

describe("a bare command of things", () => {
  test.each([
    ["tasks", "tasks"],
    ["runs", "runs"],
    ["schedules", "schedules"],
    ["dlq", "groups"],
    ["limits", "limits"],
    ["flows", "flows"],
    ["throttles", "throttles"],
    ["sessions", "sessions"],
    ["agents", "agents"],
    ["pods", "pods"],
  ])("%s lists them, with the flags of its list", async (command, field) => {
    const { code, stdout } = await run([command, "--json"]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ [field]: expect.any(Array) });
  });

  test("enqueue says on the side where no pod works on the name", async () => {
    const { code, stderr } = await run(["enqueue", "orphan", "--json"]);
    expect(code).toBe(0);
    expect(stderr).toContain('no pod that is up works on "orphan"');
    expect((await run(["enqueue", "mail", `{"to":"ada"}`])).stderr).toBe("");
  });

  test("what was stored is the answer where it can't be told whether a pod works on it", async () => {
    const path = join(folder, "without-pods.db");
    const store = ["--store", `sqlite:${path}`];
    await run(["migrate", ...store]);
    const db = new DatabaseSync(path);
    db.exec("drop table flotilla_pod");
    writeFileSync(join(folder, "rows.ndjson"), `{"name":"orphan"}\n`);
    const stored = () => db.prepare("select count(*) as tasks from flotilla_task").get();
    for (const args of ["enqueue orphan", "enqueue --file rows.ndjson", "runs start orphan"]) {
      expect(await run([...args.split(" "), ...store])).toMatchObject({ code: 0, stderr: "" });
    }
    expect(stored()).toEqual({ tasks: 3 });
    db.close();
  });
});

describe("settings", () => {
  test("come from the flag, then the environment, then the file, then DATABASE_URL", async () => {
    const store = (name: string) => `sqlite:${join(folder, `${name}.db`)}`;
    const missing = async (args: string[], env: Record<string, string>) =>
      /at \S+\/(\w+)\.db/.exec((await run(["pods", ...args], { env })).stderr)?.[1];
    const env = { FLOTILLA_STORE: store("env"), DATABASE_URL: store("url") };
    expect(await missing(["--store", store("flag")], env)).toBe("flag");
    expect(await missing([], env)).toBe("env");
    expect(await missing([], { DATABASE_URL: store("url") })).toBe("url");
    expect(await run(["pods"])).toMatchObject({ code: 0 });
    const file = join(folder, "store.config.mjs");
    writeFileSync(file, `export default { store: ${JSON.stringify(store("file"))} };`);
    const named = ["--config", file];
    expect(await missing(named, env)).toBe("env");
    expect(await missing(named, { DATABASE_URL: store("url") })).toBe("file");
  });

  test("the help names every command, the exit codes, and examples", async () => {
    const { code, stdout } = await run(["--help"]);
    expect(code).toBe(0);
    for (const name of [
      "dev",
      "work",
      "serve",
      "enqueue",
      "tasks",
      "stats",
      "schedules",
      "dlq",
      "pause",
      "resume",
      "limits",
      "pods",
      "migrate",
      "doctor",
      "openapi",
    ]) {
      expect(stdout).toMatch(new RegExp(`^  ${name}\\b`, "m"));
    }
    expect(stdout).toMatch(/Exit codes:\n +0 .*\n +1 .*\n +2 .*\n +3 .*\n +4 /);
    expect((await run(["enqueue", "--help"])).stdout).toContain('flotilla enqueue mail \'{"to"');
  });

  test("colours are for terminals only", async () => {
    expect((await run(["pods"])).stdout).not.toContain("\u001b");
    expect((await run(["pods"], { env: { FORCE_COLOR: "1" } })).stdout).toContain("\u001b[32mup");
  });
});

describe("serve", () => {
  const key = "a-key-of-16-chars-or-more";

  test("with keys, off loopback, claims nothing when told so, and stops when asked", async () => {
    const args = ["serve", "--no-work", "--host", "0.0.0.0", "--port", "0"];
    const server = start(args, { FLOTILLA_API_KEYS: ` ${key} ,` });
    const url = (await urlOf(server)).replace("0.0.0.0", "127.0.0.1");
    expect((await fetch(`${url}/health/ready`)).status).toBe(200);
    expect((await fetch(`${url}/v1/tasks`)).status).toBe(401);
    const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    const post = (body: unknown) =>
      fetch(`${url}/v1/tasks`, { method: "POST", headers, body: JSON.stringify(body) });
    // The config's handlers aren't run here, but their schemas are known.
    expect((await post({ name: "mail", input: { to: 5 } })).status).toBe(400);
    const { taskId } = (await (await post({ name: "mail", input: { to: "web" } })).json()) as {
      taskId: string;
    };
    expect(await flotilla.waitFor(taskId)).toBe("to web");
    const metrics = await (await fetch(`${url}/metrics`, { headers })).text();
    expect(metrics).toMatch(/^flotilla_slots 0$/m);
    expect(metrics).toMatch(/^flotilla_queue_depth\{name="mail",state="ready"\} \d+$/m);
    expect(metrics).toMatch(/^process_cpu_seconds_total/m);
    expect(await stop(server, "SIGTERM")).toMatchObject({ code: 0 });
  });

  test.each([
    ["a flag", ["--admin-port", "0"], {}],
    ["the environment", [], { FLOTILLA_ADMIN_PORT: "0" }],
  ])("health and metrics get a port of their own by %s", async (_, flags, env) => {
    const server = start(["serve", "--no-work", "--port", "0", ...flags], env);
    const url = await urlOf(server);
    await said(server, "stdout", / also at \S+\s/);
    const [, adminUrl] = / also at (\S+)/.exec(server.output.stdout)!;
    expect(adminUrl).not.toBe(url);
    expect((await fetch(`${adminUrl}/health/live`)).status).toBe(200);
    expect((await fetch(`${adminUrl}/metrics`)).status).toBe(200);
    expect((await fetch(`${adminUrl}/v1/tasks`)).status).toBe(404);
    expect(await stop(server, "SIGTERM")).toMatchObject({ code: 0 });
  });

  test("a port that is taken is an error, but `dev` takes another unless one was named", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    const port = String((other.address() as AddressInfo).port);
    const taken = await run(["serve", "--no-work", "--port", port]);
    expect(taken).toMatchObject({ code: 4, stderr: expect.stringContaining("--port") });
    expect(await run(["dev", "--port", port])).toMatchObject({ code: 4 });
    other.close();

    // If the usual port is taken, by this test or by another program, `dev` takes another one.
    const usual = createServer().on("error", () => {});
    await new Promise((resolve) =>
      usual.once("error", resolve).listen(8080, "127.0.0.1", () => resolve(null)),
    );
    const dev = start(["dev"]);
    const url = await urlOf(dev);
    expect(url).not.toMatch(/:8080$/);
    expect(dev.output.stderr).toContain(
      `port 8080 is taken, so the server listens on ${new URL(url).port}: choose one with --port`,
    );
    expect(dev.output.stderr).not.toContain("no config");
    usual.close();
    // As a terminal that is closed does.
    expect(await stop(dev, "SIGHUP")).toMatchObject({ code: 0 });
  });

  test("`dev` says where it found no config", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-empty-"));
    const dev = startIn(["dev", "--port", "0"], { cwd });
    others.push(dev);
    await urlOf(dev);
    expect(dev.output.stderr).toContain(
      `there is no config (flotilla.config.ts) in ${cwd}, so no tasks are run: write one, or pass --config`,
    );
    await stop(dev, "SIGTERM");
    rmSync(cwd, { recursive: true, force: true });
  });

  test("`serve` claims nothing where it can't listen", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-taken-"));
    writeFileSync(join(cwd, "flotilla.config.mjs"), config);
    const made = connect(`sqlite:${join(cwd, "flotilla.db")}`, { log: silentLogger });
    const { taskId } = await made.enqueue("mail", { to: "ada" });
    const other = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    const port = String((other.address() as AddressInfo).port);
    expect(await runIn(["serve", "--port", port], { cwd })).toMatchObject({ code: 4 });
    other.close();
    expect(await made.tasks.get(taskId)).toMatchObject({ status: "pending", claimToken: 0 });
    expect(await made.pods()).toEqual([]);
    await made.close();
    rmSync(cwd, { recursive: true, force: true });
  });
});

describe("signals", () => {
  test("a server that is asked to stop isn't ready, stores what comes and begins none of it while its task runs, and a second signal ends it at once", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-stop-"));
    writeFileSync(join(cwd, "flotilla.config.mjs"), config);
    const pod = startIn(["serve", "--port", "0"], { cwd });
    others.push(pod);
    const url = await urlOf(pod);
    const made = connect(`sqlite:${join(cwd, "flotilla.db")}`, { create: false });
    const { taskId } = await made.enqueue("long", null);
    await until(async () => (await made.tasks.get(taskId))?.status === "claimed");
    pod.child.kill("SIGTERM");
    await until(async () => (await fetch(`${url}/health/ready`)).status === 503);
    expect((await fetch(`${url}/health/live`)).status).toBe(200);
    for (const [path, body] of [
      ["tasks", { name: "mail", input: { to: "web" } }],
      ["runs", { flow: "nobody" }],
    ] as const) {
      const headers = { "Content-Type": "application/json" };
      const asked = { method: "POST", headers, body: JSON.stringify(body) };
      const stored = await fetch(`${url}/v1/${path}`, asked);
      expect([stored.status, stored.headers.get("connection")]).toEqual([201, "close"]);
    }
    const { tasks } = await made.tasks.list();
    expect(tasks.map(({ status }) => status).toSorted()).toEqual(["claimed", "pending", "pending"]);
    // It would wait for the task; the second signal is impatience.
    expect(await stop(pod, "SIGINT")).toMatchObject({ code: 130 });
    expect((await made.tasks.get(taskId))?.status).toBe("claimed");
    await made.close();
    rmSync(cwd, { recursive: true, force: true });
  });

  test("`work` ends with 0, though a handler never settles", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-deaf-"));
    const impatient = config.replace("slots: 7", "slots: 7, shutdownMs: 0, graceMs: 0");
    writeFileSync(join(cwd, "flotilla.config.mjs"), impatient);
    const pod = startIn(["work"], { cwd });
    others.push(pod);
    await said(pod, "stderr", /pod started/);
    const made = connect(`sqlite:${join(cwd, "flotilla.db")}`, { create: false });
    const { taskId } = await made.enqueue("deaf", null);
    await until(async () => (await made.tasks.get(taskId))?.status === "claimed");
    expect(await stop(pod, "SIGINT")).toMatchObject({ code: 0 });
    expect(await made.tasks.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
    await made.close();
    rmSync(cwd, { recursive: true, force: true });
  });
});

test("payloads are never logged", async () => {
  const { taskId } = await flotilla.enqueue("mail", { to: "a-secret-address", wrong: undefined });
  await flotilla.tasks.settled(taskId);
  const { taskId: bad } = await flotilla.enqueue("mail", { to: 12_345_678 });
  await flotilla.tasks.settled(bad);
  await said(worker, "stderr", new RegExp(bad));
  expect(worker.output.stderr).not.toMatch(/a-secret-address|12345678/);
  const line = worker.output.stderr.split("\n").find((each) => each.includes(bad));
  expect(JSON.parse(line!)).toMatchObject({ task: bad, name: "mail", attempt: 1, token: 1 });
});

async function urlOf(server: Running): Promise<string> {
  await said(server, "stdout", /listens on http\S+\n/);
  return /listens on (http\S+)/.exec(server.output.stdout)![1]!;
}

async function said(running: Running, stream: "stdout" | "stderr", text: RegExp): Promise<void> {
  await until(() => text.test(running.output[stream]));
}

function stop({ child, ended }: Running, signal: NodeJS.Signals): Promise<Outcome> {
  child.kill(signal);
  return ended;
}

function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  return vi.waitFor(async () => expect(await condition()).toBe(true), {
    timeout: 90_000,
    interval: 50,
  });
}
