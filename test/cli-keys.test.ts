import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../src/base/contract/movable-clock.ts";
import { connect } from "../src/runtime/connect.ts";
import { type Running, run as runIn, start } from "./command.ts";

let folder: string;
let server: Running;
let url: string;
let root: string;
const run = (...args: string[]) => runIn(args, { cwd: folder });
const throughServer = (key: string, ...args: string[]) =>
  runIn([...args, "--url", url], { cwd: folder, env: { FLOTILLA_API_KEY: key } });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-"));
  const flotilla = connect(`sqlite:${join(folder, "flotilla.db")}`);
  await flotilla.tasks.stats();
  await flotilla.close();
  root = (await run("keys", "create", "root", "--role", "admin", "--payloads")).stdout.trim();
  // No other machine is called, but any could call it: it needs a key from everyone.
  const env = { FLOTILLA_KEYS: "store" };
  server = start(["serve", "--host", "0.0.0.0", "--port", "0"], { cwd: folder, env });
  const listens = /listens on http:\/\/0\.0\.0\.0:(\d+)/;
  const [, port] = await until("the server", () => listens.exec(server.output.stdout));
  url = `http://127.0.0.1:${port}`;
});
afterAll(async () => {
  server.child.kill();
  await server.ended;
  rmSync(folder, { recursive: true, force: true });
});

describe("keys on the command line", () => {
  test("are printed once, alone on standard output, and open a server that listens for others", async () => {
    expect(root).toMatch(/^fl_[\w-]{43}$/);
    const listed = await throughServer(root, "keys", "list");
    expect(listed).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/root +admin +any +yes/),
    });
    expect(listed.stdout).not.toContain("fl_");
    const refused = await runIn(["keys", "list", "--url", url], { cwd: folder });
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("send one of") });
  });

  test("are made, rotated and revoked through a server, which refuses them at once", async () => {
    const creating = ["keys", "create", "ci", "--role", "admin", "--expires-at", "2999-01-31"];
    const made = await throughServer(root, ...creating, "--json");
    expect(made.code).toBe(0);
    const { key, text } = JSON.parse(made.stdout) as { key: { keyId: string }; text: string };
    expect(key).toMatchObject({ name: "ci", createdBy: "root", expiresAtMs: 32474736000000 });
    expect(await throughServer(text, "tasks", "list")).toMatchObject({ code: 0 });
    const rotated = await throughServer(root, "keys", "rotate", key.keyId, "--overlap-ms", "60000");
    expect(rotated).toMatchObject({ code: 0, stderr: expect.stringContaining("works until") });
    expect(await throughServer(rotated.stdout.trim(), "tasks", "list")).toMatchObject({ code: 0 });
    expect(await throughServer(text, "tasks", "list")).toMatchObject({ code: 0 });
    expect(await throughServer(root, "keys", "revoke", key.keyId)).toMatchObject({
      code: 0,
      stdout: `key ${key.keyId} (ci) is revoked\n`,
    });
    const refused = await throughServer(text, "tasks", "list");
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("was revoked") });
  });

  test("are made, rotated and revoked on the store as well", async () => {
    const made = await run(
      "keys",
      "create",
      "app",
      "--role",
      "viewer",
      "--tenant",
      "acme",
      "--json",
    );
    const { key } = JSON.parse(made.stdout) as { key: { keyId: string } };
    expect(key).toMatchObject({ tenant: "acme", createdBy: expect.any(String) });
    const rotated = await run("keys", "rotate", key.keyId, "--json");
    expect(JSON.parse(rotated.stdout)).toMatchObject({ replaced: { keyId: key.keyId } });
    expect(await run("keys", "revoke", key.keyId)).toMatchObject({ code: 0 });
    expect((await run("keys")).stdout).toMatch(/app +viewer +acme +no +revoked/);
  });

  test.each([
    [["create", "ci"]],
    [["create", "ci", "--role", "root"]],
    [["create", "ci", "--role", "admin", "--tenant", "acme"]],
    [["create", "ci", "--role", "viewer", "--expires-at", "soon"]],
    [["create", "ci", "--role", "viewer", "--expires-at", "2001-01-01"]],
    [["rotate", "x", "--overlap-ms", "-1"]],
  ])("are refused: %j", async (args) => {
    expect(await run("keys", ...args)).toMatchObject({ code: 2, stdout: "" });
  });
});

describe("tokens on the command line", () => {
  test("are revoked and listed, on the store and through a server", async () => {
    expect(await run("tokens", "revoke", "--jti", "one")).toMatchObject({
      code: 0,
      stdout: "the token one is refused\n",
    });
    const ofUser = ["tokens", "revoke", "--user", "ada", "--tenant", "acme", "--json"];
    const revoked = await throughServer(root, ...ofUser);
    expect(JSON.parse(revoked.stdout)).toMatchObject({
      revocation: { user: "ada", tenant: "acme", createdBy: "root" },
    });
    const listed = await throughServer(root, "tokens", "list");
    expect(listed.stdout).toMatch(/the token one .*\n.*what ada of acme was issued before/);
    expect((await run("tokens", "list")).stdout).toBe(listed.stdout);
    expect(await run("tokens", "revoke")).toMatchObject({ code: 2 });
    expect(await run("tokens", "revoke", "--jti", "a", "--user", "b")).toMatchObject({ code: 2 });
  });
});
