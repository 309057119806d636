import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { built } from "../built.ts";
import { run, start } from "../command.ts";
import { type NatsServer, startNats } from "./server.ts";

let folder: string;
let server: NatsServer;
let place: Awaited<ReturnType<typeof temporaryDatabase>>;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-nats-command-"));
  server = await startNats({ config: "authorization { token: hunter2 }" });
  place = await temporaryDatabase();
  writeFileSync(
    join(folder, "flotilla.config.mjs"),
    `import { defineConfig, task } from ${JSON.stringify(built.index)};
    export default defineConfig({
      use: [task("mail", {}, () => null)],
      nats: { servers: "nats://127.0.0.1:1", namespace: "app" },
    });`,
  );
});
afterEach(async () => {
  await place.remove();
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

const at = (secret: string) => server.url.replace("//", `//${secret}@`);

test("a server says whether NATS is away, and is ready all the same", async () => {
  // The variable comes before the config, which has the rest.
  const env = { FLOTILLA_NATS: at("hunter2"), FLOTILLA_STORE: place.url };
  const { child, output, ended } = start(["serve", "--port", "0"], { cwd: folder, env });
  try {
    await expect.poll(() => output.stdout).toMatch(/listens on (\S+)/);
    const [, url] = /listens on (\S+)/.exec(output.stdout)!;
    const health = async () => {
      const answer = await fetch(`${url}/health/ready`);
      return { status: answer.status, body: await answer.json() };
    };
    const metrics = async () => (await fetch(`${url}/metrics`)).text();
    await expect
      .poll(health)
      .toEqual({ status: 200, body: { status: "ready", nats: "connected" } });
    expect(await metrics()).toMatch(/^flotilla_nats_connected 1$/m);
    await server.kill();
    await expect.poll(health).toEqual({ status: 200, body: { status: "ready", nats: "away" } });
    expect(await metrics()).toMatch(/^flotilla_nats_connected 0$/m);
    await server.start();
    await expect
      .poll(health)
      .toEqual({ status: 200, body: { status: "ready", nats: "connected" } });
  } finally {
    child.kill("SIGTERM");
  }
  const { code, stderr } = await ended;
  expect(code).toBe(0);
  expect(stderr).toContain('"namespace":"app"');
  expect(stderr).toContain("NATS is away");
  expect(stderr).toContain("NATS is back");
  expect(stderr).not.toContain("hunter2");
});

test("the doctor tries NATS as a pod does", async () => {
  const doctor = (servers: string) =>
    run(["doctor", "--store", place.url], { cwd: folder, env: { FLOTILLA_NATS: servers } });
  const { stdout } = await doctor(at("hunter2"));
  expect(stdout).toMatch(/ok\s+nats\s+version 2\.\d+\.\d+ at 127\.0\.0\.1:\d+, as app/);
  const refused = await doctor(at("wrong"));
  expect(refused.code).toBe(1);
  expect(refused.stdout).toMatch(/fail\s+nats\s+.*refuse these credentials/);
  expect(refused.stdout + refused.stderr).not.toContain("wrong");
});

test("a pod that may not use NATS ends with one sentence", async () => {
  const env = { FLOTILLA_NATS: at("wrong"), FLOTILLA_STORE: place.url };
  const { code, stderr } = await run(["work"], { cwd: folder, env });
  expect(code).not.toBe(0);
  expect(stderr).toContain("refuse these credentials: set nats.credentials to what they know");
  expect(stderr).not.toContain("hunter2");
  expect(stderr).not.toContain("    at ");
});

test("a command on the store with NATS ends when it is done", async () => {
  const env = { FLOTILLA_NATS: at("hunter2"), FLOTILLA_STORE: place.url };
  expect((await run(["migrate"], { cwd: folder, env })).code).toBe(0);
  const { code, stderr } = await run(["enqueue", "mail", "{}"], { cwd: folder, env });
  expect({ code, stderr }).toMatchObject({ code: 0 });
  const onFile = { ...env, FLOTILLA_STORE: "sqlite:flotilla.db" };
  const refused = await run(["work"], { cwd: folder, env: onFile });
  expect(refused.stderr).toContain("`nats` needs a store on Postgres");
});
