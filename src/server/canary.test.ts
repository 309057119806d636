import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import type { Logger } from "../base/log.ts";
import { unrecoverable } from "../flows/decide/thrown.ts";
import { flow } from "../flows/flow.ts";
import type { Verb } from "../protocol/verbs.ts";
import { agent } from "../sessions/agents/agent.ts";
import { task } from "../tasks/task.ts";
import { dial, startTestServer, textMessage } from "./contract/test-server.ts";
import { allSpecs } from "./openapi.ts";
import { topicSpecs } from "./watch/topics.ts";

/** Secrets that are known by their form, by their name alone, and by a pattern of the config. */
const formed = "sk-canary-0f1e2d3c4b5a69788796";
const named = "the-canary-in-a-coal-mine";
const own = "MINE-4711-0815";
const redact = [/\bMINE-\d{4}-\d{4}\b/];
const content = {
  note: `use ${formed} or ${own} here`,
  deep: [{ password: named, [formed]: "in a name" }],
};
const failure = `no entry with {"apiKey":"${named}"} and ${formed} and ${own}`;

const key = "a-key-of-16-chars-or-more";
/** Of a caller that looks after the fleet, and may not see content. */
const viewerKey = "a-key-that-looks-after";
const viewing = ["tasks:read", "sessions:read", "sessions:any", "fleet:read"] as Verb[];
const secret = "a secret of thirty-two characters or more";
const lines: string[] = [];
const note = (fields: object, message: string) => void lines.push(JSON.stringify(fields) + message);
const log: Logger = { debug: note, info: note, warn: note, error: note };
let server: Awaited<ReturnType<typeof startTestServer>>;
/** What is in the store, by the names of the parameters of paths. */
let ids: Record<string, string>;
let streamed: string[];

const store = task("store", {}, async ({ taskId, progress, step, log: taskLog }) => {
  progress(content);
  const stored = async () => (await server.flotilla.tasks.get(taskId))?.progress;
  await until("the progress", async () => (await stored()) !== null);
  await step("look", () => content);
  taskLog.info({ content, authorization: named }, `using ${formed} and ${own}`);
  return content;
});
const failing = task("failing", { attempts: 2, backoff: { baseMs: 1 } }, () => {
  throw new Error(failure);
});
const order = flow("order", { version: 1 })
  .to("reserve", ({ progress }) => {
    progress(content);
    return { reserved: content };
  })
  .signal("approve", {})
  .to("fail", () => {
    throw unrecoverable(failure);
  })
  .end();
const clerk = agent("clerk", async function* () {
  yield { type: "text-start", id: "t" } as const;
  for (const delta of [`Bearer ${formed}`, "\n", ...`${formed} ${own}`.split(""), " is it\n"])
    yield { type: "text-delta", id: "t", delta } as const;
  yield { type: "text-end", id: "t" } as const;
  const call = { toolCallId: "c", toolName: "look" };
  yield { type: "tool-input-available", ...call, input: content } as const;
  yield { type: "tool-output-available", toolCallId: "c", output: content } as const;
  yield { type: "message-metadata", messageMetadata: content } as const;
});
const broken = agent("broken", { attempts: 1 }, () => {
  throw new Error(failure);
});

const call = async (method: string, path: string, body?: unknown, headers = {}) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(body !== undefined && { "Content-Type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, text, headers: answer.headers };
};
/** What is answered to a change is looked at, too. */
const answers: string[] = [];
const change = async (method: string, path: string, body?: unknown, headers = {}) => {
  const { status, text } = await call(method, path, body, headers);
  expect({ status, text }).toSatisfy(() => status < 300);
  answers.push(text);
  // oxlint-disable-next-line typescript/no-explicit-any
  return JSON.parse(text) as any;
};
const member = () =>
  new SignJWT({ sub: "ada", verbs: ["sessions:read", "sessions:write", "inbox:read"] })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));

beforeAll(async () => {
  server = await startTestServer({
    use: [store, failing, order, clerk, broken],
    changes: {},
    server: { apiKeys: [key, { key: viewerKey, verbs: viewing }], tokens: { secret } },
    log,
    podLog: log,
    redact,
  });
  const { taskId } = await change("POST", "/v1/tasks", {
    name: "store",
    input: content,
    options: { key: formed, concurrencyKey: formed },
  });
  const failed = await change("POST", "/v1/tasks", { name: "failing", input: content });
  const waiting = await change("POST", "/v1/tasks", { name: "none", input: content });
  await change("POST", `/v1/tasks/${waiting.taskId}/signals`, { name: "go", payload: content });
  const { runId } = await change("POST", "/v1/runs", { flow: "order", input: content });
  const open = await change("POST", "/v1/runs", { flow: "other", input: content });
  await change("POST", `/v1/runs/${open.runId}/signals`, {
    name: "go",
    payload: content,
    id: formed,
  });
  await change("POST", `/v1/runs/${runId}/signals`, { name: "approve", payload: content });
  const schedule = { name: "store", input: content, everyMs: 3_600_000 };
  await change("PUT", "/v1/schedules/hourly", schedule);
  await change("POST", "/v1/pause", { name: "paused", reason: `because of ${formed}` });
  await change("POST", "/v1/agents", {
    name: "remote",
    settings: { url: `https://agents.example/?token=${formed}`, headers: { "X-Api-Key": named } },
  });
  const session = await change("POST", "/v1/sessions", {
    users: ["ada"],
    agents: ["clerk", "broken"],
    metadata: content,
  });
  const at = `/v1/sessions/${session.sessionId}`;
  ids = {
    taskId,
    runId,
    scheduleId: "hourly",
    sessionId: session.sessionId,
    name: "remote",
    page: "quickstart.md",
    failedId: failed.taskId,
  };
  streamed = [];
  const { url } = server;
  const events = await fetch(`${url}${at}/events`, { headers: { Authorization: `Bearer ${key}` } });
  void (async () => {
    for await (const bytes of events.body!) streamed.push(Buffer.from(bytes).toString());
  })().catch(() => {});
  const socket = await dial(server.socketUrl, { headers: { Authorization: `Bearer ${key}` } });
  socket.socket.on("message", (data: Buffer) => streamed.push(data.toString()));
  await socket.request({ type: "join", session: session.sessionId, lastSeq: 0 });
  const said = textMessage(`my key is ${formed} or ${own}`);
  const message = { author: "ada", metadata: content, ...said };
  await change("POST", `${at}/messages`, { ...message, to: "clerk" });
  const lastSeq = async () =>
    (JSON.parse((await call("GET", at)).text) as { lastSeq: number }).lastSeq;
  await until("an answer", async () => (await lastSeq()) >= 2);
  await change("POST", `${at}/messages`, { ...message, to: "broken" });
  await until("a failed answer", async () => (await lastSeq()) >= 4);
  await until("the stream has both", () => streamed.join("").includes('"seq":4'));
  const ended = async (path: string, status: string) =>
    (await call("GET", path)).text.includes(`"status":"${status}"`);
  await until("a result", () => ended(`/v1/tasks/${taskId}`, "completed"));
  await until("a failure", () => ended(`/v1/tasks/${failed.taskId}`, "failed"));
  await until("a failed run", () => ended(`/v1/runs/${runId}`, "failed"));
  const redrive = await change("POST", "/v1/dlq/redrives", { taskId: failed.taskId });
  ids["redriveId"] = redrive.redriveId;
  const bulk = await change("POST", "/v1/bulk", {
    action: "signal",
    filter: { name: "nothing" },
    signal: "go",
    payload: content,
    reason: `because of ${formed}`,
  });
  ids["bulkId"] = bulk.bulkId;
  ids["flow"] = "order";
  socket.close();
});
afterAll(() => server[Symbol.asyncDispose]());

const hasCanary = (text: string) => [formed, named, own].some((each) => text.includes(each));
/**
 * Endless ones are read while all this happens; a throttle holds nothing that users put in, and an inbox is
 * what its user sees.
 */
const readElsewhere = [
  "/v1/inbox",
  "/v1/sessions/{sessionId}/events",
  "/v1/inbox/events",
  "/v1/watch",
  "/v1/throttles/{name}",
  // The bytes that a member has uploaded, which only who sees content gets.
  "/v1/sessions/{sessionId}/files/{hash}",
  "/v1/files/{access}/{hash}",
  // Those of payloads, which only who may read payloads gets.
  "/v1/tasks/{taskId}/files/{hash}",
];
/** What a read must be asked with. */
const queries: Readonly<Record<string, string>> = { "/v1/series": "?subject=task" };
const reads = allSpecs.filter(
  ({ method, path }) => method === "get" && !readElsewhere.includes(path),
);

describe("a secret in everything that users put in", () => {
  test("is there", async () => {
    const task = await server.flotilla.tasks.get(ids["taskId"]!);
    expect(task).toMatchObject({ payload: content, progress: content, result: content });
    expect(task!.key).toBe(formed);
    expect(JSON.stringify(await server.flotilla.runs.get(ids["runId"]!))).toContain(named);
  });

  test.each(reads)("isn't in what an administrator reads at $path", async ({ path }) => {
    const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? "none");
    const at = filled + (queries[path] ?? "");
    const { status, text } = await call("GET", at);
    expect({ status, at }).toEqual({ status: 200, at });
    expect(text).toSatisfy((each: string) => !hasCanary(each));
  });

  test("isn't in what a failed task shows, nor its events", async () => {
    for (const path of [`/v1/tasks/${ids["failedId"]}`, `/v1/tasks/${ids["failedId"]}/events`]) {
      const { text } = await call("GET", path);
      expect(text).toContain("no entry with");
      expect(text).toContain("[redacted]");
      expect(hasCanary(text)).toBe(false);
    }
  });

  test("isn't in what is streamed to an administrator, by events or by a socket", () => {
    const all = streamed.join("");
    expect(all).toContain("tool-output-available");
    expect(all).toContain("is it");
    expect(all).toContain("[redacted]");
    expect(hasCanary(all)).toBe(false);
    // Nor in the pieces that it came in.
    const deltas = [...all.matchAll(/"type":"text-delta","id":"t","delta":"([^"]*)"/g)];
    expect(hasCanary(deltas.map(([, delta]) => delta).join(""))).toBe(false);
  });

  test("isn't in any topic that is watched, and is a shape to a caller without content", async () => {
    const args: Record<string, string> = {
      throttle: "none",
      flow: "order",
      run: ids["runId"]!,
      task: ids["taskId"]!,
      tasks: `${ids["taskId"]}/${ids["failedId"]}`,
      owner: ids["sessionId"]!,
    };
    const topics = Object.keys(topicSpecs).map(
      (name) => `${name}${args[name] ? `:${args[name]}` : ""}`,
    );
    const watched = async (bearer: string, wanted: readonly string[]): Promise<string> => {
      // More than one stream may have.
      const [first, rest] = [wanted.slice(0, 16), wanted.slice(16)];
      if (rest.length > 0) return (await watched(bearer, first)) + (await watched(bearer, rest));
      const enough = new AbortController();
      const answer = await fetch(`${server.url}/v1/watch?topics=${wanted.join(",")}`, {
        headers: { Authorization: `Bearer ${bearer}` },
        signal: enough.signal,
      });
      expect(answer.status).toBe(200);
      let text = "";
      for await (const bytes of answer.body!) {
        text += Buffer.from(bytes).toString();
        const has = (topic: string) => text.includes(`"type":"snapshot","topic":"${topic}"`);
        if (wanted.every(has)) break;
      }
      enough.abort();
      return text;
    };
    const seen = await watched(key, topics);
    expect(seen).toContain("[redacted]");
    expect(seen).toContain("no entry with");
    expect(hasCanary(seen)).toBe(false);
    const shapes = await watched(
      viewerKey,
      [...topics].filter((topic) => topic !== "audit"),
    );
    expect(shapes).toMatch(/object, \d keys/);
    expect(shapes).not.toMatch(/\buse |\bhere\b|no entry with|my key|is it/);
    expect(hasCanary(shapes)).toBe(false);
  });

  test("isn't in the answers to changes, nor in errors", async () => {
    expect(answers.filter(hasCanary)).toEqual([]);
    for (const canary of [formed, own]) {
      for (const path of [`/v1/tasks/${canary}`, `/v1/runs/${canary}`, `/v1/${canary}`]) {
        const { status, text } = await call("GET", path);
        expect({ status, path }).toEqual({ status: 404, path });
        expect(text).toContain("[redacted]");
        expect(hasCanary(text)).toBe(false);
      }
    }
    const rows = [{ name: "store", options: { [own]: 1 } }];
    const { text: outcomes } = await call("POST", "/v1/tasks/bulk", rows);
    expect(outcomes).toContain("[redacted]");
    expect(hasCanary(outcomes)).toBe(false);
    const socket = await dial(server.socketUrl, { headers: { Authorization: `Bearer ${key}` } });
    const refused = await socket.request({ type: "join", session: own, lastSeq: 0 });
    expect(refused).toMatchObject({ type: "error", code: "not_found" });
    expect(JSON.stringify(refused)).toContain("[redacted]");
    expect(hasCanary(socket.messages.join(""))).toBe(false);
    socket.close();
  });

  test("isn't lost when what was read without it is sent to be stored again", async () => {
    for (const [path, field] of [
      [`/v1/sessions/${ids["sessionId"]}`, "metadata"],
      ["/v1/schedules/hourly", "input"],
      ["/v1/agents/remote", "settings"],
    ] as const) {
      const read = JSON.parse((await call("GET", path)).text) as Record<string, any>;
      const { [field]: value } = read["schedule"] ?? read["agent"] ?? read;
      const at = field === "metadata" ? `${path}/metadata` : path;
      const body = {
        [field]: value,
        ...(field === "input" && { name: "store", everyMs: 3_600_000 }),
      };
      const { status, text } = await call("PUT", at, body);
      expect({ status, field }).toEqual({ status: 400, field });
      expect(text).toContain("which stands for what wasn't shown");
    }
  });

  test("isn't in log lines, the handlers' own among them", () => {
    expect(lines.filter((line) => line.includes("using "))).toHaveLength(1);
    expect(lines.filter((line) => line.includes("no entry with")).length).toBeGreaterThan(1);
    expect(lines.filter(hasCanary)).toEqual([]);
  });

  test("is a shape to a caller that may not see content, as all around it", async () => {
    const asViewer = { Authorization: `Bearer ${viewerKey}` };
    const at = `/v1/sessions/${ids["sessionId"]}`;
    const [task, failed, run, ...ofSession] = await Promise.all(
      [
        `/v1/tasks/${ids["taskId"]}`,
        `/v1/tasks/${ids["failedId"]}`,
        `/v1/runs/${ids["runId"]}`,
        at,
        `${at}/messages`,
        `${at}/export`,
      ].map(async (path) => (await call("GET", path, undefined, asViewer)).text),
    );
    for (const text of [task!, failed!, run!, ...ofSession]) {
      expect(text).toMatch(/object, \d keys|text, \d+ characters/);
      expect(text).not.toMatch(/use |here|no entry with|my key|is it/);
      expect(hasCanary(text)).toBe(false);
    }
    const { payload, error } = (JSON.parse(failed!) as { task: Record<string, unknown> }).task;
    expect(payload).toMatch(/^object, 2 keys, \d+ bytes$/);
    expect(error).toMatchObject({ code: "handler_failed" });
    const socket = await dial(server.socketUrl, { headers: asViewer });
    await socket.request({ type: "join", session: ids["sessionId"], lastSeq: 0 });
    await change("POST", `${at}/messages`, { author: "ada", to: "clerk", ...textMessage("more") });
    await until("its entries", () => socket.seqs(ids["sessionId"]!).includes(6));
    expect(socket.frames.filter(({ type }) => type === "chunks")).toEqual([]);
    expect(socket.messages.join("")).not.toMatch(/my key|is it|more/);
    socket.close();
  });

  test("is in the conversation as its members see it", async () => {
    const asMember = { Authorization: `Bearer ${await member()}` };
    const at = `/v1/sessions/${ids["sessionId"]}`;
    for (const path of [at, `${at}/messages`, `${at}/export`]) {
      const { text } = await call("GET", path, undefined, asMember);
      expect(text).toContain(formed);
      expect(text).toContain(named);
      const forMember = await call("GET", path, undefined, { "Flotilla-User": "ada" });
      expect(forMember.text).toBe(text);
      const forOther = await call("GET", path, undefined, { "Flotilla-User": "grace" });
      expect(hasCanary(forOther.text)).toBe(false);
    }
    const socket = await dial(server.socketUrl, { headers: asMember });
    await socket.request({ type: "join", session: ids["sessionId"], lastSeq: 0 });
    const { entries } = await socket.find("entries");
    expect(JSON.stringify(entries)).toContain(formed);
    socket.close();
  });
});
