import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Action, actions } from "../../audit/act.ts";
import { actAs } from "../../audit/actor.ts";
import { inHandler } from "../../audit/contract/harness.ts";
import { markFull } from "../../audit/sql.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { durable, later } from "../../durable/index.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { openStore } from "../../store/open.ts";
import { dial, startTestServer } from "../contract/test-server.ts";
import { allSpecs } from "../openapi.ts";
import { frameAccess } from "../socket/commands.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
/** Of a program that has rights on all sessions, and no role. */
const backendKey = "a-key-of-the-chats-own-backend";
const operatorKey = "an-operators-key-of-the-night";
let server: Awaited<ReturnType<typeof startTestServer>>;

const writer = agent("writer", { compaction: { fn: () => "so far", when: "manual" } }, () => "yes");
const endless = agent("endless", async function* ({ signal }) {
  yield "word ";
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
});
const buyer = agent("buyer", function* ({ messages }): Generator<Chunk | string> {
  if (messages.at(-1)?.parts.some((part) => part.type === "tool-pay")) return yield "thank you";
  yield { type: "tool-input-available", toolCallId: "c", toolName: "pay", input: {} };
  yield { type: "tool-approval-request", toolCallId: "c", approvalId: "p" };
});
const guide = agent("guide", async function* (context) {
  const isReported = context.messages
    .at(-1)!
    .parts.some(({ state }) => state === "output-available");
  if (isReported) return yield "thank you";
  const wait = async (_input: object, _options: object) => later({ signal: "approve" });
  const { ask: asking } = durable(context, { tools: { ask: { execute: wait } } }).tools;
  const toolCallId = "c";
  yield { type: "tool-input-available", toolCallId, toolName: "ask", input: {} } as const;
  const output = await asking.execute({}, { toolCallId });
  yield { type: "tool-output-available", toolCallId, output } as const;
});

beforeAll(async () => {
  server = await startTestServer({
    use: [writer, endless, buyer, guide],
    server: {
      tokens: { secret, claims: { role: "role" } },
      apiKeys: [
        { key, name: "ops" },
        { key: backendKey, name: "backend", tenant: "default" },
        { key: operatorKey, name: "night", role: "operator" },
      ],
    },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = async (
  bearer: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      ...headers,
      Authorization: `Bearer ${bearer}`,
      ...(body !== undefined && { "Content-Type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
};
const asOps = (method: string, path: string, body?: unknown) => ask(key, method, path, body);
const tokenOf = (user: string, verbs: readonly string[]) =>
  signed({ sub: user, tenant: "default", verbs });
const signed = (claims: Record<string, unknown>) =>
  new SignJWT(claims)
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
const made = async () => {
  const { body } = await asOps("POST", "/v1/sessions", { users: ["ada"] });
  return String(body["sessionId"]);
};
const entriesOf = async (subject: string) =>
  (await server.flotilla.audit.list({ subject })).entries.toReversed();

/** A session of ada's in which an agent has said something, or is about to. */
const talking = async (name: string): Promise<{ id: string; messageId: string }> => {
  const { sessionId: id } = await server.sessions.create("default", {
    agents: [name],
    users: ["ada"],
  });
  const parts = [{ type: "text", text: "canary of the mine" }];
  await server.sessions.send("default", id, { author: "ada", parts });
  const isThere = async () => {
    const { lastSeq, state } = await server.sessions.get("default", id);
    return name === "endless" ? state.state !== "idle" : lastSeq === 2 && state.state === "idle";
  };
  await until(`${name} answers`, isThere);
  const { entries } = await server.sessions.entries("default", id, {});
  return { id, messageId: entries[1]?.messageId ?? "" };
};

type SessionCase =
  | {
      readonly action: Action;
      /** The agent of its session. Default: `writer`. */
      readonly agent?: string;
      readonly method: string;
      readonly path: string;
      readonly body?: (messageId: string) => object;
      readonly entry?: object;
    }
  | { readonly noAct: string };

const own = { noAct: "is a user's own, or a program's for its users" };

/** Every route that changes something of sessions. */
const ofSessions: Record<string, SessionCase> = {
  endSignIn: { noAct: "ends no session of a chat; it has an entry of its own" },
  createSession: { noAct: "starts something, and changes nothing that is there" },
  editMessage: { noAct: "starts something, and changes nothing that is there" },
  forkSession: { noAct: "starts something, and changes nothing that is there" },
  sendMessage: own,
  runAgent: own,
  uploadFile: own,
  openFiles: { noAct: "is a credential to read by, which changes nothing" },
  markRead: own,
  issueTicket: { noAct: "is a credential of its caller's own, which changes nothing" },
  deleteSession: { action: "sessions.remove", method: "DELETE", path: "" },
  changeSessionMembers: {
    action: "sessions.members",
    method: "PUT",
    path: "/members",
    body: () => ({ addUsers: ["bob"] }),
  },
  archiveSession: { action: "sessions.archive", method: "POST", path: "/archive" },
  unarchiveSession: { action: "sessions.unarchive", method: "POST", path: "/unarchive" },
  setSessionMetadata: {
    action: "sessions.metadata",
    method: "PUT",
    path: "/metadata",
    body: () => ({ metadata: { title: "canary of the mine" } }),
    entry: { filter: null, before: { metadataVersion: 0 }, after: { metadataVersion: 1 } },
  },
  compactSession: {
    action: "sessions.compact",
    method: "POST",
    path: "/compact",
    entry: { before: { work: null }, after: { work: "compaction" } },
  },
  stopTurn: {
    action: "sessions.stop",
    agent: "endless",
    method: "POST",
    path: "/stop",
    entry: { filter: { epoch: 1 }, before: { work: "turn" }, after: { work: "stopping" } },
  },
  regenerateMessage: {
    action: "sessions.regenerate",
    method: "POST",
    path: "/regenerate",
    body: () => ({}),
    entry: { before: { work: null }, after: { work: "turn" } },
  },
  signalSession: {
    action: "sessions.signal",
    agent: "guide",
    method: "POST",
    path: "/signals",
    body: () => ({ name: "approve", payload: "canary of the mine", author: "zoe" }),
    entry: { filter: { signal: "approve" } },
  },
  setWake: {
    action: "sessions.wake",
    method: "POST",
    path: "/wakes",
    body: () => ({ key: "k", afterMs: 1_000_000, message: "canary of the mine", author: "zoe" }),
    entry: { filter: { key: "k" } },
  },
  cancelWake: {
    action: "sessions.cancel_wake",
    method: "DELETE",
    path: "/wakes/k",
    entry: { filter: { key: "k" } },
  },
  sendToolResults: {
    action: "sessions.decide",
    agent: "buyer",
    method: "POST",
    path: "/tool-results",
    body: (messageId) => ({
      messageId,
      results: [{ toolCallId: "c", approved: true, reason: "canary of the mine" }],
      author: "zoe",
    }),
    entry: { filter: { calls: [{ toolCallId: "c", approved: true }] } },
  },
};
const acting = Object.entries(ofSessions).flatMap(([operationId, each]) =>
  "action" in each ? [{ operationId, ...each }] : [],
);
/** What a program does for its users with a key that has no role, and so leaves no entries. */
const usual = acting.filter(({ action }) =>
  /\.(?:metadata|compact|stop|regenerate|signal|decide|wake|cancel_wake)$/.test(action),
);
/** Does it in a session that was made for it, as the holder of a key. */
const actedIn = async (
  bearer: string,
  { agent: name = "writer", operationId, method, path, body }: (typeof acting)[number],
) => {
  const { id, messageId } = await talking(name);
  if (operationId === "unarchiveSession") await server.sessions.archive("default", id);
  if (operationId === "cancelWake") {
    const wake = { key: "k", afterMs: 1_000_000, author: "ada" };
    await server.sessions.wake("default", id, wake);
  }
  const answer = await ask(bearer, method, `/v1/sessions/${id}${path}`, body?.(messageId));
  expect(answer.status).toBeLessThan(300);
  return id;
};

describe("acts on sessions", () => {
  test("are all routes that change something of sessions, and are on the list", () => {
    const changing = allSpecs.filter(
      ({ method, verb = "admin" }) => method !== "get" && /^(?:sessions|inbox|tasks):/.test(verb),
    );
    expect(changing.map(({ operationId }) => operationId).toSorted()).toEqual(
      Object.keys(ofSessions).toSorted(),
    );
    const listed = actions.filter((action) => action.startsWith("sessions."));
    expect(acting.map(({ action }) => action as string).toSorted()).toEqual(listed.toSorted());
  });

  test.each(acting)("$operationId of an operator leaves one, with nothing said", async (each) => {
    const id = await actedIn(key, each);
    const entries = await entriesOf(id);
    expect(entries).toMatchObject([
      { action: each.action, actor: "key/ops", role: "admin", ...each.entry },
    ]);
    expect(JSON.stringify(entries)).not.toContain("canary");
  });

  test("that are said in a user's name are no operator's, and leave none", async () => {
    const { id, messageId } = await talking("writer");
    const spoken = { author: "zoe", message: "canary of the mine" };
    const parts = [{ type: "text", text: spoken.message }];
    const results = [{ toolCallId: "c", output: spoken.message }];
    for (const [path, body] of [
      ["wakes", { key: "k", afterMs: 1_000_000, ...spoken }],
      ["messages", { author: "zoe", parts }],
      ["tool-results", { author: "zoe", messageId, results }],
    ] as const) {
      const answer = await ask(operatorKey, "POST", `/v1/sessions/${id}/${path}`, body);
      expect([path, answer.status]).toEqual([path, 403]);
    }
    expect(await entriesOf(id)).toEqual([]);
    expect(await server.sessions.get("default", id)).toMatchObject({ lastSeq: 2 });
  });

  test.each(usual)("$operationId of a program without a role leaves none", async (each) => {
    expect(await entriesOf(await actedIn(backendKey, each))).toEqual([]);
  });

  test.each(usual)("$operationId of a member leaves none", async (each) => {
    const verbs = ["sessions:read", "sessions:write", "sessions:manage"];
    const { body, ...rest } = each;
    const asAda = {
      ...rest,
      ...(body && {
        body: (messageId: string) => ({ ...body(messageId), author: undefined }),
      }),
    };
    expect(await entriesOf(await actedIn(await tokenOf("ada", verbs), asAda))).toEqual([]);
  });

  test("on a server without keys leave none in the sessions of its own user", async () => {
    await using open = await startTestServer({ use: [writer] });
    const acted = async (users?: string[]) => {
      const send = (method: string, path: string, body: object) =>
        fetch(`${open.url}${path}`, {
          method,
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body),
        });
      const made = await send("POST", "/v1/sessions", {
        agents: ["writer"],
        ...(users && { users }),
      });
      const { sessionId } = (await made.json()) as { sessionId: string };
      const changed = await send("PUT", `/v1/sessions/${sessionId}/metadata`, { metadata: 1 });
      expect(changed.status).toBe(200);
      return (await open.flotilla.audit.list({ subject: sessionId })).entries;
    };
    expect(await acted()).toEqual([]);
    expect(await acted(["ada"])).toMatchObject([
      { action: "sessions.metadata", actor: "local", user: "local" },
    ]);
  });

  test("on a socket leave one each, as over HTTP, and a member's own leave none", async () => {
    const frames: Record<string, (id: string, messageId: string) => object> = {
      stop: (session) => ({ session }),
      regenerate: (session) => ({ session }),
      signal: (session) => ({ session, name: "approve" }),
      tool_result: (session, messageId) => ({
        session,
        messageId,
        results: [{ toolCallId: "c", approved: false }],
      }),
    };
    const operated = Object.entries(frameAccess).filter(
      ([, access]) => "or" in access && access.or === "fleet:operate",
    );
    expect(operated.map(([type]) => type).toSorted()).toEqual(Object.keys(frames).toSorted());
    const agents = { stop: "endless", regenerate: "writer", signal: "guide", tool_result: "buyer" };
    for (const [bearer, user] of [
      [key, "zoe"],
      [key, "ada"],
    ] as const) {
      const headers = { Authorization: `Bearer ${bearer}`, "Flotilla-User": user };
      const socket = await dial(server.socketUrl, { headers });
      for (const [type, frameOf] of Object.entries(frames)) {
        const { id, messageId } = await talking(agents[type as keyof typeof agents]);
        const answer = await socket.request({ type, ...frameOf(id, messageId) });
        expect({ type, answer }).toMatchObject({ type, answer: { type: "ack" } });
        const found = await entriesOf(id);
        const action = `sessions.${type === "tool_result" ? "decide" : type}`;
        const entry = { action, actor: "key/ops", user: "zoe", address: expect.any(String) };
        expect(found).toMatchObject(user === "ada" ? [] : [entry]);
        expect(found).toHaveLength(user === "ada" ? 0 : 1);
      }
      socket.close();
    }
  });

  test("of an actor that is no member leave an entry each, in the record of the session", async () => {
    const id = await made();
    const at = `/v1/sessions/${id}`;
    expect(await asOps("PUT", `${at}/members`, { addUsers: ["bob"] })).toMatchObject({
      status: 200,
    });
    for (const [method, path] of [
      ["POST", `${at}/archive`],
      // The same again changes nothing.
      ["POST", `${at}/archive`],
      ["POST", `${at}/unarchive`],
      ["DELETE", at],
    ] as const) {
      expect(await asOps(method, path)).toMatchObject({ status: 200 });
    }
    expect(await entriesOf(id)).toMatchObject([
      {
        action: "sessions.members",
        actor: "key/ops",
        address: "127.0.0.1",
        filter: { addUsers: ["bob"], removeUsers: [], agents: [] },
        before: { status: "active", users: 1 },
        after: { status: "active", users: 2 },
        outcome: "done",
      },
      { action: "sessions.archive", before: { status: "active" }, after: { status: "archived" } },
      { action: "sessions.unarchive", after: { status: "active" } },
      { action: "sessions.remove", before: { status: "active" }, after: { status: "deleted" } },
    ]);
  });

  test("of a member leave none, and of a user that may act on those of others do", async () => {
    const id = await made();
    const verbs = ["sessions:read", "sessions:manage"];
    const member = await tokenOf("ada", verbs);
    expect(await ask(member, "POST", `/v1/sessions/${id}/archive`)).toMatchObject({ status: 200 });
    expect(await entriesOf(id)).toEqual([]);
    const other = await tokenOf("eve", [...verbs, "sessions:any"]);
    expect(await ask(other, "DELETE", `/v1/sessions/${id}`)).toMatchObject({ status: 200 });
    expect(await entriesOf(id)).toMatchObject([
      { action: "sessions.remove", actor: "user/eve", user: "eve" },
    ]);
  });

  test("leave an entry where an operator names a member that it isn't", async () => {
    const id = await made();
    const archive = `/v1/sessions/${id}/archive`;
    const named = { "Flotilla-User": "ada" };
    expect(await ask(operatorKey, "POST", archive, undefined, named)).toMatchObject({
      status: 200,
    });
    const { sessionId } = await server.sessions.create("acme", { users: ["ada"] });
    const ofAll = await signed({ sub: "ada", role: "operator" });
    const elsewhere = { "Flotilla-Tenant": "acme" };
    const foreign = `/v1/sessions/${sessionId}/archive`;
    expect(await ask(ofAll, "POST", foreign, undefined, elsewhere)).toMatchObject({ status: 200 });
    expect(await entriesOf(id)).toMatchObject([{ actor: "key/night", user: "ada" }]);
    expect(await entriesOf(sessionId)).toMatchObject([{ actor: "user/ada", role: "operator" }]);
  });

  test("leave an entry of the command line, whose user is one of the machine", async () => {
    const id = await made();
    const { sessionService } = server.flotilla;
    const actor = { kind: "cli", user: "ada", address: "here" } as const;
    await actAs(actor, () => sessionService.archive("default", id));
    expect(await entriesOf(id)).toMatchObject([{ actor: "cli/ada", action: "sessions.archive" }]);
    // Its tenant is the session's, by which the session is found.
    const { sessionId } = await server.sessions.create("acme", { users: ["bob"] });
    await actAs(actor, () => sessionService.archive("acme", sessionId));
    expect(await entriesOf(sessionId)).toMatchObject([{ actor: "cli/ada", tenant: "acme" }]);
  });

  test("of a program and of a handler leave none", async () => {
    const { sessionService } = server.flotilla;
    for (const run of [<Value>(act: () => Value) => act(), inHandler]) {
      const id = await made();
      await run(() => sessionService.archive("default", id));
      expect(await entriesOf(id)).toEqual([]);
    }
  });

  test("are refused while the audit is full", async () => {
    const id = await made();
    const database = await openStore(`sqlite:${server.path}`);
    await database.write([markFull("full", 1)]);
    await database.close();
    expect(await asOps("POST", `/v1/sessions/${id}/archive`)).toMatchObject({
      body: { error: { code: "overloaded" } },
    });
    expect(await asOps("GET", `/v1/sessions/${id}`)).toMatchObject({ body: { status: "active" } });
  });
});
