import { type ChildProcess, spawn } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { temporaryDatabase } from "../src/store/contract/kinds.ts";
import { built } from "./built.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const examples = globSync(["examples/*.ts", "examples/agents/*.ts"], { cwd: root }).toSorted();
const children = new Set<ChildProcess>();
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-example-"));
});
afterEach(() => {
  for (const child of children) killGroup(child);
  children.clear();
  rmSync(folder, { recursive: true, force: true });
});

describe("every example", () => {
  test.each(examples)("prints what it says in its first lines: %s", async (path) => {
    const text = readFileSync(join(root, path), "utf8");
    const promised = [...text.matchAll(/^\/\/ prints: (.*)$/gm)];
    expect(promised, "an example says what it prints: `// prints: …`").not.toEqual([]);

    const database = text.includes("DATABASE_URL") ? await temporaryDatabase() : undefined;
    const { output, ended } = start(
      [join(built.folder, path)],
      database && { DATABASE_URL: database.url },
    );
    const code = await ended;
    await database?.remove();
    expect({ code, stderr: code === 0 ? "" : output.stderr }).toEqual({ code: 0, stderr: "" });
    expect(output.stdout).toBe(promised.map(([, line]) => `${line}\n`).join(""));
  });
});

describe("a web app and its worker", () => {
  test("are processes of their own: one stores tasks, the other runs them", async () => {
    const app = start([join(built.examples, "web/server.ts")], { PORT: "0" });
    const url = await urlOf(app.output);
    const summary = (text: unknown, key: string) =>
      fetch(`${url}/summaries`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify({ text }),
      });
    expect((await summary(7, "bad")).status).toBe(400);
    expect((await fetch(`${url}/summaries/nothing`)).status).toBe(404);
    const answer = await summary("work that survives crashes", "one");
    expect(answer.status).toBe(202);
    const made = (await answer.json()) as { taskId: string };
    expect(await (await summary("work that survives crashes", "one")).json()).toMatchObject({
      taskId: made.taskId,
      created: false,
    });
    const shown = async () => (await fetch(url + answer.headers.get("location"))).json();
    expect(await shown()).toEqual({ status: "pending", result: null });

    const config = join(built.examples, "web/flotilla.config.ts");
    const worker = start([built.command, "work", "--config", config]);
    await until(async () => ((await shown()) as { status: string }).status === "completed");
    expect(await shown()).toEqual({ status: "completed", result: { words: 4 } });
    expect([await stop(worker), await stop(app)]).toEqual([0, 0]);
  });
});

describe("the demo", () => {
  const config = "examples/demo/flotilla.config.ts";
  const toDev = (at: string) => ["dev", "--config", join(at, config), "--port", "0"];
  const store = () => `sqlite:${join(folder, "demo.db")}`;

  test("runs from source tasks of every kind, goes on after a restart, and stops when asked", async () => {
    const main = join(root, "src/cli/main.ts");
    const args = ["--conditions=flotilla:source", main, ...toDev(root)];
    const first = start([...args, "--store", store()]);
    const url = await urlOf(first.output);
    expect((await fetch(`${url}/health/ready`)).status).toBe(200);
    const kinds = ["invoice", "producer", "rates", "summary", "thumbnail", "transcribe"];
    await until(async () => {
      const done = await Promise.all(kinds.map((name) => count(url, name, "completed")));
      return done.every((tasks) => tasks > 0);
    });
    const before = await count(url, "thumbnail", "completed");
    expect(first.output.stdout).toMatch(/completed \d+ .*completed\/s/);
    expect(await stop(first)).toBe(0);

    const second = start([...args, "--store", store()]);
    const again = await urlOf(second.output);
    await until(async () => (await count(again, "thumbnail", "completed")) > before);
    expect(await stop(second)).toBe(0);
    expect(second.output.stderr).not.toMatch(/unhandled|"level":50/i);
  }, 180_000);

  test("has a throttle that learns, and orders at their times that wait to be approved", async () => {
    const demo = start([built.command, ...toDev(built.folder), "--store", store()]);
    const url = await urlOf(demo.output);
    const ask = async (path: string) => (await fetch(url + path)).json() as Promise<any>;
    const approved = async (runId: string) => {
      await until(async () => (await ask(`/v1/runs/${runId}`)).run.status === "completed");
      const { run } = await ask(`/v1/runs/${runId}`);
      expect(run.key).toMatch(/^schedule\/orders\//);
      expect(run.state.parcel).toContain("from shelf");
    };

    // By the command that is printed.
    const printed = /to approve it: npx flotilla (runs signal (\S+) approval --config \S+?)["\s]/;
    await until(() => printed.test(demo.output.stderr));
    const [, command, first] = printed.exec(demo.output.stderr)!;
    const args = command!.replace(config, join(built.folder, config)).split(" ");
    const sent = start([built.command, ...args, "--store", store()]);
    expect([await sent.ended, sent.output.stderr]).toEqual([0, ""]);
    await approved(first!);

    // By the request that the page shows.
    const shown = /<code>curl (\S+\/v1\/runs\/([\w-]+)\/signals) .*-d &#39;(.*)&#39;<\/code>/;
    const page = async () => (await fetch(url, { headers: { Accept: "text/html" } })).text();
    await until(async () => shown.test(await page()));
    const [, to, second, escaped] = shown.exec(await page())!;
    const body = escaped!.replaceAll("&quot;", '"');
    const headers = { "content-type": "application/json" };
    expect((await fetch(to!, { method: "POST", headers, body })).status).toBe(202);
    await approved(second!);

    // A visitor has asked an agent, whose turn has called the model and started a task.
    await until(async () => {
      const { sessions } = await ask("/v1/sessions?agent=librarian");
      if (sessions.length === 0) return false;
      const { turns } = await ask(`/v1/sessions/${sessions[0].sessionId}/turns`);
      const { started } = await ask(`/v1/sessions/${sessions[0].sessionId}/tasks`);
      return turns.some((turn: any) => turn.usage?.cost > 0) && started[0]?.name === "summary";
    });

    // It starts with two calls at once, and finds that the model takes more and refuses too many.
    await until(async () => {
      const { bound, outcomes } = (await ask("/v1/throttles")).throttles[0];
      return bound > 2 && outcomes.success > 60 && outcomes.throttled > 0;
    });
    expect(await stop(demo)).toBe(0);
  }, 180_000);

  test("has agents to talk to, by the command that it prints", async () => {
    const demo = start([built.command, ...toDev(built.folder), "--store", store()]);
    await urlOf(demo.output);
    await until(() => /npx flotilla chat .*\n/.test(demo.output.stdout));
    const [, command] = /npx flotilla (chat .*)\n/.exec(demo.output.stdout)!;
    const chat = start([built.command, ...command!.split(" ")], {}, "why?\nwork\n");
    expect(await chat.ended).toBe(0);
    const said = chat.output.stdout;
    expect(said).toContain("Because what you said was stored before I began to answer.");
    const { taskId } = /It is task (?<taskId>[\w-]+), and/.exec(said)!.groups!;
    const listed = start([built.command, "tasks", "show", taskId!, "--store", store()]);
    await listed.ended;
    expect(listed.output.stdout).toContain("transcribe");
    expect(await stop(demo)).toBe(0);
  }, 180_000);
});

describe("the research agent", () => {
  test("reads by sub-agents, goes on after a kill when its scan has come, and publishes once approved", async () => {
    const config = join(built.examples, "research-agent/flotilla.config.ts");
    const store = `sqlite:${join(folder, "research.db")}`;
    const dev = [built.command, "dev", "--config", config, "--port", "0", "--store", store];
    const first = start(dev, { SCAN_MS: "3000" });
    let url = await urlOf(first.output);
    const ask = async (path: string, body?: unknown) => {
      const sent = body && {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      };
      const answer = await fetch(url + path, sent || {});
      return (await answer.json()) as any;
    };
    const page = await (await fetch(`${url}/research/`)).text();
    expect(page).toContain("chat.js");
    const { sessionId } = await ask("/v1/sessions", { agents: ["researcher"] });
    const at = `/v1/sessions/${sessionId}`;
    await ask(`${at}/messages`, { id: "m", parts: [{ type: "text", text: "tides" }] });
    const entries = async () => (await ask(`${at}/messages`)).entries;
    const callIn = (entry: any, name: string) =>
      entry?.parts.find(({ type }: { type: string }) => type === `tool-${name}`);
    await until(async () => callIn((await entries())[1], "scan")?.state === "input-available");
    const [, asks] = await entries();
    expect(callIn(asks, "read").output).toContain("Notes: tides");
    killGroup(first.child);
    await first.ended;

    const second = start(dev, { SCAN_MS: "3000" });
    url = await urlOf(second.output);
    await until(async () => (await entries()).length === 4);
    const scanned = (await entries())[3];
    expect(callIn(scanned, "scan").output).toEqual({ pages: 312, of: "A history of tides" });
    const { toolCallId, approval } = callIn(scanned, "publish");
    const results = [{ toolCallId, approvalId: approval.id, approved: true }];
    const approved = { id: approval.id, messageId: scanned.messageId, results };
    await ask(`${at}/tool-results`, approved);
    await ask(`${at}/tool-results`, approved);
    await until(async () => (await entries()).length === 6);
    const last = (await entries())[5];
    expect(callIn(last, "publish").output).toMatchObject({ title: "About tides" });
    expect(last.parts.at(-1).text).toBe("That is all there is about tides.");
    expect(await stop(second)).toBe(0);
  }, 180_000);
});

type Output = { stdout: string; stderr: string };
type Started = { child: ChildProcess; output: Output; ended: Promise<number | string | null> };

function start(args: string[], environment: Record<string, string> = {}, input = ""): Started {
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { ...process.env, ...environment },
    // A group of its own, so that processes which an example has started go with it.
    detached: true,
    stdio: "pipe",
  });
  children.add(child);
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  const output = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => (output.stdout += chunk));
  child.stderr.on("data", (chunk) => (output.stderr += chunk));
  const ended = new Promise<number | string | null>((resolve) => {
    child.on("close", (code, signal) => resolve(code ?? signal));
  });
  return { child, output, ended };
}

function killGroup({ pid }: ChildProcess): void {
  try {
    process.kill(-pid!, "SIGKILL");
  } catch {
    // It has ended, and everything that it had started.
  }
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
    timeout: 150_000,
    interval: 100,
  });
}
