import { type ChildProcess, spawn } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const examples = globSync("examples/*.ts", { cwd: root }).toSorted();
const children = new Set<ChildProcess>();
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-example-"));
});
afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
  rmSync(folder, { recursive: true, force: true });
});

describe("every example", () => {
  test.each(examples)("prints what it says in its first lines: %s", async (path) => {
    const promised = [...readFileSync(join(root, path), "utf8").matchAll(/^\/\/ prints: (.*)$/gm)];
    expect(promised, "an example says what it prints: `// prints: …`").not.toEqual([]);

    const { output, ended } = start([join(root, path)]);
    const code = await ended;
    expect({ code, stderr: code === 0 ? "" : output.stderr }).toEqual({ code: 0, stderr: "" });
    expect(output.stdout).toBe(promised.map(([, line]) => `${line}\n`).join(""));
  });
});

describe("the demo", () => {
  const config = join(root, "examples/demo/flotilla.config.ts");
  const args = [join(root, "src/cli/main.ts"), "dev", "--config", config, "--port", "0"];

  test("runs tasks of every kind, goes on after a restart, and stops when asked", async () => {
    const store = `sqlite:${join(folder, "demo.db")}`;
    const first = start([...args, "--store", store]);
    const url = await urlOf(first.output);
    expect((await fetch(`${url}/health/ready`)).status).toBe(200);
    const kinds = ["invoice", "producer", "rates", "thumbnail", "transcribe"];
    await until(async () => {
      const done = await Promise.all(kinds.map((name) => count(url, name, "completed")));
      return done.every((tasks) => tasks > 0);
    });
    const before = await count(url, "thumbnail", "completed");
    expect(first.output.stdout).toMatch(/completed \d+ .*completed\/s/);
    expect(await stop(first)).toBe(0);

    const second = start([...args, "--store", store]);
    const again = await urlOf(second.output);
    await until(async () => (await count(again, "thumbnail", "completed")) > before);
    expect(await stop(second)).toBe(0);
    expect(second.output.stderr).not.toMatch(/unhandled|"level":50/i);
  }, 180_000);
});

type Output = { stdout: string; stderr: string };
type Started = { child: ChildProcess; output: Output; ended: Promise<number | string | null> };

function start(args: string[]): Started {
  const child = spawn(process.execPath, ["--conditions=flotilla:source", ...args], {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.add(child);
  const output = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => (output.stdout += chunk));
  child.stderr.on("data", (chunk) => (output.stderr += chunk));
  const ended = new Promise<number | string | null>((resolve) => {
    child.on("close", (code, signal) => resolve(code ?? signal));
  });
  return { child, output, ended };
}

function stop({ child, ended }: Started): Promise<number | string | null> {
  child.kill("SIGTERM");
  return ended;
}

async function urlOf(output: Output): Promise<string> {
  await until(() => /listens on http\S+/.test(output.stdout));
  return /listens on (http\S+)/.exec(output.stdout)![1]!;
}

async function count(url: string, name: string, status: string): Promise<number> {
  const answer = await fetch(`${url}/v1/tasks?limit=1000&name=${name}&status=${status}`);
  return ((await answer.json()) as { tasks: unknown[] }).tasks.length;
}

function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  return vi.waitFor(async () => expect(await condition()).toBe(true), {
    timeout: 50_000,
    interval: 100,
  });
}
