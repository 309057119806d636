import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { connect, type Flotilla } from "../src/runtime/connect.ts";
import { run as runIn, type Running, start } from "./command.ts";

const key = "a-key-of-16-chars-or-more";
const hostile = "evil\u001b[2J\ntenant";
let folder: string;
let flotilla: Flotilla;
let server: Running;
let url: string;
/** What was shown before any tenant was counted. */
let before: string;
const run = (...args: string[]) => runIn(args, { cwd: folder });
const onServer = (...args: string[]) =>
  runIn([...args, "--url", url], { cwd: folder, env: { FLOTILLA_API_KEY: key } });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-quotas-"));
  const quotas = { perTenant: { requestsPerMinute: 600 }, tenants: { acme: { sessions: 5 } } };
  const config = { server: { apiKeys: [key], quotas } };
  writeFileSync(join(folder, "flotilla.config.mjs"), `export default ${JSON.stringify(config)};`);
  flotilla = connect(`sqlite:${join(folder, "flotilla.db")}`);
  await flotilla.tasks.stats();
  before = (await run("quotas")).stdout;
  server = start(["dev", "--port", "0"], { cwd: folder });
  url = await vi.waitUntil(() => /listens on (\S+)/.exec(server.output.stdout)?.[1], {
    timeout: 90_000,
  });
  for (const tenant of ["acme", "acme", hostile])
    await flotilla.sessionService.create(tenant, { users: ["ada"] });
});
afterAll(async () => {
  server.child.kill("SIGKILL");
  await server.ended;
  await flotilla.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("quotas on the command line", () => {
  test("are shown with what is used, on the store and through a server alike", async () => {
    expect(before).toMatch(/^no tenant is counted/);
    const near = JSON.parse((await run("quotas", "--json")).stdout);
    expect(near).toMatchObject({
      tenants: [
        {
          tenant: "acme",
          used: { sessions: 2, turnsAtOnce: 0, storedBytes: 0 },
          limits: { requestsPerMinute: 600, sessions: 5, turnsAtOnce: null, storedBytes: null },
        },
        { tenant: hostile, used: { sessions: 1 }, limits: { sessions: null } },
      ],
      next: null,
    });
    const far = JSON.parse((await onServer("quotas", "--json")).stdout);
    expect(far.tenants).toMatchObject(near.tenants);
    expect((await run("quotas", "acme")).stdout).toMatch(/acme +\? of 600 +2 of 5 +0 +0\n$/);
    expect((await onServer("quotas", "acme")).stdout).toMatch(/acme +0 of 600 +2 of 5 +0 +0\n$/);
  });

  test("show names of tenants in one line, and come in pages", async () => {
    const { stdout } = await run("quotas");
    expect(stdout).not.toContain("\u001b[2J");
    expect(stdout.trim().split("\n")).toHaveLength(3);
    const first = await run("quotas", "--limit", "1");
    expect(first.stdout).toContain("more: --cursor acme");
    const second = await run("quotas", "--limit", "1", "--cursor", "acme", "--json");
    expect(JSON.parse(second.stdout).tenants).toMatchObject([{ tenant: hostile }]);
  });
});
