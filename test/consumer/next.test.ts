import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requestOf, readAnswer, secret } from "../../src/agent/contract/requests.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { fetched } from "./fetched.ts";
import { compile, packTarball, unpackTarball } from "./package.ts";

const version = "16.4.6";
const beside = ["react", "react-dom", "ai", "@ai-sdk/react", "@types/react", "@types/node"];
const env = { ...process.env, AGENT_SECRET: secret, NEXT_TELEMETRY_DISABLED: "1" };
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
  unpackTarball(await packTarball(folder), project);
}, 400_000);
afterAll(async () => {
  if (server?.exitCode === null) {
    const ended = once(server, "exit");
    server.kill("SIGKILL");
    await ended;
  }
  for (const each of [folder, project]) if (each) rmSync(each, { recursive: true, force: true });
});

describe("an app of Next.js that has installed the package", () => {
  test("compiles: hooks in pages, an agent behind a route", () => {
    expect(() => compile(project)).not.toThrow();
  });

  test("builds, and serves pages that hooks are in and the agent", async () => {
    execFileSync(process.execPath, [next, "build"], { cwd: project, env, stdio: "pipe" });
    server = spawn(process.execPath, [next, "start", "--port", "0"], { cwd: project, env });
    let output = "";
    server.stdout!.on("data", (more: Buffer) => (output += more.toString()));
    server.stderr!.on("data", (more: Buffer) => (output += more.toString()));
    const url = await until("a server", () => {
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
  }, 240_000);
});

/** The version that the tests use themselves. */
function asHere(name: string): string {
  const path = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
  const { version: here } = JSON.parse(readFileSync(path, "utf8")) as { version: string };
  return `${name}@${here}`;
}
