import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { built } from "./built.ts";
import { run as runIn, type Running, start } from "./command.ts";

const key = "a-key-of-16-chars-or-more";
const secret = "a secret of thirty-two characters or more";
const config = `
  import { agent, defineConfig } from ${JSON.stringify(built.index)};
  const echo = agent("echo", ({ messages }) => "You said " + messages.at(-1).parts[0].text);
  export default defineConfig({
    use: [echo],
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
    timeout: 60_000,
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
  // How long ago something was goes on between the two.
  const still = ({ stdout, ...rest }: typeof near) => ({
    ...rest,
    stdout: stdout.replaceAll(/\d+[smh] +/g, ""),
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
    expect(agents).toMatchObject({ code: 1, stderr: expect.stringContaining("doesn't allow") });
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
    expect(away).toMatchObject({ code: 1, stderr: expect.stringContaining("can't be reached") });
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
