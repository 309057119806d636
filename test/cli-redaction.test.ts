import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { built } from "./built.ts";
import { type Outcome, run as runIn, type Running, start } from "./command.ts";

const key = "a-key-of-16-chars-or-more";
const formed = "sk-canary-0f1e2d3c4b5a69788796";
const named = "the-canary-in-a-coal-mine";
const custom = "c-4711";
const content = JSON.stringify({ note: formed, password: named, customer: custom });
const config = `
  import { abort, agent, defineConfig, flow, task } from ${JSON.stringify(built.index)};
  const content = ${content};
  const failure = "no entry with " + JSON.stringify(content);
  const clerk = agent("clerk", () => "say\\n" + content.note + "\\nand done");
  const keep = task("keep", {}, async ({ input, progress, log }) => {
    progress(input);
    log.info({ input }, "keeps " + content.note);
    return input;
  });
  const doomed = task("doomed", {}, async () => { throw abort(failure); });
  const order = flow("order", { version: 1 })
    .to("reserve", () => ({ reserved: content }))
    .signal("approved", {})
    .end();
  export default defineConfig({
    use: [clerk, keep, doomed, order],
    redact: ["**.customer", /c-\\d{4}/],
    server: { apiKeys: ["${key}"] },
  });`;

let folder: string;
let elsewhere: string;
let server: Running;
let url: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-redaction-"));
  elsewhere = mkdtempSync(join(tmpdir(), "flotilla-cli-elsewhere-"));
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  server = start(["dev", "--port", "0"], { cwd: folder });
  url = await vi.waitUntil(() => /listens on (\S+)/.exec(server.output.stdout)?.[1], {
    timeout: 90_000,
  });
});
afterAll(async () => {
  server.child.kill("SIGKILL");
  await server.ended;
  for (const each of [folder, elsewhere]) rmSync(each, { recursive: true, force: true });
});

const outcomes: Outcome[] = [];
const onServer = async (...args: string[]) => {
  const env = { FLOTILLA_API_KEY: key };
  const outcome = await runIn([...args, "--url", url], { cwd: elsewhere, env });
  outcomes.push(outcome);
  return outcome;
};
const idIn = ({ stdout }: Outcome, field: string) =>
  (JSON.parse(stdout) as Record<string, string>)[field]!;

describe("a secret in everything that users put in", () => {
  test("isn't in what commands print through a server", async () => {
    const kept = await onServer("enqueue", "keep", content, "--wait", "--json");
    expect(kept.code).toBe(0);
    const doomed = await onServer("enqueue", "doomed", content, "--wait", "--json");
    expect(doomed.code).toBe(1);
    const { stdout } = await onServer("tasks", "list", "--json");
    const { tasks } = JSON.parse(stdout) as { tasks: { taskId: string }[] };
    for (const { taskId } of tasks) {
      await onServer("tasks", "show", taskId);
      await onServer("tasks", "show", taskId, "--json");
    }
    expect(tasks).toHaveLength(2);
    const runId = idIn(await onServer("runs", "start", "order", content, "--json"), "runId");
    await onServer("runs", "signal", runId, "approved", content);
    for (const command of [
      ["show", runId],
      ["show", runId, "--json"],
      ["list", "--json"],
    ])
      await onServer("runs", ...command);
    await onServer("dlq", "list");
    await onServer("dlq", "list", "--json");
    const chat = ["chat", "--agent", "clerk", "--user", "ada", "--url", url];
    const env = { FLOTILLA_API_KEY: key };
    const said = await runIn(chat, { cwd: elsewhere, env, stdin: `my key is ${formed}\n` });
    // The member sees the conversation as it is.
    expect(said.stdout).toContain(formed);
    const listed = await onServer("sessions", "--json");
    const { sessions } = JSON.parse(listed.stdout) as { sessions: { sessionId: string }[] };
    const { sessionId } = sessions[0]!;
    for (const command of [
      ["show", sessionId],
      ["show", sessionId, "--json"],
      ["export", sessionId],
    ])
      await onServer("sessions", ...command);
    const printed = outcomes.map(({ stdout, stderr }) => stdout + stderr).join("\n");
    expect(printed).toContain("[redacted]");
    expect(printed).toContain("no entry with");
    expect(printed).toContain("and done");
    for (const canary of [formed, named, custom]) expect(printed).not.toContain(canary);
  });

  test("isn't in the log of the pod and the server", () => {
    const { stderr } = server.output;
    expect(stderr).toContain("keeps [redacted]");
    for (const canary of [formed, named, custom]) expect(stderr).not.toContain(canary);
  });
});
