import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Verb } from "../../protocol/verbs.ts";
import type { ApiKey } from "../../runtime/server-config.ts";
import type { SessionView } from "../../sessions/service.ts";
import { dial, startTestServer, textMessage } from "../contract/test-server.ts";
import type { Caller } from "./caller.ts";
import { createMembers } from "./members.ts";

const secret = "a secret of thirty-two characters or more";
const said = "what was said among us with password=hunter22";
/** Keys that look after the fleet, by the rights that they have. */
const lookers: Record<string, Exclude<ApiKey, string>> = {
  "a viewer": { key: "viewer-of-16-chars-or-more", role: "viewer" },
  "an operator": { key: "operator-of-16-chars-or-more", role: "operator" },
  "a viewer with payloads": {
    key: "seeing-of-16-chars-or-more",
    role: "viewer",
    verbs: ["payloads:read"],
  },
  "a viewer that reads sessions": {
    key: "reading-of-16-chars-or-more",
    role: "viewer",
    verbs: ["sessions:read"],
  },
  "a key with verbs": {
    key: "verbs-of-16-chars-or-more",
    verbs: ["fleet:read", "sessions:read", "sessions:any"] as Verb[],
  },
};
const forking = ["sessions:read", "sessions:write", "sessions:create"] as const;
const forkKeys = {
  blind: "blind-forks-of-16-chars-or-more",
  seeing: "seeing-forks-of-16-chars-or-more",
};
const rootKey = "root-key-of-16-chars-or-more";
const chatKey = "chat-key-of-16-chars-or-more";
const inboxKey = "inbox-key-of-16-chars-or-more";
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  server = await startTestServer({
    server: {
      apiKeys: [
        ...Object.values(lookers),
        { key: inboxKey, role: "viewer", verbs: ["inbox:read"] },
        { key: forkKeys.blind, verbs: [...forking, "fleet:read", "sessions:any"] },
        {
          key: forkKeys.seeing,
          verbs: [...forking, "fleet:read", "sessions:any", "payloads:read"],
        },
        { key: chatKey, tenant: "acme" },
        rootKey,
      ],
      tokens: { secret, claims: { role: "role" } },
    },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const made = async (tenant: string) => {
  const { sessionId } = await server.sessions.create(tenant, { users: ["ada"] });
  const { parts } = textMessage(said);
  await server.sessions.send(tenant, sessionId, { author: "ada", parts });
  return sessionId;
};
const tokenOf = (claims: Record<string, unknown>) =>
  new SignJWT({ sub: "ada", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
const headersOf = (bearer: string, tenant: string, user?: string) => ({
  Authorization: `Bearer ${bearer}`,
  "Flotilla-Tenant": tenant,
  ...(user !== undefined && { "Flotilla-User": user }),
});
/** All that a caller can read of a session, by every way. */
const readAll = async (sessionId: string, headers: Record<string, string>) => {
  const at = `${server.url}/v1/sessions/${sessionId}`;
  const texts: string[] = [];
  for (const path of [at, `${at}/messages`, `${at}/export`, `${server.url}/v1/sessions`]) {
    const answer = await fetch(path, { headers });
    expect([path, answer.status]).toEqual([path, 200]);
    texts.push(await answer.text());
  }
  const events = await fetch(`${at}/events`, { headers });
  for await (const bytes of events.body!) {
    texts.push(Buffer.from(bytes).toString());
    if (texts.at(-1)!.includes("event: entries")) break;
  }
  const client = await dial(server.socketUrl, { headers });
  await client.request({ type: "join", session: sessionId, lastSeq: 0 });
  await client.find("entries");
  texts.push(...client.messages);
  client.close();
  return texts.join("\n");
};

describe("a conversation as it is", () => {
  test("is seen by its members, and by programs that act for them", async () => {
    const sessionId = await made("acme");
    const member = await tokenOf({ tenant: "acme" });
    expect(await readAll(sessionId, headersOf(member, "acme"))).toContain(said);
    expect(await readAll(sessionId, headersOf(chatKey, "acme", "ada"))).toContain(said);
  });

  test.each(Object.keys(lookers))("isn't seen by %s that names a member", async (name) => {
    const sessionId = await made("acme");
    const { key } = lookers[name]!;
    const unnamed = await readAll(sessionId, headersOf(key!, "acme"));
    const named = await readAll(sessionId, headersOf(key!, "acme", "ada"));
    for (const text of [unnamed, named]) expect(text).not.toContain("hunter22");
    expect(named.includes("what was said")).toBe(name === "a viewer with payloads");
  });

  test.each([
    ["a user's token", true, ["fleet:read", "sessions:any"]],
    ["a key", false, ["fleet:read", "sessions:any"]],
    ["a key that may see it", false, ["fleet:read", "sessions:any", "payloads:read"]],
  ] as const)("is not to be had by a fork or an edit: %s", async (name, isUser, more) => {
    const mayFork = more.includes("payloads:read" as never);
    const sessionId = await made("acme");
    const bearer = isUser
      ? await tokenOf({ sub: "eve", tenant: "acme", role: "viewer", verbs: [...forking, ...more] })
      : forkKeys[mayFork ? "seeing" : "blind"];
    const headers = {
      ...headersOf(bearer, "acme", isUser ? undefined : "eve"),
      "Content-Type": "application/json",
    };
    const at = `${server.url}/v1/sessions/${sessionId}`;
    const { entries } = await server.sessions.entries("acme", sessionId, {});
    const { messageId } = entries[0]!;
    const asked = async (of: string, path: string, body: object) => {
      const answer = await fetch(`${of}/${path}`, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
      });
      return [answer.status, await answer.text()] as const;
    };
    const { parts } = textMessage("anew");
    const author = isUser ? {} : { author: "eve" };
    for (const [path, body] of [
      ["fork", { id: `f-${sessionId}`, atSeq: 1 }],
      ["edit", { id: `e-${sessionId}`, messageId, parts, ...author }],
    ] as const) {
      const [status, text] = await asked(at, path, body);
      expect([path, status]).toEqual([path, mayFork ? 201 : 403]);
      expect(text.includes('"verb":"payloads:read"')).toBe(!mayFork);
      expect(!mayFork && text.includes("hunter22")).toBe(false);
    }
    if (mayFork) return;
    // Nothing was made. A user forks where it is a member; a key that sees shapes alone is one by no name.
    for (const id of [`f-${sessionId}`, `e-${sessionId}`])
      await expect(server.sessions.get("acme", id)).rejects.toMatchObject({ code: "not_found" });
    const added = await fetch(`${at}/members`, {
      method: "PUT",
      headers: { ...headersOf(rootKey, "acme"), "Content-Type": "application/json" },
      body: JSON.stringify({ addUsers: ["eve"] }),
    });
    expect(added.status).toBe(200);
    const [own] = await asked(at, "fork", { atSeq: 1 });
    expect(own).toBe(isUser ? 201 : 403);
  });

  test("is in no inbox for a key that looks after the fleet and may not see it", async () => {
    await made("acme");
    const status = async (path: string, bearer: string) =>
      (await fetch(`${server.url}${path}`, { headers: headersOf(bearer, "acme", "ada") })).status;
    for (const path of ["/v1/inbox", "/v1/inbox/events"]) {
      expect([path, await status(path, inboxKey)]).toEqual([path, 403]);
    }
    expect(await status("/v1/inbox", chatKey)).toBe(200);
    const client = await dial(server.socketUrl, { headers: headersOf(inboxKey, "acme", "ada") });
    expect(await client.request({ type: "inbox" })).toMatchObject({
      type: "error",
      code: "forbidden",
    });
    client.close();
  });

  test("ends for a viewer that is no member any more, which may follow it as a viewer does", async () => {
    const sessionId = await made("default");
    const headers = headersOf(await tokenOf({ role: "viewer" }), "default");
    const client = await dial(server.socketUrl, { headers });
    await client.request({ type: "join", session: sessionId, lastSeq: 0 });
    await client.find("entries");
    const at = `${server.url}/v1/sessions/${sessionId}`;
    const events = await fetch(`${at}/events`, { headers });
    const removed = await fetch(`${at}/members`, {
      method: "PUT",
      headers: { Authorization: `Bearer ${rootKey}`, "Content-Type": "application/json" },
      body: JSON.stringify({ removeUsers: ["ada"] }),
    });
    expect(removed.status).toBe(200);
    expect(await client.find("left")).toMatchObject({ session: sessionId, reason: "removed" });
    expect(await events.text()).toContain("there is no session");
    client.close();
    expect(await readAll(sessionId, headers)).not.toContain("what was said");
  });
});

describe("a user of a role for all tenants", () => {
  test.each(["viewer", "operator", "admin"])(
    "is no member where it names another tenant: %s",
    async (role) => {
      const [own, foreign] = [await made("default"), await made("acme")];
      const bearer = await tokenOf({ role });
      expect(await readAll(own, headersOf(bearer, "default"))).toContain(said);
      expect(await readAll(foreign, headersOf(bearer, "acme"))).not.toContain("hunter22");
    },
  );

  test("neither writes there nor has an inbox in the name of another user", async () => {
    const [own, foreign] = [await made("default"), await made("acme")];
    const bearer = await tokenOf({ role: "operator" });
    const write = async (tenant: string, sessionId: string) => {
      const answer = await fetch(`${server.url}/v1/sessions/${sessionId}/messages`, {
        method: "POST",
        headers: { ...headersOf(bearer, tenant), "Content-Type": "application/json" },
        body: JSON.stringify(textMessage("in my name")),
      });
      return answer.status;
    };
    expect([await write("default", own), await write("acme", foreign)]).toEqual([201, 403]);
    const inbox = async (tenant: string) =>
      (await fetch(`${server.url}/v1/inbox`, { headers: headersOf(bearer, tenant) })).status;
    expect([await inbox("default"), await inbox("acme")]).toEqual([200, 403]);
    const client = await dial(server.socketUrl, { headers: headersOf(bearer, "acme") });
    const sent = { type: "send", session: foreign, message: textMessage("in my name") };
    expect(await client.request(sent)).toMatchObject({ type: "error", code: "forbidden" });
    expect(await client.request({ type: "inbox" })).toMatchObject({ code: "forbidden" });
    client.close();
  });
});

test("members are known without the metadata of a session, which only a store has that may be away", async () => {
  const get = async (_tenant: string, _id: string, options: { withoutMetadata?: boolean } = {}) => {
    if (options.withoutMetadata) return { users: ["ada"] } as unknown as SessionView;
    throw new FlotillaError("store_unavailable", "away");
  };
  const members = createMembers({ get }, movableClock());
  const caller = (user: string): Caller => ({ kind: "user", tenant: "t", user, verbs: new Set() });
  await members.check(caller("ada"), "s");
  await expect(members.check(caller("bob"), "s")).rejects.toMatchObject({ code: "not_found" });
});
