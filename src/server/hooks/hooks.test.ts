import { createHmac } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { hook, type HookDelivery, type HookMessage } from "../../runtime/hooks/hook.ts";
import { githubSignature, slackSignature } from "../../runtime/hooks/signatures.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { startTestServer, type TestServer } from "../contract/test-server.ts";

const secret = "a-secret-of-the-sender";
const key = "a-key-of-16-chars-or-more";
let server: TestServer;
let calls: HookDelivery[];
let handle: (delivery: HookDelivery) => HookMessage | undefined | Promise<undefined>;

const echo = agent("echo", async function* ({ messages }) {
  yield `heard ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});
const other = agent("other", () => "heard it too");

beforeAll(async () => {
  const verify = githubSignature({ secret });
  const hooks = [
    hook("builds", {
      verify,
      timeoutMs: 500,
      maxBytes: 2_048,
      handle: (delivery) => {
        calls.push(delivery);
        return handle(delivery);
      },
    }),
    hook("slack", { verify: slackSignature({ secret }), handle: () => null }),
    hook("silent", {
      verify: () => new Promise(() => {}),
      timeoutMs: 100,
      handle: () => null,
    }),
    hook("broken", {
      verify: () => {
        throw new Error("no key");
      },
      handle: () => null,
    }),
  ];
  server = await startTestServer({ use: [echo, other], server: { apiKeys: [key], hooks } });
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(() => {
  calls = [];
  handle = ({ json }) => {
    const { build, says } = json() as { build: string; says: string };
    return { sessionId: `build-${build}`, message: says, agents: ["echo"], users: ["ada"] };
  };
});

type Sent = { id?: string; name?: string; signedWith?: string; headers?: Record<string, string> };

function deliver(body: string | object, sent: Sent = {}): Promise<Response> {
  const { id = "d-1", name = "builds", signedWith = secret, headers } = sent;
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const signature = createHmac("sha256", signedWith).update(text).digest("hex");
  return fetch(`${server.url}/v1/hooks/${name}`, {
    method: "POST",
    body: text,
    headers: {
      "Content-Type": "application/json",
      "X-GitHub-Delivery": id,
      "X-Hub-Signature-256": `sha256=${signature}`,
      ...headers,
    },
  });
}

const answered = async (sent: Promise<Response>) => {
  const response = await sent;
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};
const said = async (sessionId: string) => {
  const { entries } = await server.sessions.entries("default", sessionId, {});
  return entries
    .filter(({ role }) => role === "user")
    .map(({ author, parts }) => `${author}: ${String(parts[0]?.["text"])}`);
};
const stored = { status: 200, body: { status: "stored" } };

describe("a delivery", () => {
  test("makes the session that its hook names, says there what it says, and the agent answers", async () => {
    expect(await answered(deliver({ build: "1", says: "it failed" }))).toEqual(stored);
    expect(await said("build-1")).toEqual(["builds: it failed"]);
    await expect
      .poll(async () => (await server.sessions.entries("default", "build-1", {})).entries.length)
      .toBe(2);
    expect(await answered(deliver({ build: "1", says: "it passed" }, { id: "d-2" }))).toEqual(
      stored,
    );
    expect(await said("build-1")).toEqual(["builds: it failed", "builds: it passed"]);
  });

  test("is one entry, however often and however much at once it comes", async () => {
    const sent = Array.from({ length: 8 }, (_, nth) =>
      answered(deliver({ build: "2", says: "once" }, { id: `replayed-${nth}` })),
    );
    const all = (await Promise.all(sent)).map(({ body }) => body["status"]);
    expect(all.filter((status) => status === "stored")).toHaveLength(1);
    expect(all.filter((status) => status === "duplicate")).toHaveLength(7);
    expect(await said("build-2")).toEqual(["builds: once"]);
  });

  test("has a session of its own, where its hook names none", async () => {
    handle = () => ({ message: "hello", agents: ["echo"] });
    expect(await answered(deliver({}, { id: "alone" }))).toEqual(stored);
    expect((await answered(deliver({}, { id: "alone" }))).body).toEqual({ status: "duplicate" });
  });

  test("is said in a session whose agents have changed since it was made", async () => {
    expect(await answered(deliver({ build: "4", says: "it failed" }))).toEqual(stored);
    await server.sessions.changeMembers("default", "build-4", { agents: ["other", "echo"] });
    expect(await answered(deliver({ build: "4", says: "it passed" }))).toEqual(stored);
    expect(await said("build-4")).toEqual(["builds: it failed", "builds: it passed"]);
    await server.sessions.remove("default", "build-4");
    expect((await deliver({ build: "4", says: "and now?" })).status).toBe(409);
  });

  test("of no interest is answered, and nothing is stored", async () => {
    handle = () => undefined;
    expect(await answered(deliver({}))).toEqual({ status: 200, body: { status: "ignored" } });
  });

  test("gets no more than its hook says: it is given no session of another id", async () => {
    handle = () => ({ sessionId: "nowhere", message: "hello" });
    expect((await deliver({})).status).toBe(404);
    handle = () => ({ message: "hello" });
    expect((await deliver({})).status).toBe(500);
  });
});

describe("a delivery is refused", () => {
  test.each([
    ["signed with another secret", { build: "3", says: "no" }, { signedWith: "another-secret" }],
    ["without a signature", {}, { headers: { "X-Hub-Signature-256": "" } }],
    ["of a hook whose verifier throws", {}, { name: "broken" }],
    ["of a hook whose verifier doesn't answer", {}, { name: "silent" }],
  ])("one %s, before its hook sees it", async (_, body, sent) => {
    const { status, body: answer } = await answered(deliver(body, sent as Sent));
    expect(status).toBe(401);
    expect(JSON.stringify(answer)).not.toContain("no key");
    expect(calls).toEqual([]);
  });

  test("one that is larger than its hook takes, and of a hook that there isn't", async () => {
    expect((await deliver("x".repeat(2_049))).status).toBe(413);
    expect((await deliver("x".repeat(10_000_000))).status).toBe(413);
    expect((await deliver({}, { name: "other" })).status).toBe(404);
    expect((await deliver({}, { name: "builds/x" })).status).toBe(404);
    expect(calls).toEqual([]);
  });

  test("one whose hook throws or takes too long, so that it is sent again, and nothing of it is told", async () => {
    handle = () => {
      throw new Error("broken");
    };
    const { status } = await answered(deliver({ says: "a private thing" }));
    expect(status).toBe(500);
    handle = () => new Promise<undefined>(() => {});
    expect((await deliver({})).status).toBe(503);
    expect(calls.at(-1)!.signal.aborted).toBe(true);
    handle = () => {
      throw new FlotillaError("invalid_input", "a build without a number");
    };
    expect((await deliver({})).status).toBe(400);
    handle = ({ json }) => void json();
    expect((await deliver("no JSON")).status).toBe(400);
  });

  test("one to another route, whatever it is signed with", async () => {
    const headers = { "X-Hub-Signature-256": "sha256=00" };
    const url = `${server.url}/v1/tasks`;
    expect((await fetch(url, { method: "POST", headers, body: "{}" })).status).toBe(401);
  });
});

test("a sender that asks whether the hook is there gets its answer", async () => {
  const text = JSON.stringify({ type: "url_verification", challenge: "3eZb" });
  const at = Math.floor(Date.now() / 1_000);
  const signature = createHmac("sha256", secret).update(`v0:${at}:${text}`).digest("hex");
  const headers = {
    "X-Slack-Request-Timestamp": String(at),
    "X-Slack-Signature": `v0=${signature}`,
  };
  expect(await answered(deliver(text, { name: "slack", headers }))).toEqual({
    status: 200,
    body: { status: "answered", challenge: "3eZb" },
  });
});
