import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { built } from "./built.ts";
import { run as runIn, type Running, start as startIn } from "./command.ts";
import { freePort } from "./free-ports.ts";

// `endless` says words until it is stopped; the others answer with what they were told.
const config = `
  import { agent, defineConfig, task } from ${JSON.stringify(built.index)};
  import { durable, later } from ${JSON.stringify(built.durable)};
  const note = task("note", {}, () => {});
  const echo = agent("echo", async ({ messages, enqueue, usage }) => {
    usage({ model: "small", input: 200, output: 30, cached: 50 });
    await enqueue(note, null);
    return "You said " + messages.at(-1).parts[0].text;
  });
  const endless = agent("endless", async function* ({ signal }) {
    while (!signal.aborted) {
      yield "on and on ";
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });
  const viewer = agent("viewer", async ({ messages, files }) => {
    const { parts } = messages.at(-1);
    const seen = [];
    for (const part of parts) {
      if (part.type === "text") seen.push(part.text);
      else seen.push(part.filename + ", " + part.mediaType + ": " + String(await files.read(part)));
    }
    return "I see " + seen.join(" and ");
  });
  const asking = agent("asking", async function* (context) {
    const told = context.messages.at(-1).parts.some(({ state }) => state === "output-available");
    if (told) return yield "thank you";
    const wait = () => later({ signal: "approve" });
    const { ask } = durable(context, { tools: { ask: { execute: wait } } }).tools;
    const toolCallId = "c";
    yield { type: "tool-input-available", toolCallId, toolName: "ask", input: {} };
    const output = await ask.execute({}, { toolCallId });
    yield { type: "tool-output-available", toolCallId, output };
  });
  const prices = { small: { input: 10, output: 100 } };
  export default defineConfig({ use: [echo, endless, asking, viewer, note], prices });`;

let folder: string;
let server: Running;
let url: string;
/** The same after a restart: one that the system gives to no connection while the server is down. */
let port: number;
const run = (args: string[], stdin = "") => runIn(args, { cwd: folder, stdin });
const until = (condition: () => boolean) =>
  vi.waitFor(() => expect(condition()).toBe(true), { timeout: 90_000, interval: 50 });
const serve = async (): Promise<void> => {
  server = startIn(["serve", "--port", String(port)], { cwd: folder });
  await until(() => /listens on (\S+)/.test(server.output.stdout));
  url = /listens on (\S+)/.exec(server.output.stdout)![1]!;
};
const kill = async (): Promise<void> => {
  server.child.kill("SIGKILL");
  await server.ended;
};
const sessionIds = async (...flags: string[]): Promise<string[]> => {
  const { stdout } = await run(["sessions", "list", "--json", ...flags]);
  const { sessions } = JSON.parse(stdout) as { sessions: { sessionId: string }[] };
  return sessions.map(({ sessionId }) => sessionId);
};

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-sessions-"));
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  port = await freePort();
  await serve();
});
afterAll(async () => {
  await kill();
  rmSync(folder, { recursive: true, force: true });
});

type Exported = { entry: { parts: { text?: string }[] } };

describe("chat", () => {
  test.each(["the store", "a server"])("sends each line of a pipe through %s", async (way) => {
    const through = way === "a server" ? ["--url", url] : [];
    const said = await run(
      ["chat", "--agent", "echo", "--user", "ada", ...through],
      "hello\n\n\u001b[2J\u202e\n",
    );
    expect(said).toMatchObject({ code: 0, stderr: "" });
    expect(said.stdout.split("\n")).toEqual([
      "ada: hello",
      "echo: You said hello",
      "ada: \\x1b[2J\\u{202e}",
      "echo: You said \\x1b[2J\\u{202e}",
      "",
    ]);
    const [sessionId] = await sessionIds();
    const more = await run(["chat", sessionId!, "--user", "bob", "--json", ...through], "more\n");
    const entries = more.stdout.trim().split("\n");
    expect(entries.map((line) => (JSON.parse(line) as { seq: number }).seq)).toEqual([
      1, 2, 3, 4, 5, 6,
    ]);
  });

  test.each(["the store", "a server"])("sends files, forks and edits through %s", async (way) => {
    const through = way === "a server" ? ["--url", url] : [];
    mkdirSync(join(folder, "my files"), { recursive: true });
    writeFileSync(join(folder, "my files/note.txt"), Buffer.from("a note"));
    const lines = [
      "//hello",
      '/file "my files/note.txt" what is it?',
      "/edit tell me",
      "/fork 2",
      "again",
      "/fork",
      "/edit anew",
      "/edit #1 goodbye",
    ];
    const chat = ["chat", "--agent", "viewer", "--user", "ada", ...through];
    const said = await run(chat, `${lines.join("\n")}\n`);
    expect(said).toMatchObject({ code: 0, stderr: "" });
    const ids: string[] = [];
    const shown = said.stdout.replaceAll(/session (\S+)\)/g, (_, id: string) => {
      ids.push(id);
      return `session ${ids.length})`;
    });
    expect(shown.split("\n")).toEqual([
      "ada: /hello",
      "viewer: I see /hello",
      "ada: [file note.txt]\\nwhat is it?",
      "viewer: I see note.txt, text/plain: a note and what is it?",
      "(edited #3: session 1)",
      "ada: [file note.txt]\\ntell me",
      "viewer: I see note.txt, text/plain: a note and tell me",
      "(forked at #2: session 2)",
      "ada: again",
      "viewer: I see again",
      "(forked at #4: session 3)",
      "(edited #3: session 4)",
      "ada: anew",
      "viewer: I see anew",
      "(edited #1: session 5)",
      "ada: goodbye",
      "viewer: I see goodbye",
      "",
    ]);
    // Each is a session of its own, and shows what it begins with.
    const messages = async (id: string) =>
      (await run(["sessions", "export", id])).stdout
        .trim()
        .split("\n")
        .slice(1)
        .map((line) => (JSON.parse(line) as Exported).entry.parts.at(-1)!.text);
    expect(await messages(ids[1]!)).toEqual(["/hello", "I see /hello", "again", "I see again"]);
    expect(await messages(ids[3]!)).toEqual(["/hello", "I see /hello", "anew", "I see anew"]);
    expect(await messages(ids[4]!)).toEqual(["goodbye", "I see goodbye"]);
  });

  test.each(["the store", "a server"])("sets, lists and cancels wakes through %s", async (way) => {
    const through = way === "a server" ? ["--url", url] : [];
    const chat = startIn(["chat", "--agent", "echo", "--user", "ada", ...through], {
      cwd: folder,
      stdin: null,
    });
    const { stdin } = chat.child;
    const at = new Date(Date.now() + 30 * 86_400_000).toISOString();
    stdin!.write(`/wake\n/wake ${at} how was it?\n/wake\n`);
    await until(() => chat.output.stdout.includes(`: ${at} echo how was it?)`));
    const key = /\(wake (chat-\S+) is set for /.exec(chat.output.stdout)![1]!;
    expect(chat.output.stdout.split("\n")[0]).toBe("(no wake is set)");
    // One that is soon is answered while the chat is open.
    stdin!.write(`/wake cancel ${key}\n/wake cancel ${key}\n/wake 1s ping\n`);
    await until(() => chat.output.stdout.includes("You said ping\n"));
    const lines = chat.output.stdout.split("\n");
    expect(lines).toContain(`(wake ${key} is cancelled)`);
    expect(lines).toContain(`(wake ${key} isn't set)`);
    stdin!.end();
    expect(await chat.ended).toMatchObject({ code: 0, stderr: "" });
  });

  test.each([
    ["/fiel a.txt", 1, "there is no /fiel: /help lists commands"],
    ["/file nothing.txt", 1, "nothing.txt can't be read: ENOENT"],
    ["/file .", 1, ". is no file"],
    ["/fork", 1, "there is nothing to fork yet"],
    ["/fork 9", 1, "the session has 0 entries, so it can't be forked at 9"],
    ["/edit more", 1, "there is no message to edit yet"],
    ["/edit #1 more", 1, "#1 is no message of a user"],
    ["/wake soon", 1, "/wake needs a time such as 10m"],
  ])("%s in a pipe ends with what is wrong", async (line, code, why) => {
    const said = await run(["chat", "--agent", "echo", "--user", "ada"], `${line}\nnot sent\n`);
    expect(said).toMatchObject({ code, stdout: "", stderr: expect.stringContaining(why) });
  });

  test("stops the answer with one interrupt, and leaves with two", async () => {
    const chat = startIn(["chat", "--agent", "endless", "--user", "ada", "--json"], {
      cwd: folder,
      stdin: null,
    });
    chat.child.stdin!.write("begin\n");
    await until(() => chat.output.stdout.includes('"begin"'));
    const [sessionId] = await sessionIds("--state", "catching_up");
    chat.child.kill("SIGINT");
    await until(() => chat.output.stdout.includes('"stopped"'));
    const shown = await run(["sessions", "show", sessionId!]);
    expect(shown.stdout).toMatch(/#3 endless assistant \(stopped\) .*\n {2}on and on/);
    chat.child.kill("SIGINT");
    expect(await chat.ended).toMatchObject({ code: 0, stderr: "" });
  });

  test("goes on where it was when its server comes back, and says so", async () => {
    const chat = startIn(["chat", "--agent", "echo", "--user", "ada", "--url", url], {
      cwd: folder,
      stdin: null,
    });
    chat.child.stdin!.write("before\n");
    await until(() => chat.output.stdout.includes("You said before\n"));
    await kill();
    await until(() => /connection lost.*resuming after #2/.test(chat.output.stdout));
    await serve();
    await until(() => chat.output.stdout.includes("(reconnected)"));
    chat.child.stdin!.end("after\n");
    expect(await chat.ended).toMatchObject({ code: 0 });
    const messages = chat.output.stdout.split("\n").filter((line) => /^(ada|echo):/.test(line));
    expect(messages).toEqual([
      "ada: before",
      "echo: You said before",
      "ada: after",
      "echo: You said after",
    ]);
  });

  test("refuses what it can't mean, and sessions that there aren't", async () => {
    expect((await run(["chat"])).code).toBe(2);
    expect((await run(["chat", "x", "--agent", "echo"])).code).toBe(2);
    expect((await run(["chat", "nothing"])).code).toBe(4);
    expect((await run(["chat", "nothing", "--url", url])).code).toBe(4);
    const away = await run(["chat", "x", "--url", "http://127.0.0.1:1"]);
    expect(away).toMatchObject({ code: 1, stderr: expect.stringContaining("no answer from") });
  });
});

describe("sessions on the command line", () => {
  test("are listed, shown, exported, archived and removed", async () => {
    await run(["chat", "--agent", "echo", "--user", "grace"], "hello\u001b[2J\n");
    const [sessionId] = await sessionIds("--user", "grace");
    const listed = await run(["sessions", "--user", "grace"]);
    expect(listed.stdout).toMatch(new RegExp(`${sessionId} +echo +grace +idle +2 `));
    expect(listed.stdout).not.toContain("\u001b[2J");
    const shown = await run(["sessions", "show", sessionId!, "--last", "1"]);
    expect(shown.stdout).toMatch(/agents +echo\n/);
    expect(shown.stdout).toContain("  You said hello\\x1b[2J\n");
    expect(shown.stdout).not.toContain("#1 ");
    for (const through of [[], ["--url", url]]) {
      const about = await run(["sessions", "show", sessionId!, ...through]);
      expect(about.stdout).toMatch(
        /\n {2}1\.1 +completed +echo +\S+ +\d+ ms +\d+ ms +200 +30 +50 +small +cost 0\.005 +on /,
      );
      const [, taskId] = /\nstarted\n {2}(\S+) +note /.exec(about.stdout)!;
      const started = await run(["tasks", "show", taskId!, ...through]);
      expect(started.stdout).toMatch(new RegExp(`started by +a turn of session ${sessionId}, `));
    }
    const { stdout } = await run(["sessions", "export", sessionId!]);
    const lines = stdout.trim().split("\n");
    expect(lines.map((line) => Object.keys(JSON.parse(line) as object)[0])).toEqual([
      "session",
      "entry",
      "entry",
    ]);
    expect((await run(["sessions", "stop", sessionId!])).stdout).toBe("no answer is being made\n");
    expect((await run(["sessions", "archive", sessionId!])).code).toBe(0);
    expect(await sessionIds("--status", "archived")).toEqual([sessionId]);
    expect((await run(["chat", sessionId!], "more\n")).code).toBe(4);
    expect((await run(["sessions", "unarchive", sessionId!])).code).toBe(0);
    expect((await run(["sessions", "remove", sessionId!])).code).toBe(2);
    expect((await run(["sessions", "remove", sessionId!, "--yes"])).code).toBe(0);
    for (const each of ["show", "export", "stop", "archive"]) {
      expect((await run(["sessions", each, sessionId!])).code).toBe(4);
    }
  });
});

describe("a signal on the command line", () => {
  test.each(["the store", "a server"])("reaches the call that waits for it, by %s", async (way) => {
    const through = way === "a server" ? ["--url", url] : [];
    await run(["chat", "--agent", "asking", "--user", "mary"], "go\n");
    const [sessionId] = await sessionIds("--user", "mary");
    const signal = (...more: string[]) =>
      run(["sessions", "signal", sessionId!, "approve", ...more, ...through]);
    const sent = await signal('{"ok":true}', "--id", "one", "--author", "mary");
    expect(sent).toMatchObject({
      code: 0,
      stdout: `sent signal approve to session ${sessionId}\n`,
    });
    const again = await signal('{"ok":true}', "--id", "one", "--json");
    expect(JSON.parse(again.stdout)).toMatchObject({ seq: 3, duplicate: true });
    expect((await signal("1")).code).toBe(4);
    const goneOn = async () => {
      const shown = await run(["sessions", "show", sessionId!]);
      expect(shown.stdout).toContain("thank you");
    };
    await vi.waitFor(goneOn, { timeout: 90_000 });
  });
});

describe("a list of sessions", () => {
  test("is newest first by what happened in them last, over HTTP and on the command line", async () => {
    const chat = ["chat", "--agent", "echo", "--user", "alan"];
    for (const text of ["one", "two", "three"]) await run(chat, `${text}\n`);
    const [third, second, first] = await sessionIds("--user", "alan");
    await run(["chat", first!, "--user", "alan"], "again\n");
    const now = [first, third, second];
    expect(await sessionIds("--user", "alan")).toEqual(now);
    const answer = await fetch(`${url}/v1/sessions?user=alan`);
    const page = (await answer.json()) as { sessions: { sessionId: string; preview: string }[] };
    expect(page.sessions.map(({ sessionId }) => sessionId)).toEqual(now);
    expect(page.sessions.map(({ preview }) => preview)).toEqual([
      "You said again",
      "You said three",
      "You said two",
    ]);
  });

  test("has those with a value in their metadata, by the store and by a server", async () => {
    const made = await fetch(`${url}/v1/sessions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ users: ["hedy"], metadata: { ticket: { id: 7 }, plan: "pro" } }),
    });
    const { sessionId } = (await made.json()) as { sessionId: string };
    for (const through of [[], ["--url", url]]) {
      const found = (...values: string[]) => sessionIds("--metadata", ...values, ...through);
      expect(await found("ticket.id=7", "plan=pro")).toEqual([sessionId]);
      expect(await found('ticket.id="7"')).toEqual([]);
      const wrong = await run(["sessions", "list", "--metadata", "ticket", ...through]);
      expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("--metadata takes")]);
    }
  });
});

describe("agents on the command line", () => {
  const key = (letter: string) => Buffer.from(letter.repeat(24)).toString("base64");
  const url1 = "https://agent.example/chat";

  test("are listed with those in code, made, changed and removed", async () => {
    expect((await run(["agents"])).stdout).toMatch(/echo +code +queue\nendless +code/);
    const made = await run(["agents", "set", "helper", JSON.stringify({ url: url1 })]);
    expect(made).toMatchObject({ code: 0, stdout: "agent helper is stored\n" });
    const settings = JSON.stringify({ url: url1, during: "merge" });
    expect((await run(["agents", "set", "helper", "-"], settings)).code).toBe(0);
    expect((await run(["agents"])).stdout).toMatch(/helper +stored +https:\S+ +merge +2\n/);
    const late = await run(["agents", "set", "helper", settings, "--if-revision", "1"]);
    expect(late).toMatchObject({ code: 4, stderr: expect.stringContaining("revision 2") });
    expect((await run(["agents", "set", "echo", settings])).code).toBe(4);
    expect((await run(["agents", "show", "echo"])).stdout).toMatch(/source +code\n/);
    const near = JSON.stringify({ url: "http://127.0.0.1:3000" });
    expect((await run(["agents", "set", "near", near])).code).toBe(2);
    expect((await run(["agents", "set", "near", near, "--private"])).code).toBe(0);
    for (const name of ["helper", "near"]) {
      expect((await run(["agents", "remove", name])).code).toBe(0);
    }
    expect((await run(["agents", "show", "helper"])).code).toBe(4);
  });

  test("never show their secrets", async () => {
    const settings = { url: url1, headers: { Authorization: "header-value" } };
    const outcomes = [];
    writeFileSync(join(folder, "secret.txt"), `whsec_${key("a")}\n`);
    writeFileSync(join(folder, "broken.json"), `{"url":"x","headers":{"a":"header-value"`);
    const file = ["--secret-file", "secret.txt"];
    outcomes.push(await run(["agents", "set", "quiet", JSON.stringify(settings), ...file]));
    const env = { FLOTILLA_AGENT_SECRET: `whsec_${key("b")}` };
    const again = ["agents", "set", "quiet", JSON.stringify(settings), "--json"];
    outcomes.push(await runIn(again, { cwd: folder, env }));
    for (const words of [["show", "quiet"], ["show", "quiet", "--json"], ["list", "--json"], []]) {
      outcomes.push(await run(["agents", ...words]));
    }
    expect(outcomes.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(outcomes[2]!.stdout).toMatch(/signed with +[0-9a-f]{8}, [0-9a-f]{8}\n/);
    outcomes.push(await run(["agents", "set", "quiet", "broken.json"]));
    const bad = JSON.stringify({ url: "http://10.0.0.1", headers: { a: "header-value" } });
    outcomes.push(await run(["agents", "set", "quiet", bad, ...file]));
    writeFileSync(join(folder, "secret.txt"), `${key("a")}`);
    outcomes.push(await run(["agents", "set", "quiet", JSON.stringify(settings), ...file]));
    expect(outcomes.slice(6).map(({ code }) => code)).toEqual([2, 2, 2]);
    const told = JSON.stringify([outcomes, server.output]);
    for (const secret of [key("a"), key("b"), "header-value"]) expect(told).not.toContain(secret);
  });
});
