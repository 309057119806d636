import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../src/base/contract/movable-clock.ts";
import { connect } from "../src/runtime/connect.ts";
import { ask, signInWith } from "../src/server/contract/signed-in.ts";
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

describe("sign-ins on the command line", () => {
  test("are listed and ended, on the store and through a server, by their own key and by an administrator", async () => {
    const made = await run("keys", "create", "ops", "--role", "viewer");
    const key = made.stdout.trim();
    const first = await signInWith({ url }, key);
    const second = await signInWith({ url }, key);
    await signInWith({ url }, root);
    const status = async (cookie: string) =>
      (await ask({ url }, "/v1/pods", { headers: { Cookie: cookie } })).status;
    expect([await status(first), await status(second)]).toEqual([200, 200]);

    const all = await run("sign-ins");
    expect(all.stdout).toMatch(/root +admin +any +http:\/\/127\.0\.0\.1:\d+ +127\.0\.0\.1/);
    expect(all.stdout).not.toContain(first.split("=")[1]);
    const own = await throughServer(key, "sign-ins", "list", "--json");
    const { signIns } = JSON.parse(own.stdout) as { signIns: { signInId: string }[] };
    expect(signIns).toMatchObject([{ keyName: "ops" }, { keyName: "ops" }]);
    const [later, earlier] = signIns.map(({ signInId }) => signInId) as [string, string];

    expect(await throughServer(key, "sign-ins", "end", earlier)).toMatchObject({
      code: 0,
      stdout: `sign-in ${earlier} (key ops) is ended\n`,
    });
    await until("its end", async () => (await status(first)) === 401);
    expect(await status(second)).toBe(200);
    const other = JSON.parse((await run("sign-ins", "list", "--json")).stdout) as {
      signIns: { signInId: string; keyName: string }[];
    };
    const rootId = other.signIns.find(({ keyName }) => keyName === "root")!.signInId;
    expect(await throughServer(key, "sign-ins", "end", rootId)).toMatchObject({
      code: 4,
      stderr: expect.stringContaining("there is no sign-in"),
    });
    expect(await run("sign-ins", "end", later)).toMatchObject({ code: 0 });
    await until("its end", async () => (await status(second)) === 401);
    expect(await throughServer(root, "sign-ins", "end", rootId)).toMatchObject({ code: 0 });
    expect((await run("sign-ins")).stdout).toBe("no sign-ins\n");
    const ended = await run("audit", "--action", "sign-ins.end", "--json");
    expect(ended.stdout).toContain(later);
    expect(ended.stdout).toContain(rootId);
    expect(ended.stdout).not.toContain(earlier);
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
