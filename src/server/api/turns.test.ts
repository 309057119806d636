import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer, textMessage } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const shops = "a-key-of-one-shop-here";
let server: Awaited<ReturnType<typeof startTestServer>>;
let session: string;

const ask = async (
  bearer: string,
  method: string,
  path: string,
  body?: unknown,
  tenant = "acme",
) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${bearer}`,
      "Flotilla-Tenant": tenant,
      "Content-Type": "application/json",
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  return { status: answer.status, body: (await answer.json()) as any };
};
const token = (claims: Record<string, unknown>) =>
  new SignJWT({ sub: "ada", tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));

beforeAll(async () => {
  const mail = task<string>("mail", {}, () => "sent");
  const helper = agent("helper", async ({ enqueue, usage }) => {
    await enqueue(mail, "ada");
    // What code enqueues for another tenant is no business of this one.
    await server.pod.enqueue(mail, "bob", { tenant: "other" });
    usage({ model: "small", input: 1_000, output: 100 });
    return "sent";
  });
  server = await startTestServer({
    use: [helper, mail],
    prices: { small: { input: 1, output: 10 } },
    server: {
      tokens: { secret },
      apiKeys: [key, { key: shops, tenant: "acme", verbs: ["tasks:read"] }],
    },
  });
  const made = await ask(key, "POST", "/v1/sessions", { users: ["ada"], agents: ["helper"] });
  session = `/v1/sessions/${made.body.sessionId}`;
  await ask(key, "POST", `${session}/messages`, { ...textMessage("hi"), author: "ada" });
  await until("an answer", async () => {
    const { body } = await ask(key, "GET", `${session}/turns`);
    return body.turns[0]?.outcome === "completed";
  });
});
afterAll(() => server[Symbol.asyncDispose]());

describe("GET /v1/sessions/{sessionId}/turns", () => {
  test("lists attempts with their times, tokens and cost", async () => {
    const { status, body } = await ask(key, "GET", `${session}/turns`);
    expect(status).toBe(200);
    expect(body).toEqual({
      turns: [
        {
          epoch: 1,
          attempt: 1,
          agent: "helper",
          podId: server.pod.podId,
          beganAtMs: expect.any(Number),
          firstChunkAtMs: expect.any(Number),
          endedAtMs: expect.any(Number),
          outcome: "completed",
          usage: { input: 1_000, output: 100, cached: 0, model: "small", cost: 0.002 },
        },
      ],
      next: null,
    });
  });

  test("shows a member's token all but the pod, and a stranger's nothing", async () => {
    const seen = await ask(await token({}), "GET", `${session}/turns`);
    expect(seen).toMatchObject({ status: 200, body: { turns: [{ podId: null, epoch: 1 }] } });
    const hidden = await ask(await token({ sub: "eve" }), "GET", `${session}/turns`);
    expect(hidden.status).toBe(404);
  });

  test.each(["?cursor=x", "?limit=0", "?limit=1001", "?before=1"])("refuses %s", async (query) => {
    expect((await ask(key, "GET", `${session}/turns${query}`)).status).toBe(400);
  });
});

describe("GET /v1/sessions/{sessionId}/tasks", () => {
  test("lists what turns have started; without admin, what is of the tenant", async () => {
    const byAdmin = await ask(key, "GET", `${session}/tasks`);
    expect(byAdmin.body.started).toHaveLength(2);
    const reader = await token({ verbs: ["sessions:read", "tasks:read"] });
    const { status, body } = await ask(reader, "GET", `${session}/tasks`);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      started: [{ what: "session", name: "mail", tenant: "acme" }],
      hasMore: false,
    });
  });

  test("needs tasks:read", async () => {
    const { status, body } = await ask(await token({}), "GET", `${session}/tasks`);
    expect([status, body.error.details]).toMatchObject([403, { verb: "tasks:read" }]);
  });

  test("leads to tasks that lead back, unless their origin is another tenant's", async () => {
    const sessionId = session.split("/").at(-1);
    const { body } = await ask(key, "GET", `${session}/tasks`);
    const idOf = (tenant: string) =>
      body.started.find((each: { tenant: string }) => each.tenant === tenant).taskId as string;
    const own = await ask(shops, "GET", `/v1/tasks/${idOf("acme")}`);
    expect(own.body.links).toMatchObject({
      startedBy: { what: "session", id: sessionId, tenant: "acme" },
      started: [],
    });
    const other = await token({ tenant: "other", verbs: ["tasks:read"] });
    const path = `/v1/tasks/${idOf("other")}`;
    const theirs = await ask(other, "GET", path, undefined, "other");
    expect(theirs).toMatchObject({ status: 200, body: { links: { startedBy: null } } });
    const byAdmin = await ask(key, "GET", path);
    expect(byAdmin.body.links).toMatchObject({ startedBy: { id: sessionId } });
  });
});

describe("GET /v1/sessions/{sessionId}/owner", () => {
  test("names the pod, its log and its term, to callers that look after the fleet alone", async () => {
    const { status, body } = await ask(key, "GET", `${session}/owner`);
    expect([status, body]).toEqual([
      200,
      { logId: 0, term: expect.any(Number), podId: server.pod.podId },
    ]);
    expect((await ask(key, "GET", `${session}/owner`, undefined, "other")).status).toBe(404);
    expect((await ask(key, "GET", "/v1/sessions/none/owner")).status).toBe(404);
    for (const bearer of [await token({}), shops])
      expect((await ask(bearer, "GET", `${session}/owner`)).status).toBe(403);
  });
});
