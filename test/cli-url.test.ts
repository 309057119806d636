import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { built } from "./built.ts";
import { run as runIn, type Running, start } from "./command.ts";

const key = "a-key-of-16-chars-or-more";
const secret = "a secret of thirty-two characters or more";
const config = `
  import { abort, agent, defineConfig, flow, task } from ${JSON.stringify(built.index)};
  const echo = agent("echo", ({ messages }) => "You said " + messages.at(-1).parts[0].text);
  const mail = task("mail", {}, async ({ input }) => "to " + input.to);
  const doomed = task("doomed", {}, async () => { throw abort("no such address"); });
  const order = flow("order", { version: 1 })
    .to("reserve", () => ({ reserved: true }))
    .signal("approved", {})
    .to("ship", () => {})
    .end();
  export default defineConfig({
    use: [echo, mail, doomed, order],
    server: { apiKeys: ["${key}"], tokens: { secret: "${secret}" } },
  });`;

let folder: string;
let elsewhere: string;
let server: Running;
let url: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-url-"));
  // No store and no config here: what works, works through the server.
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
const through = (bearer: string, args: string[], stdin = "") =>
  runIn([...args, "--url", url], { cwd: elsewhere, stdin, env: { FLOTILLA_API_KEY: bearer } });
const onServer = (...args: string[]) => through(key, args);
/** The same of both ways, which is what both are to show. */
const both = async (...args: string[]) => {
  const [near, far] = await Promise.all([onStore(...args), onServer(...args)]);
  // How long ago something was goes on between the two, and a pod beats with its lag and memory of then.
  const still = ({ stdout, ...rest }: typeof near) => ({
    ...rest,
    // A time of two digits also makes its column wider.
    stdout: stdout.replaceAll(/\b\d+([smh]| ms| MiB)\b */g, "").replaceAll(/ +/g, " "),
  });
  expect(still(far)).toEqual(still(near));
  return far;
};
const begin = async (user: string) => {
  const chat = ["chat", "--agent", "echo", "--user", user];
  expect(await through(key, chat, "hello\n")).toMatchObject({ code: 0 });
  const { stdout } = await onServer("sessions", "--user", user, "--json");
  const { sessions } = JSON.parse(stdout) as { sessions: { sessionId: string }[] };
  return sessions[0]!.sessionId;
};

describe("sessions through a server", () => {
  test("are listed, shown and exported as from the store", async () => {
    const sessionId = await begin("Zoë 🚢");
    const listed = await both("sessions", "--user", "Zoë 🚢");
    expect(listed.stdout).toMatch(new RegExp(`${sessionId} +echo +Zoë 🚢 +idle +2 `));
    await both("sessions", "list", "--json", "--agent", "echo", "--limit", "1");
    const shown = await both("sessions", "show", sessionId, "--last", "1");
    expect(shown.stdout).toContain("  You said hello\n");
    await both("sessions", "show", sessionId, "--json");
    expect((await both("sessions", "export", sessionId)).stdout.trim().split("\n")).toHaveLength(3);
    expect((await both("sessions", "--tenant", "other")).stdout).toBe("no sessions\n");
    expect(await both("sessions", "show", sessionId, "--tenant", "other")).toMatchObject({
      code: 4,
    });
  });

  test("are stopped, archived, opened again and removed", async () => {
    const sessionId = await begin("grace");
    expect((await onServer("sessions", "stop", sessionId)).stdout).toBe(
      "no answer is being made\n",
    );
    expect((await onServer("sessions", "archive", sessionId)).stdout).toContain("is archived");
    expect((await both("sessions", "--status", "archived")).stdout).toContain(sessionId);
    const again = await onServer("sessions", "unarchive", sessionId, "--json");
    expect(JSON.parse(again.stdout)).toEqual({ sessionId, unarchived: true });
    expect((await onServer("sessions", "remove", sessionId)).code).toBe(2);
    expect((await onServer("sessions", "remove", sessionId, "--yes")).code).toBe(0);
    for (const each of ["show", "export", "stop", "archive"]) {
      expect(await onServer("sessions", each, sessionId)).toMatchObject({ code: 4, stdout: "" });
    }
  });

  test("are those of the token's user", async () => {
    const sessionId = await begin("ada");
    const token = (sub: string) =>
      new SignJWT({ sub })
        .setProtectedHeader({ alg: "HS256" })
        .setExpirationTime("5m")
        .sign(new TextEncoder().encode(secret));
    const own = await through(await token("ada"), ["sessions"]);
    expect(own).toMatchObject({ code: 0, stdout: expect.stringContaining(sessionId) });
    const others = await token("eve");
    expect((await through(others, ["sessions"])).stdout).toBe("no sessions\n");
    expect((await through(others, ["sessions", "show", sessionId])).code).toBe(4);
    const agents = await through(others, ["agents"]);
    expect(agents).toMatchObject({ code: 1, stderr: expect.stringContaining("the role `viewer`") });
  });

  test("aren't asked of a server where a store or a config is named", async () => {
    const env = { FLOTILLA_URL: "http://127.0.0.1:1" };
    const store = ["--store", "sqlite:flotilla.db"];
    const asked = (args: string[]) => runIn(["sessions", ...args], { cwd: folder, env });
    const configured = ["--config", "flotilla.config.mjs"];
    for (const named of [store, configured]) {
      expect(await asked(named)).toMatchObject({ code: 0, stderr: "" });
      const both = await asked([...named, "--url", url]);
      const stderr = expect.stringContaining(`give --url or ${named[0]}, not both`);
      expect(both).toMatchObject({ code: 2, stderr });
    }
    const unset = await runIn(["sessions"], { cwd: folder, env: { FLOTILLA_URL: "" } });
    expect(unset).toMatchObject({ code: 0, stderr: "" });
    const away = await asked([]);
    expect(away).toMatchObject({ code: 1, stderr: expect.stringContaining("no answer from") });
    const wrong = await runIn(["sessions", "--url", "localhost:8080"], { cwd: folder });
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining("--url must be") });
    const path = ["agents", "--url", `${url}/wrong`];
    const lost = await runIn(path, { cwd: folder, env: { FLOTILLA_API_KEY: key } });
    expect(lost).toMatchObject({ code: 4, stderr: expect.stringContaining("/wrong/v1/agents") });
  });
});

describe("agents through a server", () => {
  const settings = (during: string) =>
    JSON.stringify({ url: "https://agent.example/chat", during, headers: { "X-Key": "hidden" } });

  test("are listed with those in code, made, changed, shown and removed", async () => {
    expect(await onServer("agents", "set", "team/helper", settings("queue"))).toMatchObject({
      code: 0,
      stdout: "agent team/helper is stored\n",
    });
    const stdin = settings("merge");
    expect((await through(key, ["agents", "set", "team/helper", "-"], stdin)).code).toBe(0);
    const listed = await both("agents");
    expect(listed.stdout).toMatch(/echo +code +queue\n/);
    expect(listed.stdout).toMatch(/team\/helper +stored +https:\S+ +merge +2\n/);
    await both("agents", "list", "--json", "--limit", "1");
    expect((await both("agents", "show", "team/helper")).stdout).not.toContain("hidden");
    await both("agents", "show", "echo", "--json");
    const late = ["agents", "set", "team/helper", settings("queue"), "--if-revision", "1"];
    expect(await both(...late)).toMatchObject({ code: 4 });
    expect(await both("agents", "set", "echo", settings("queue"))).toMatchObject({ code: 4 });
    expect((await onServer("agents", "remove", "team/helper")).code).toBe(0);
    expect(await both("agents", "show", "team/helper")).toMatchObject({ code: 4 });
    expect(await both("agents", "remove", "team/helper")).toMatchObject({ code: 4 });
  });

  test("may be in private networks only where the server says so", async () => {
    const near = JSON.stringify({ url: "http://127.0.0.1:3000" });
    expect((await both("agents", "set", "near", near)).code).toBe(2);
    expect((await onServer("agents", "set", "near", near, "--private")).code).toBe(2);
  });
});

describe("tasks through a server", () => {
  const enqueue = async (...args: string[]) => {
    const { stdout, stderr, code } = await onServer("enqueue", ...args, "--json");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return JSON.parse(stdout) as { taskId: string; created: boolean; result?: unknown };
  };

  test("are stored, waited for, listed, shown, cancelled and started over", async () => {
    const done = await enqueue("mail", `{"to":"ada"}`, "--key", "k", "--wait");
    expect(done).toMatchObject({ created: true, result: "to ada" });
    expect((await enqueue("mail", `{"to":"eve"}`, "--key", "k")).taskId).toBe(done.taskId);
    expect((await both("tasks", "list", "--name", "mail")).stdout).toContain(done.taskId);
    await both("tasks", "--json", "--status", "completed", "--limit", "1");
    const since = ["--since", "2020-01-01"];
    for (const filter of [
      ["--name", "mail", "--key", "k"],
      ["--name", "mail", ...since, "--payload", "to=ada"],
      [...since, "--until", "2120-01-01"],
    ]) {
      expect((await both("tasks", "list", ...filter)).stdout).toContain(done.taskId);
    }
    for (const filter of [
      ["--until", "2020-01-01"],
      ["--pod", "none"],
      ["--session", "none"],
      ["--run", "none"],
      ["--scope", "key/mail/none"],
      ["--group", "g2-0000000000000000"],
      ["--name", "mail", ...since, "--payload", "to=eve"],
    ]) {
      expect(await both("tasks", "list", ...filter)).toMatchObject({
        code: 0,
        stdout: "no tasks\n",
      });
    }
    for (const filter of [
      ["--payload", "to"],
      ["--payload", "to=ada"],
      ["--since", "yesterday"],
      ["--cursor", "made-up"],
    ]) {
      expect(await both("tasks", "list", ...filter)).toMatchObject({ code: 2 });
    }
    expect((await both("runs", "list", "--key", "none", ...since)).stdout).toBe("no runs\n");
    await both("tasks", "show", done.taskId);
    await both("tasks", "show", done.taskId, "--json");
    expect(await both("tasks", "show", "none")).toMatchObject({ code: 4 });
    expect(await both("tasks", "cancel", done.taskId)).toMatchObject({ code: 4 });
    const late = await enqueue("mail", `{"to":"bob"}`, "--delay-ms", "600000");
    expect((await onServer("tasks", "cancel", late.taskId)).stdout).toContain("is cancelled");
    expect((await onServer("tasks", "retry", late.taskId)).stdout).toContain("starts over");
    const prune = ["tasks", "prune", "--older-than", "1", "--yes"];
    const env = { FLOTILLA_URL: url, FLOTILLA_API_KEY: key };
    for (const pruned of [await onServer(...prune), await runIn(prune, { cwd: folder, env })]) {
      expect(pruned).toMatchObject({ code: 2, stderr: expect.stringContaining("needs --store") });
    }
    expect((await onStore("tasks", "prune", "--help")).stdout).not.toContain("--url");
  });

  test("of a file are stored each on its own", async () => {
    const rows = [
      { name: "mail", input: { to: "ada" }, options: { key: "row" } },
      { name: "mail", input: { to: "ada" }, options: { key: "row" } },
      { name: "mail", options: { priority: 1_000 } },
      { name: "unknown" },
    ];
    const stdin = `${rows.map((row) => JSON.stringify(row)).join("\n")}\nnot json\n`;
    const sent = await through(key, ["enqueue", "--file", "-"], stdin);
    expect(sent).toMatchObject({ code: 1 });
    expect(sent.stdout).toBe("5 rows: 2 created, 1 existed, 2 rejected\n");
    expect(sent.stderr).toMatch(/line 3: \w+: .*priority[^]*line 5: [^]*unknown/);
    const refused = await through("a-wrong-key-of-16-chars", ["enqueue", "--file", "-"], stdin);
    expect(refused).toMatchObject({ code: 1, stdout: "" });
  });

  test("are counted, paused, limited and shown with their pods", async () => {
    expect((await onServer("pause", "mail", "--reason", "why")).stdout).toMatch(/mail +paused/);
    const held = await enqueue("mail", `{"to":"ada"}`);
    expect((await both("tasks", "show", held.taskId)).stdout).toMatch(
      /"mail" is paused by key\/#0 since \S+: why/,
    );
    await both("stats");
    await both("stats", "--exact");
    await both("resume", "nothing", "--json");
    expect((await onServer("resume", "mail")).stdout).toBe("nothing is paused\n");
    expect((await onServer("limits", "set", "tenant/acme", "5")).stdout).toContain("5 of tenant");
    expect((await both("limits")).stdout).toContain("tenant/acme");
    await both("limits", "list", "--json");
    await onServer("limits", "unset", "tenant/acme");
    expect((await both("pods")).stdout).toContain("up");
    const { podId } = JSON.parse((await onServer("pods", "--json")).stdout).pods[0];
    expect((await onServer("pods", "drain", podId)).stdout).toContain("takes no more work");
    const drained = async () => (await onStore("pods")).stdout.includes("drained: takes no work");
    await vi.waitUntil(drained, { timeout: 90_000 });
    expect((await onStore("pods", "undrain", podId)).stdout).toContain("takes work again");
    await vi.waitUntil(async () => !(await drained()), { timeout: 90_000 });
    expect(await both("pods", "drain", "none")).toMatchObject({ code: 4 });
    expect((await both("throttles")).stdout).toContain("no throttles");
    expect(await both("throttles", "show", "none")).toMatchObject({ code: 4 });
  });

  test("that match a filter are previewed, cancelled at once, and followed", async () => {
    const ids: string[] = [];
    for (let at = 0; at < 3; at++) {
      const { stdout } = await onStore("enqueue", "batch", "1", "--delay-ms", "3600000", "--json");
      ids.push(JSON.parse(stdout).taskId);
    }
    const act = ["bulk", "cancel", "--name", "batch"];
    const preview = await both(...act, "--preview");
    expect(preview.stdout).toContain("cancel would be for 3 tasks");
    for (const id of ids) expect(preview.stdout).toContain(id);
    expect(await both(...act)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("3 tasks: add --yes"),
    });
    expect(await both("bulk", "cancel", "--yes")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("the filter is empty"),
    });
    const narrow = ["--since", "2020-01-01", "--payload", "none=1", "--preview"];
    expect((await both(...act, ...narrow)).stdout).toContain("cancel would be for 0 tasks");
    expect((await both("tasks", "--from", ids[1]!, "--name", "batch")).stdout).not.toContain(
      ids[0],
    );
    const done = await onServer(...act, "--yes", "--reason", "a wrong batch");
    expect(done.stdout).toMatch(/^bulk \S+\ndone: 3 tasks done\n$/);
    const listed = await both("bulk");
    expect(listed.stdout).toMatch(/cancel +name batch +done/);
    const [, bulkId] = /^bulk (\S+)/.exec(done.stdout)!;
    expect((await both("bulk", "follow", bulkId!)).stdout).toBe("done: 3 tasks done\n");
    expect(await both("bulk", "stop", bulkId!)).toMatchObject({ code: 4 });
  });

  test("that failed are grouped, redriven and discarded", async () => {
    const { taskId } = await enqueue("doomed");
    const failed = async () => (await onStore("tasks", "--status", "failed")).stdout;
    await vi.waitUntil(async () => (await failed()).includes(taskId), { timeout: 90_000 });
    const groups = await both("dlq", "list", "--json");
    const [{ group }] = (JSON.parse(groups.stdout) as { groups: [{ group: string }] }).groups;
    await both("dlq");
    await both("dlq", "show", group);
    await both("dlq", "show", taskId, "--json");
    expect((await onServer("dlq", "resolve", group)).stdout).toBe(`group ${group} is resolved\n`);
    expect((await both("dlq")).stdout).toContain("resolved: aborted");
    const ignored = await onServer("dlq", "ignore", group, "--until", "2999-01-01T00:00:00Z");
    expect(ignored.stdout).toBe(`group ${group} is ignored until 2999-01-01T00:00:00.000Z\n`);
    expect((await both("dlq")).stdout).toBe(
      "no failed tasks\n1 ignored group: --state ignored shows them\n",
    );
    await both("dlq", "list", "--state", "ignored", "--json");
    expect((await both("dlq", "discard", "--all")).stderr).toContain("1 failed task");
    expect((await onServer("dlq", "reopen", group)).stdout).toBe(`group ${group} is open\n`);
    const stopped = await onServer("dlq", "redrive", group, "--json");
    expect(stopped).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("the redrive stopped"),
    });
    await both("dlq", "redrives", "--json");
    expect((await both("dlq", "discard", "--all")).stderr).toContain("1 failed task");
    expect((await onServer("dlq", "discard", "--all", "--yes")).stdout).toBe(
      "discarded 1 failed task\n",
    );
  });
});

describe("runs and schedules through a server", () => {
  test("are started, shown, signalled and cancelled", async () => {
    const begun = await onServer("runs", "start", "order", "{}");
    expect(begun).toMatchObject({ code: 0, stderr: "" });
    const runId = begun.stdout.trim();
    const waits = async () => (await onStore("runs", "show", runId)).stdout.includes("approved");
    await vi.waitUntil(waits, { timeout: 90_000 });
    expect((await both("runs", "list", "--flow", "order", "--status", "open")).stdout).toContain(
      runId,
    );
    await both("runs", "--set-aside");
    await both("runs", "show", runId, "--json");
    await both("runs", "show", runId);
    const other = (await onServer("runs", "start", "order", "{}", "--json")).stdout;
    const { runId: otherId } = JSON.parse(other) as { runId: string };
    expect((await onServer("runs", "cancel", otherId)).stdout).toContain("will be cancelled");
    expect(await onServer("runs", "signal", runId, "approved", `"yes"`)).toMatchObject({ code: 0 });
    const ended = async () => (await onStore("runs", "show", runId)).stdout.includes("completed");
    await vi.waitUntil(ended, { timeout: 90_000 });
    expect(await both("runs", "cancel", runId)).toMatchObject({ code: 4 });
    const flows = await onServer("flows", "--json");
    expect(JSON.parse(flows.stdout)).toMatchObject({ flows: [{ flow: "order", completed: 1 }] });
  });

  test("are stored, shown, paused, fired and removed", async () => {
    const add = [
      "schedules",
      "add",
      "poll",
      "mail",
      `{"to":"ada"}`,
      "--every-ms",
      "3600000",
      "--concurrency-key",
      "ada",
    ];
    expect(await onServer(...add)).toMatchObject({ code: 0, stderr: "" });
    expect((await onStore(...add, "--json")).stdout).toBe(
      (await onServer(...add, "--json")).stdout,
    );
    expect((await both("schedules")).stdout).toMatch(/poll +mail +every 3600000 ms/);
    await both("schedules", "show", "poll");
    await both("schedules", "list", "--json");
    expect((await onServer("schedules", "pause", "poll")).stdout).toContain("is paused");
    expect((await onServer("schedules", "resume", "poll")).stdout).toContain("resumes at");
    expect((await onServer("schedules", "fire", "poll")).stdout).toMatch(/^[0-9a-f-]{36}\n$/);
    expect((await onServer("schedules", "remove", "poll")).code).toBe(0);
    expect(await both("schedules", "remove", "poll")).toMatchObject({ code: 4 });
    expect(await both("schedules", "show", "poll")).toMatchObject({ code: 4 });
  });
});

describe("a server that isn't to be trusted", () => {
  const evil = "\u001b[2J\u009b31m\u202e\u200b\r";
  // oxlint-disable-next-line no-control-regex
  const visible = /^[^\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e]*$/;
  const times = { createdAtMs: 0, updatedAtMs: 0, runAtMs: 0, scheduledAtMs: null };
  const task = {
    ...times,
    taskId: `id${evil}`,
    name: `name${evil}`,
    status: `state${evil}`,
    claimedBy: `pod${evil}`,
    tenant: evil,
    key: evil,
    waitsFor: [evil],
    error: { code: evil, message: evil },
    payload: evil,
    progress: null,
    flowVersion: null,
    version: null,
    throttledBy: null,
    maxAttempts: null,
    deaths: 0,
  };
  const event = { atMs: 0, type: evil, attempt: 1, podId: evil, detail: evil };
  const redrive = {
    redriveId: evil,
    state: evil,
    selection: { name: evil },
    createdAtMs: 0,
    taken: 1,
    remaining: 0,
    succeeded: 0,
    reason: { message: evil },
  };
  const standing = { state: evil, untilMs: null, cameBackAtMs: null, firstSeenMs: 0 };
  const group = { group: evil, name: evil, code: evil, message: evil, tasks: 1, ...standing };
  const pod = { podId: evil, status: evil, birthMs: 0, lastHeartbeatMs: 0, metadata: {} };
  const answers: Record<string, object> = {
    "/v1/tasks": { tasks: [task], next: evil },
    "/v1/tasks/t": { task: { ...task, status: "claimed" }, events: [event] },
    "/v1/tasks/t/events": { events: [event] },
    "/v1/dlq/redrives": { redrives: [redrive], next: null },
    "/v1/dlq/groups": {
      groups: [group],
      count: 1,
      tasks: 1,
      ignored: { groups: 0, tasks: 0 },
    },
    "/v1/pods": { pods: [pod] },
    "/v1/pauses": { paused: [{ name: evil, sinceMs: 0, reason: evil }] },
  };
  const evilServer = createServer(({ url = "" }, response) => {
    const answer = answers[new URL(url, "http://localhost").pathname];
    if (answer === undefined) response.statusCode = 404;
    const error = { code: "not_found", message: `none ${evil}` };
    response.end(JSON.stringify(answer ?? { error }));
  });
  let at: string;
  beforeAll(async () => {
    await new Promise<void>((resolve) => evilServer.listen(0, "127.0.0.1", resolve));
    at = `http://127.0.0.1:${(evilServer.address() as AddressInfo).port}`;
  });
  afterAll(() => evilServer.close());

  test.each([
    ["tasks", "list"],
    ["tasks", "show", "t"],
    ["dlq", "redrives"],
    ["dlq", "list"],
    ["pods"],
    ["resume", "mail"],
    ["sessions"],
  ])("can't move the cursor or hide text: %s %s", async (...words) => {
    const env = { FORCE_COLOR: "1" };
    const args = [...words, "--url", at];
    const [plain, coloured] = [
      await runIn(args, { cwd: elsewhere }),
      await runIn(args, { cwd: elsewhere, env }),
    ];
    expect(plain.stdout + plain.stderr).toMatch(visible);
    expect(plain.stdout + plain.stderr).toMatch(/\\u\{202e\}/);
    expect(plain.stderr).not.toContain("    at ");
    // oxlint-disable-next-line no-control-regex
    const ownColours = /\u001b\[(?:1|2|22|31|32|33|36|39|90)m/g;
    expect(coloured.stdout.replaceAll(ownColours, "")).toMatch(visible);
  });
});

describe("what waits", () => {
  test("is said with its reasons and what to do, alike by a store and by a server", async () => {
    const { stdout } = await onServer("runs", "start", "order", "{}", "--json");
    const { runId } = JSON.parse(stdout) as { runId: string };
    const isWaiting = async () => (await onServer("why", runId)).stdout.includes("the signal");
    await vi.waitUntil(isWaiting, { timeout: 90_000, interval: 500 });
    const why = await both("why", runId);
    expect(why.stdout).toMatch(
      /^run of order: pending\n1\. it waits for the signal "approved" since \S+\n/,
    );
    expect(why.stdout).toContain(`$ flotilla runs signal ${runId} approved\n`);
    expect((await both("approvals")).stdout).toMatch(new RegExp(`run +order +${runId} +approved`));
    expect((await both("runs", "show", runId)).stdout).toMatch(/why +it waits for the signal/);
    expect(await both("why", "none")).toMatchObject({ code: 4 });
    expect(await both("schedules", "firings", "none")).toMatchObject({ code: 4 });
    expect((await both("throttles", "events", "none")).stdout).toBe("no changes are kept\n");
    expect((await both("throttles", "holders", "none")).stdout).toBe("no permits are in use\n");
  });
});
