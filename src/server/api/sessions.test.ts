import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { textMessage, startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const viewer = "a-key-of-a-viewer-here";
const reader = "a-key-of-a-reader-here";
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  const echo = agent("echo", () => "as you say");
  server = await startTestServer({
    use: [echo],
    server: {
      tokens: { secret },
      apiKeys: [
        key,
        { key: viewer, role: "viewer", tenant: "acme" },
        { key: reader, role: "viewer", tenant: "acme", verbs: ["payloads:read"] },
      ],
      origins: ["https://app.example"],
    },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const token = (claims: Record<string, unknown>) =>
  new SignJWT({ sub: "ada", tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));

type Ask = (
  method: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
  // oxlint-disable-next-line typescript/no-explicit-any
) => Promise<{ status: number; body: any }>;

const withBearer =
  (bearer: string, more: Record<string, string> = {}): Ask =>
  async (method, path, body, headers = {}) => {
    const answer = await fetch(`${server.url}${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${bearer}`,
        ...(body !== undefined && { "Content-Type": "application/json" }),
        ...more,
        ...headers,
      },
      ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    return { status: answer.status, body: text.startsWith("{") ? JSON.parse(text) : text };
  };
const program = withBearer(key, { "Flotilla-Tenant": "acme" });
const as = async (user: string, claims: Record<string, unknown> = {}) =>
  withBearer(await token({ sub: user, ...claims }));
const all = ["sessions:read", "sessions:write", "sessions:create", "sessions:manage", "inbox:read"];

const made = async (users = ["ada"], agents: string[] = []) => {
  const { body } = await program("POST", "/v1/sessions", { users, agents });
  return `/v1/sessions/${body.sessionId}`;
};
const refusal = (status: number, code: string) => ({ status, body: { error: { code } } });

describe("sessions over HTTP", () => {
  test("are made, written in, read, changed, archived and deleted", async () => {
    const at = await made(["ada"], ["echo"]);
    const message = { id: "m", author: "ada", ...textMessage("hi") };
    expect(await program("POST", `${at}/messages`, message)).toMatchObject({
      status: 201,
      body: { seq: 1, messageId: "m", duplicate: false },
    });
    expect(await program("POST", `${at}/messages`, message)).toMatchObject({
      status: 200,
      body: { seq: 1, duplicate: true },
    });
    await until("an answer", async () => {
      const { body } = await program("GET", `${at}/messages?after=1&limit=10`);
      return body.entries[0]?.author === "echo";
    });
    expect(await program("POST", `${at}/stop`)).toMatchObject({
      status: 202,
      body: { done: false },
    });
    const file = { type: "file", mediaType: "text/plain", url: "https://files.example/1" };
    const silent = { id: "f", author: "ada", parts: [...textMessage("").parts, file] };
    const plain = (await made(["ada"])) + "/messages";
    expect((await program("POST", plain, silent)).status).toBe(201);
    expect((await program("POST", `${at}/regenerate`)).status).toBe(202);
    await until("another answer", async () => (await program("GET", at)).body.lastSeq === 3);
    expect(await program("PUT", `${at}/metadata`, { metadata: { a: 1 } })).toMatchObject({
      status: 200,
    });
    const { metadataVersion } = (await program("GET", at)).body;
    const stale = { "If-Match": `"${metadataVersion - 1}"` };
    const fresh = { "If-Match": `"${metadataVersion}"` };
    const change = { metadata: { a: 2 } };
    expect(await program("PUT", `${at}/metadata`, change, stale)).toMatchObject(
      refusal(409, "conflict"),
    );
    expect(await program("PUT", `${at}/metadata`, change, fresh)).toMatchObject({ status: 200 });
    expect((await program("GET", at)).body).toMatchObject({ metadata: { a: 2 }, lastSeq: 3 });
    await program("POST", `${at}/archive`);
    const late = { author: "ada", ...textMessage("late") };
    expect(await program("POST", `${at}/messages`, late)).toMatchObject(refusal(409, "conflict"));
    await program("POST", `${at}/unarchive`);
    expect((await program("POST", `${at}/messages`, late)).status).toBe(201);
    expect(await program("DELETE", at)).toMatchObject({ status: 200, body: { status: "deleted" } });
    expect(await program("GET", at)).toMatchObject(refusal(404, "not_found"));
  });

  test("store tasks and runs with a message, once, for what may start them", async () => {
    const at = `${await made()}/messages`;
    const tasks = [
      { task: "render", input: { scene: 7 }, ref: "r", options: { priority: 5 } },
      { flow: "review", after: ["r"], options: { runAt: "2099-01-31T08:00:00Z" } },
    ];
    const message = { id: "m", author: "ada", ...textMessage("go"), tasks };
    const first = await program("POST", at, message);
    expect(first).toMatchObject({ status: 201, body: { seq: 1, duplicate: false } });
    const [render, review] = first.body.tasks;
    const { task } = (await program("GET", `/v1/tasks/${render.taskId}`)).body;
    const stored = { name: "render", tenant: "acme", payload: { scene: 7 }, priority: 5 };
    expect(task).toMatchObject(stored);
    const { run } = (await program("GET", `/v1/runs/${review.taskId}`)).body;
    expect(run).toMatchObject({ flow: "review", tenant: "acme" });
    expect(await program("POST", at, message)).toMatchObject({
      status: 200,
      body: { duplicate: true, tasks: first.body.tasks },
    });
    const { entries } = (await program("GET", at)).body;
    expect(entries).toMatchObject([{ tasks: [render.taskId, review.taskId] }]);

    const anew = { ...message, id: "n" };
    expect(await (await as("ada"))("POST", at, anew)).toMatchObject(refusal(403, "forbidden"));
    for (const wrong of [
      [{}],
      [{ task: "a", flow: "b" }],
      [{ task: "a", after: ["nowhere"] }],
      [{ task: "a", options: { onDuplicate: "reject" } }],
      [{ task: "a", options: { runAt: "soon" } }],
    ]) {
      const { status } = await program("POST", at, { ...anew, tasks: wrong });
      expect([wrong, status]).toEqual([wrong, 400]);
    }
    expect((await program("GET", at)).body.lastSeq).toBe(1);
  });

  test("are exported whole, as lines", async () => {
    const at = await made();
    for (let n = 0; n < 450; n += 50) {
      await Promise.all(
        Array.from({ length: 50 }, () =>
          program("POST", `${at}/messages`, { author: "ada", ...textMessage("line") }),
        ),
      );
    }
    const answer = await fetch(`${server.url}${at}/export`, {
      headers: { Authorization: `Bearer ${key}`, "Flotilla-Tenant": "acme" },
    });
    expect(answer.headers.get("content-type")).toBe("application/x-ndjson");
    const lines = (await answer.text()).trimEnd().split("\n");
    const [first, ...rest] = lines.map((line) => JSON.parse(line));
    expect(first.session.lastSeq).toBe(450);
    expect(rest.map(({ entry }) => entry.seq)).toEqual(
      Array.from({ length: 450 }, (_, n) => n + 1),
    );
  });

  test.each([
    [
      "/messages",
      { author: "a", parts: [{ type: "text", text: "\u0000" }] },
      "payload_not_storable",
    ],
    ["/messages", { author: "a", parts: "none" }, "invalid_input"],
    ["/messages", { author: "a", parts: [7] }, "invalid_input"],
    ["/messages", { parts: [{ type: "x" }] }, "invalid_input"],
    ["/messages", { author: "a", ...textMessage("") }, "invalid_input"],
    ["/messages", { author: "a", parts: [], role: "god" }, "invalid_option"],
    ["/messages", "{", "invalid_input"],
    ["/read", { user: "a", seq: -1 }, "invalid_option"],
    ["/read", { user: "a", seq: 2 ** 53 + 2 }, "invalid_option"],
    ["/tool-results", { author: "a", messageId: "m", results: [{}] }, "invalid_input"],
  ])("refuse %s with %j: %s", async (path, body, code) => {
    expect(await program("POST", `${await made()}${path}`, body)).toMatchObject(refusal(400, code));
  });
});

describe("users over HTTP", () => {
  test("see their own sessions, and of others not even that they exist", async () => {
    const [mine, others] = [await made(["ada"]), await made(["bob"])];
    const elsewhere = await as("ada", { tenant: "other", verbs: [...all, "sessions:any"] });
    const rival = withBearer(key, { "Flotilla-Tenant": "other", "Flotilla-User": "ada" });
    const ada = await as("ada", { verbs: all });
    expect((await ada("GET", mine)).status).toBe(200);
    const { sessions } = (await ada("GET", "/v1/sessions?limit=1000")).body;
    expect(sessions.every(({ users }: { users: string[] }) => users.includes("ada"))).toBe(true);
    expect(await ada("GET", "/v1/sessions?user=bob")).toMatchObject(refusal(403, "forbidden"));
    const routes: [string, string, unknown?][] = [
      ["GET", ""],
      ["DELETE", ""],
      ["PUT", "/metadata", { metadata: 1 }],
      ["PUT", "/members", { addUsers: ["ada"] }],
      ["POST", "/archive"],
      ["POST", "/unarchive"],
      ["POST", "/compact"],
      ["GET", "/messages"],
      ["POST", "/messages", textMessage("hi")],
      ["POST", "/tool-results", { messageId: "m", results: [{ toolCallId: "c", output: 1 }] }],
      ["POST", "/regenerate", {}],
      ["POST", "/stop"],
      ["POST", "/read", { seq: 0 }],
      ["GET", "/export"],
      ["GET", "/events"],
    ];
    for (const [method, path, body] of routes) {
      for (const [who, at] of [
        [ada, others],
        [ada, "/v1/sessions/nowhere"],
        [elsewhere, mine],
        [rival, mine],
      ] as const) {
        const answer = await who(method, `${at}${path}`, body);
        expect(answer, `${method} ${path}`).toMatchObject(refusal(404, "not_found"));
      }
    }
    expect((await program("GET", others)).body).toMatchObject({ users: ["bob"], lastSeq: 0 });
  });

  test("do what their verbs allow, and nothing of an administrator", async () => {
    const at = await made();
    const ada = await as("ada");
    expect((await ada("POST", `${at}/messages`, textMessage("hi"))).status).toBe(201);
    for (const [method, path] of [
      ["POST", "/v1/sessions"],
      ["DELETE", at],
      ["POST", `${at}/archive`],
      ["GET", "/v1/tasks"],
      ["POST", "/v1/tasks"],
      ["GET", "/v1/pods"],
      ["GET", "/v1/agents"],
      ["GET", "/metrics"],
      ["POST", "/v1/pause"],
    ] as const) {
      expect(await ada(method, path)).toMatchObject(refusal(403, "forbidden"));
    }
    const reader = await as("ada", { verbs: ["sessions:read"] });
    expect((await reader("GET", at)).status).toBe(200);
    expect(await reader("POST", `${at}/messages`, textMessage("x"))).toMatchObject(
      refusal(403, "forbidden"),
    );
    expect(await reader("GET", "/v1/inbox")).toMatchObject(refusal(403, "forbidden"));
  });

  test("take part in what they make, and don't get what others have made", async () => {
    const ada = await as("ada", { verbs: ["sessions:create", "sessions:read"] });
    const { status, body } = await ada("POST", "/v1/sessions", { sessionId: "hers" });
    expect([status, body.users]).toEqual([201, ["ada"]]);
    expect(await ada("POST", "/v1/sessions", { users: ["bob"] })).toMatchObject(
      refusal(403, "forbidden"),
    );
    const bob = await as("bob", { verbs: ["sessions:create", "sessions:read"] });
    const stolen = await bob("POST", "/v1/sessions", { sessionId: "hers" });
    expect(stolen).toMatchObject(refusal(409, "conflict"));
    expect(JSON.stringify(stolen.body)).not.toContain("ada");
    const far = await as("ada", { tenant: "other", verbs: ["sessions:create"] });
    expect((await far("POST", "/v1/sessions", { sessionId: "hers" })).status).toBe(409);
  });

  test("write as themselves", async () => {
    const at = await made();
    const ada = await as("ada");
    for (const more of [{ author: "bob" }, { role: "assistant" }]) {
      expect(await ada("POST", `${at}/messages`, { ...textMessage("hi"), ...more })).toMatchObject(
        refusal(403, "forbidden"),
      );
    }
    const read = await ada("POST", `${at}/read`, { seq: 0, user: "bob" });
    expect(read).toMatchObject(refusal(403, "forbidden"));
    expect(await ada("GET", "/v1/inbox?user=bob")).toMatchObject(refusal(403, "forbidden"));
  });

  test("have an inbox", async () => {
    const at = await made(["eve"]);
    await program("POST", `${at}/messages`, { author: "bob", ...textMessage("psst") });
    const eve = await as("eve");
    const inbox = await until("the message", async () => {
      const { body } = await eve("GET", "/v1/inbox");
      return body.sessions[0]?.unread === 1 && body.sessions;
    });
    expect(inbox).toMatchObject([{ preview: "psst", readSeq: 0, lastSeq: 1 }]);
    const narrow = await as("eve", { sessions: ["another"] });
    expect((await narrow("GET", "/v1/inbox")).body.sessions).toEqual([]);
    await eve("POST", `${at}/read`, { seq: 1 });
    await until("it to be read", async () => {
      return (await eve("GET", "/v1/inbox")).body.sessions[0]?.unread === 0;
    });
  });
});

describe("sessions by their metadata", () => {
  const ofTicket = "/v1/sessions?metadata.ticket.id=7";
  const idsOf = ({ body }: { body: { sessions: { sessionId: string }[] } }) =>
    body.sessions.map(({ sessionId }) => sessionId).toSorted();

  beforeAll(async () => {
    for (const [sessionId, users, metadata] of [
      ["of-yan", ["yan"], { ticket: { id: 7 }, password: "hunter2" }],
      ["of-uma", ["uma"], { ticket: { id: 7 } }],
      ["of-none", ["uma"], { ticket: { id: "7" } }],
    ])
      await program("POST", "/v1/sessions", { sessionId, users, metadata });
  });

  test("are found by callers that see it, each among what it may see", async () => {
    expect(idsOf(await program("GET", ofTicket))).toEqual(["of-uma", "of-yan"]);
    expect(idsOf(await (await as("uma"))("GET", ofTicket))).toEqual(["of-uma"]);
    const named = await as("uma", { sessions: ["of-none"] });
    expect(idsOf(await named("GET", ofTicket))).toEqual([]);
    const quoted = `/v1/sessions?metadata.ticket.id=${encodeURIComponent('"7"')}`;
    expect(idsOf(await program("GET", quoted))).toEqual(["of-none"]);
    const elsewhere = await program("GET", ofTicket, undefined, { "Flotilla-Tenant": "other" });
    expect(elsewhere.body).toEqual({ sessions: [], next: null, lookedBackTo: null });
  });

  test("aren't found by callers that see shapes alone, nor by what no caller is shown", async () => {
    expect(await withBearer(viewer)("GET", ofTicket)).toMatchObject({
      status: 403,
      body: { error: { code: "forbidden", details: { verb: "payloads:read" } } },
    });
    expect(idsOf(await withBearer(reader)("GET", ofTicket))).toEqual(["of-uma", "of-yan"]);
    expect(await withBearer(reader)("GET", "/v1/sessions?metadata.password=hunter2")).toMatchObject(
      {
        status: 403,
        body: { error: { message: expect.stringContaining("isn't shown to callers") } },
      },
    );
  });

  const deep = Array.from({ length: 50 }, () => "a").join(".");
  test.each([
    ["metadata=7", "metadata needs a path: write metadata.<path>=<value>"],
    ["metadata.__proto__=7", "must be a path"],
    ["metadata.constructor.__proto__=7", "must be a path"],
    ["metadata.a%22b=7", "must be a path"],
    ["metadata.a%25=7", "must be a path"],
    [`metadata.${deep}=7`, "must be a path of 1 to 5 names"],
    ["metadata.id=9007199254740993", "within 2^53"],
    ["payload.id=7", "unknown option `payload.id`"],
    ["metadata.id=7&cursor=made-up", "cursor must be the `next` of an earlier page"],
  ])("are refused with a sentence for ?%s", async (query, message) => {
    expect(await program("GET", `/v1/sessions?${query}`)).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_option", message: expect.stringContaining(message) } },
    });
  });
});

describe("a token of a few sessions", () => {
  test("gets no others from the list, neither in it nor in its cursor", async () => {
    const ids: string[] = [];
    for (let made = 0; made < 6; made++) {
      const { body } = await program("POST", "/v1/sessions", { users: ["zoe"], agents: [] });
      ids.push(body.sessionId as string);
    }
    const named = [ids[1]!, ids[4]!];
    const zoe = await as("zoe", { sessions: named });
    const seen: string[] = [];
    let cursor = "";
    for (let page = 0; page < 10; page++) {
      const { body } = await zoe("GET", `/v1/sessions?limit=1${cursor}`);
      seen.push(...(body.sessions as { sessionId: string }[]).map(({ sessionId }) => sessionId));
      if (body.next === null) break;
      expect(named).toContain(String(body.next).replace(/^[\w-]+\.\d+\./, ""));
      cursor = `&cursor=${body.next}`;
    }
    expect(seen.toSorted()).toEqual(named.toSorted());
  });
});

describe("pages of other sites", () => {
  const call = async (origin: string, init: RequestInit = {}) => {
    const headers = { Authorization: `Bearer ${await token({})}`, Origin: origin };
    const answer = await fetch(`${server.url}/v1/sessions/nowhere`, {
      ...init,
      headers: { ...headers, ...(init.headers as Record<string, string>) },
    });
    await answer.text();
    return [answer.status, answer.headers.get("access-control-allow-origin")];
  };

  test("may read the answers if they are named, refusals too", async () => {
    expect(await call("https://app.example")).toEqual([404, "https://app.example"]);
    expect(await call("https://evil.example")).toEqual([404, null]);
  });

  test("may send a preflight, without credentials", async () => {
    const init = { method: "OPTIONS", headers: { "Access-Control-Request-Method": "PUT" } };
    expect(await call("https://app.example", init)).toEqual([204, "https://app.example"]);
    expect((await call("https://evil.example", init))[1]).toBe(null);
  });
});
