import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { launch, openContext, patienceMs } from "../browser/browser.ts";
import { freePort } from "../free-ports.ts";
import { readGuide } from "./guide.ts";
import { compile, installTarball, link, packTarball } from "./package.ts";

const installed = ["ai", "@ai-sdk/react", "react", "react-dom", "vite", "@vitejs/plugin-react"];
const types = ["@types/react", "@types/react-dom", "@types/node", "undici-types"];
const guide = readGuide("docs/quickstart.md");
const children = new Set<ChildProcess>();
let folder: string;
let project: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-quickstart-"));
  project = join(folder, "my-chat");
  mkdirSync(project);
  installTarball(await packTarball(folder), project, [...installed, ...types]);
  writeFileSync(join(project, "package.json"), `{ "type": "module" }`);
  guide.writeInto(project);
}, 180_000);
afterEach(async () => {
  await Promise.all([...children].map(stop));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const flotilla = () => join(project, "node_modules/flotilla/bin/flotilla.js");
const vite = () => join(project, "node_modules/vite/bin/vite.js");

describe("the quickstart", () => {
  test("installs what its files import", () => {
    const commands = guide.block("npm install flotilla");
    for (const name of [...installed, ...types.filter((each) => each !== "undici-types")]) {
      expect(commands).toMatch(new RegExp(` ${name}( |\n)`));
    }
  });

  test("has files that compile, with either line of the AI SDK", () => {
    const model = `import { agent } from "flotilla";\n${guide.block("streamText(")}`;
    writeFileSync(join(project, "model.ts"), `${model}export { helper };\n`);
    const users = `import { createClient } from "flotilla/client";\n${guide.block("/my/token")}`;
    writeFileSync(join(project, "users.ts"), `${users}export { client };\n`);
    expect(() => compile(project)).not.toThrow();
    link(project, "ai", "ai-sdk-react-3/node_modules/ai");
    link(project, "@ai-sdk/react", "ai-sdk-react-3");
    expect(versionOf("ai")).toMatch(/^6\./);
    expect(() => compile(project)).not.toThrow();
    link(project, "ai");
    link(project, "@ai-sdk/react");
    expect(versionOf("ai")).toMatch(/^7\./);
  }, 180_000);

  test("builds a page that brings nothing of Node, and that the server serves", async () => {
    execFileSync(process.execPath, [vite(), "build"], { cwd: project, stdio: "pipe" });
    const scripts = globSync("dist/assets/*.js", { cwd: project });
    expect(scripts.length).toBeGreaterThan(0);
    for (const name of scripts) {
      expect(readFileSync(join(project, name), "utf8")).not.toMatch(/["'`]node:/);
    }
    const own = guide.files.get("flotilla.config.ts")!;
    const [before] = own.split("export default");
    writeFileSync(join(project, "pages.config.ts"), before + guide.block("pages:"));
    const { url } = await dev(["--config", "pages.config.ts"]);
    const page = await fetch(`${url}/chat/`);
    expect([page.status, await page.text()]).toEqual([200, expect.stringContaining("My chat")]);
  }, 180_000);

  test("makes tokens that let users into chats of their own", async () => {
    const secret = { FLOTILLA_TOKEN_SECRET: "a secret of at least 32 characters" };
    const { url } = await dev([], secret);
    const program = `
      import { createClient } from "flotilla/client";
      import { createChatTransport } from "flotilla/ai-sdk";
      import { tokenFor } from "./tokens.ts";
      const [ada, eve] = ["ada", "eve"].map((user) =>
        createClient({ url: ${JSON.stringify(url)}, token: () => tokenFor(user) }),
      );
      const messages = [{ id: "m", role: "user", parts: [{ type: "text", text: "hello" }] }];
      const stream = await createChatTransport({ client: ada, agent: "helper" }).sendMessages({
        trigger: "submit-message", chatId: "mine", messages,
      });
      let text = "";
      for await (const chunk of stream) text += chunk.delta ?? "";
      console.log(text);
      console.log(await eve.sessions.get("mine").then(() => "seen", ({ code }) => code));
      process.exit();
    `;
    writeFileSync(join(project, "talk.mjs"), program);
    const env = { ...process.env, ...secret };
    const said = execFileSync(process.execPath, ["talk.mjs"], {
      cwd: project,
      env,
      timeout: 150_000,
    });
    expect(said.toString()).toBe("You said: hello\nnot_found\n");
    expect((await fetch(`${url}/v1/sessions`)).status).toBe(401);
  }, 180_000);
});

describe("the quickstart's chat in a browser", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launch();
  }, patienceMs);
  afterAll(() => browser?.close());

  test("survives a reload, a second tab and a restart of the server, and stops for both", async () => {
    const port = await freePort();
    const server = await dev(["--port", String(port)]);
    const config = guide.files.get("vite.config.ts")!;
    writeFileSync(join(project, "vite.config.ts"), config.replace(":8080", `:${port}`));
    const at = `http://localhost:${await freePort()}/`;
    start([vite(), "--port", new URL(at).port, "--strictPort", "--host", "localhost"]);
    await until("Vite", () =>
      fetch(at).then(
        ({ ok }) => ok,
        () => false,
      ),
    );

    const { context, troubles } = await openContext(browser);
    const one = await context.newPage();
    await one.goto(at);
    const say = async (text: string) => {
      await one.getByLabel("Message").fill(text);
      await one.getByRole("button", { name: "Send" }).click();
    };
    const last = (page: typeof one) => page.locator("main p").last();
    await say("hello");
    await last(one).getByText("You said: hello").waitFor();
    await one.reload();
    await last(one).getByText("You said: hello").waitFor();

    const two = await context.newPage();
    await two.goto(one.url());
    await last(two).getByText("You said: hello").waitFor();
    const many = Array.from({ length: 40 }, (_, index) => `w${index}`).join(" ");
    await say(many);
    await last(two).getByText("You said: w0 w1").waitFor();
    await stop(server.child);
    await dev(["--port", String(port)]);
    for (const page of [one, two]) await last(page).getByText(`You said: ${many}`).waitFor();

    // Longer than any page is late to stop it.
    await say(`again ${Array.from({ length: 900 }, (_, index) => `v${index}`).join(" ")}`);
    await last(two).getByText("You said: again v0").waitFor();
    await two.getByRole("button", { name: "Stop" }).click();
    for (const page of [one, two]) await page.getByRole("button", { name: "Send" }).waitFor();
    expect(await last(one).textContent()).toBe(await last(two).textContent());
    expect(await last(one).textContent()).not.toContain("v899");
    await one.getByRole("navigation").getByRole("link").first().waitFor();
    expect(troubles).toEqual([]);
    await context.close();
  }, 240_000);
});

function start(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, args, { cwd: project, env: { ...process.env, ...env } });
  children.add(child);
  const said = { text: "" };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (more: Buffer) => (said.text += more.toString()));
  }
  return { child, said };
}

/** `npx flotilla dev`, on a port of its own, and where it is. */
async function dev(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const { child, said } = start([flotilla(), "dev", "--port", "0", ...args], env);
  const url = await until("a server", () => {
    if (child.exitCode !== null) throw new Error(said.text);
    return /http:\/\/127\.0\.0\.1:\d+/.exec(said.text)?.[0];
  });
  return { child, url };
}

async function stop(child: ChildProcess): Promise<void> {
  children.delete(child);
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  const late = setTimeout(() => child.kill("SIGKILL"), 20_000);
  await ended;
  clearTimeout(late);
}

function versionOf(name: string): string {
  const path = join(project, "node_modules", name, "package.json");
  return (JSON.parse(readFileSync(path, "utf8")) as { version: string }).version;
}
