import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requestOf, readAnswer, secret } from "../../src/agent/contract/requests.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { connect, type Flotilla } from "../../src/runtime/connect.ts";
import { part } from "../parts.ts";
import { fetched } from "./fetched.ts";
import { compile, installTarball, packTarball } from "./package.ts";

const version = "16.4.6";
const beside = ["react", "react-dom", "ai", "@ai-sdk/react", "@types/react", "@types/node"];
const env: NodeJS.ProcessEnv = {
  ...process.env,
  AGENT_SECRET: secret,
  NEXT_TELEMETRY_DISABLED: "1",
};
let flotilla: Flotilla | undefined;
let url: string;
let folder: string;
let project: string;
let next: string;
let server: ChildProcess | undefined;

beforeAll(async () => {
  const found = fetched("next", [`next@${version}`, ...[...beside, "typescript"].map(asHere)]);
  if ("none" in found) throw new Error(`there is no Next.js to build with: ${found.none}`);
  next = join(found.folder, "node_modules/next/dist/bin/next");
  folder = mkdtempSync(join(tmpdir(), "flotilla-next-pack-"));
  // It takes no packages from outside of the folder that it is told is the root of everything.
  mkdirSync(join(found.folder, "runs"), { recursive: true });
  project = mkdtempSync(join(found.folder, "runs/"));
  cpSync(fileURLToPath(new URL("next", import.meta.url)), project, { recursive: true });
  installTarball(await packTarball(folder), project, []);
  const store = `sqlite:${join(folder, "next.db")}`;
  env["FLOTILLA_STORE"] = store;
  flotilla = connect(store);
}, 600_000);
afterAll(async () => {
  await flotilla?.close();
  if (server?.exitCode === null) {
    const ended = once(server, "exit");
    server.kill("SIGKILL");
    await ended;
  }
  for (const each of [folder, project]) if (each) rmSync(each, { recursive: true, force: true });
});

describe("an app of Next.js that has installed the package", () => {
  test("compiles: hooks in pages, an agent and the dashboard behind routes", () => {
    expect(() => compile(project)).not.toThrow();
  });

  test("builds, and serves pages that hooks are in and the agent", async () => {
    execFileSync(process.execPath, [next, "build"], { cwd: project, env, stdio: "pipe" });
    server = spawn(process.execPath, [next, "start", "--port", "0"], { cwd: project, env });
    let output = "";
    server.stdout!.on("data", (more: Buffer) => (output += more.toString()));
    server.stderr!.on("data", (more: Buffer) => (output += more.toString()));
    url = await until("a server", () => {
      if (server!.exitCode !== null) throw new Error(output);
      return /http:\/\/localhost:[1-9]\d*/.exec(output)?.[0];
    });
    const page = await (await fetch(url)).text();
    expect(page.replaceAll("<!-- -->", "")).toContain("idle, 0 messages, inbox idle with 0");

    const asking = requestOf({ url: `${url}/api/agent` });
    const answer = await readAnswer(await fetch(asking));
    expect(answer.done).toBe(true);
    expect(JSON.stringify(answer.chunks)).toContain("you have said 1 things");
    expect((await fetch(`${url}/api/agent`, { method: "POST", body: "{}" })).status).toBe(401);
  }, 600_000);

  test("has the dashboard below one of its own pages", async () => {
    const cookie = "who=ada";
    const { taskId } = await flotilla!.enqueue("mail", { to: "ada" } as never);
    expect((await fetch(`${url}/ops/v1/tasks`)).status).toBe(401);
    const refused = await fetch(`${url}/ops/tasks`, { headers: { Accept: "text/html" } });
    expect([refused.status, await refused.text()]).toEqual([
      401,
      expect.stringContaining("Sign in first"),
    ]);
    const origin = "https://app.example.com";
    const preflight = await fetch(`${url}/ops/v1/tasks`, {
      method: "OPTIONS",
      headers: { origin, "Access-Control-Request-Method": "POST" },
    });
    expect(preflight.headers.get("access-control-allow-origin")).toBe(origin);
    const live = await fetch(`${url}/ops/v1/watch?topics=pods`, { headers: { cookie } });
    const reader = live.body!.getReader();
    let text = "";
    while (!text.includes("event: ")) text += new TextDecoder().decode((await reader.read()).value);
    await reader.cancel();

    // Its sandbox doesn't work for root.
    const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    await using browser = await chromium.launch({ executablePath: part("chromium"), args });
    const context = await browser.newContext({ locale: "en-GB" });
    const [name = "", value = ""] = cookie.split("=");
    await context.addCookies([{ name, value, url }]);
    context.setDefaultTimeout(60_000);
    const page = await context.newPage();
    const troubles: string[] = [];
    page.on("pageerror", (error) => troubles.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error") troubles.push(message.text());
    });
    await page.goto(`${url}/ops`);
    const overview = page.getByRole("heading", { level: 1, name: "Overview" });
    await overview.waitFor().catch(async (error: unknown) => {
      const shown = await page.locator("body").innerText();
      const message = `the page shows ${JSON.stringify(shown)}, with these troubles: ${troubles.join()}`;
      throw new Error(message, { cause: error });
    });
    await page.getByRole("navigation").getByRole("link", { name: "Tasks" }).click();
    await page.getByRole("heading", { level: 1, name: "Tasks" }).waitFor();
    await page.getByRole("link", { name: "mail" }).first().click();
    await page.waitForURL(`${url}/ops/tasks/${taskId}`);
    await page.reload();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page
      .getByRole("dialog", { name: "Cancel this task?" })
      .getByRole("button", { name: "Cancel it" })
      .click();
    await until("the act", async () => {
      return (await flotilla!.tasks.get(taskId))?.status === "cancelled";
    });
  }, 600_000);
});

/** The version that the tests use themselves. */
function asHere(name: string): string {
  const path = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
  const { version: here } = JSON.parse(readFileSync(path, "utf8")) as { version: string };
  return `${name}@${here}`;
}
