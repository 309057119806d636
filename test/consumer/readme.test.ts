import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { readGuide } from "./guide.ts";
import { installTarball, packTarball } from "./package.ts";

const guide = readGuide("README.md");
const page = createServer((_, answer) => answer.end("five words are on it"));
let folder: string;
let project: string;
let url: string;
let dev: ChildProcess | undefined;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-first-"));
  project = join(folder, "mine");
  mkdirSync(project);
  // What `npm init -y` writes differs between versions of npm, and newer ones say CommonJS.
  writeFileSync(join(project, "package.json"), `{ "name": "mine", "type": "commonjs" }`);
  installTarball(await packTarball(folder), project, ["zod"]);
  guide.writeInto(project);
  page.listen(0, "127.0.0.1");
  await once(page, "listening");
  url = `http://127.0.0.1:${(page.address() as AddressInfo).port}/`;
}, 300_000);
afterEach(async () => {
  if (dev === undefined || dev.exitCode !== null) return;
  const ended = once(dev, "exit");
  dev.kill("SIGTERM");
  await ended;
});
afterAll(() => {
  page.close();
  rmSync(folder, { recursive: true, force: true });
});

const command = () => join(project, "node_modules/flotilla/bin/flotilla.js");
const run = (...args: string[]) =>
  execFileSync(process.execPath, args, { cwd: project, encoding: "utf8", timeout: 150_000 });

async function startDev(): Promise<void> {
  const started = spawn(process.execPath, [command(), "dev", "--port", "0"], { cwd: project });
  dev = started;
  let said = "";
  for (const stream of [started.stdout, started.stderr])
    stream.on("data", (more: Buffer) => (said += more.toString()));
  await until("it runs", () => {
    if (started.exitCode !== null) throw new Error(said);
    return /tasks +summarize/.test(said);
  });
}

describe("the README's first task, copied file by file", () => {
  test("is four files, each with what it imports", () => {
    expect([...guide.files.keys()]).toEqual([
      "contracts.ts",
      "worker.ts",
      "flotilla.config.ts",
      "producer.ts",
    ]);
  });

  test("runs in a folder of `npm init -y`, by the command that the README shows", async () => {
    await startDev();
    const [, shown] = /^npx flotilla (enqueue .*)$/m.exec(guide.block("npx flotilla enqueue"))!;
    const args = shown!.replace("https://example.com", url).replaceAll("'", "").split(" ");
    expect(await asked(args)).toContain(`{"words":5}`);
  }, 180_000);

  test("runs in a package of ES modules, and so does its producer", async () => {
    run("-e", `fs.writeFileSync("package.json", '{ "type": "module" }')`);
    await startDev();
    expect(await asked(["producer.ts", `${url}again`], [])).toBe(`${url}again has 5 words\n`);
  }, 180_000);
});

/** The page is served by this process, which mustn't be blocked meanwhile. */
async function asked(args: readonly string[], before = [command()]): Promise<string> {
  const child = spawn(process.execPath, [...before, ...args], { cwd: project });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (more: Buffer) => (stdout += more.toString()));
  child.stderr.on("data", (more: Buffer) => (stderr += more.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(stderr);
  return stdout;
}
