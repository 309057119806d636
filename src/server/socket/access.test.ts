import { SignJWT } from "jose";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import type { InboxItem } from "../../sessions/service.ts";
import {
  type SocketClient,
  dial,
  type DialOptions,
  textMessage,
  startTestServer,
} from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
const clock = movableClock();
let server: Awaited<ReturnType<typeof startTestServer>>;
const clients: SocketClient[] = [];

beforeAll(async () => {
  server = await startTestServer({
    clock,
    server: {
      tokens: { secret, claims: { role: "role" } },
      apiKeys: [key],
      origins: ["https://app.example"],
    },
  });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
});
afterAll(() => server[Symbol.asyncDispose]());

const open = async (options: DialOptions, query = "") => {
  const client = await dial(`${server.socketUrl}${query}`, options);
  clients.push(client);
  return client;
};
const bearer = (token: string) => ({ headers: { Authorization: `Bearer ${token}` } });

function token(claims: Record<string, unknown> = {}): Promise<string> {
  const exp = Math.floor(clock.now() / 1_000) + 60;
  return new SignJWT({ sub: "ada", tenant: "acme", exp, ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .sign(new TextEncoder().encode(secret));
}
/** Expires in ten seconds, five of which are patience. */
const soon = () => ({ exp: Math.floor(clock.now() / 1_000) + 5 });
const as = async (user: string, claims: Record<string, unknown> = {}) =>
  open(bearer(await token({ sub: user, ...claims })));

let sessions = 0;
const session = async (users: string[], tenant = "acme") => {
  const sessionId = `s${++sessions}`;
  await server.sessions.create(tenant, { sessionId, users });
  return sessionId;
};
const refused = (status: number, code: string) => expect.objectContaining({ status, code });

describe("a socket is opened", () => {
  test("with a key, for the tenant and user that it names", async () => {
    const headers = { ...bearer(key).headers, "Flotilla-Tenant": "acme", "Flotilla-User": "bob" };
    const client = await open({ headers });
    expect(await client.find("hello")).toMatchObject({ tenant: "acme", user: "bob" });
  });

  test("with a token in the header, or as a subprotocol", async () => {
    expect(await (await as("ada")).find("hello")).toMatchObject({ tenant: "acme", user: "ada" });
    const client = await open({ protocols: ["flotilla.v1", `bearer.${await token()}`] });
    expect(client.socket.protocol).toBe("flotilla.v1");
    expect(await client.find("hello")).toMatchObject({ user: "ada" });
  });

  test("with a ticket, once", async () => {
    const { headers } = bearer(await token());
    const answer = await fetch(`${server.url}/v1/tickets`, { method: "POST", headers });
    const { ticket } = (await answer.json()) as { ticket: string };
    const client = await open({}, `?ticket=${ticket}`);
    expect(await client.find("hello")).toMatchObject({ user: "ada" });
    await expect(open({}, `?ticket=${ticket}`)).rejects.toThrow(refused(401, "unauthorized"));
  });

  test("by no other user", async () => {
    await expect(open({})).rejects.toThrow(refused(401, "unauthorized"));
    await expect(open(bearer("nonsense"))).rejects.toThrow(refused(401, "unauthorized"));
    const old = await token({ exp: Math.floor(clock.now() / 1_000) - 60 });
    await expect(open(bearer(old))).rejects.toThrow(refused(401, "unauthorized"));
    const none = `${Buffer.from('{"alg":"none"}').toString("base64url")}.${(await token()).split(".")[1]}.`;
    await expect(open(bearer(none))).rejects.toThrow(refused(401, "unauthorized"));
  });

  test("never with a credential in the address", async () => {
    const given = open({}, `?token=${await token()}`);
    await expect(given).rejects.toThrow(refused(400, "invalid_option"));
  });

  test("only at its path, and in a protocol that is spoken here", async () => {
    const there = server.socketUrl.replace("/socket", "/elsewhere");
    await expect(dial(there, bearer(key))).rejects.toThrow(refused(404, "not_found"));
    const strange = open({ ...bearer(key), protocols: ["soap"] });
    await expect(strange).rejects.toThrow(refused(415, "unsupported"));
  });

  test("by pages of sites that are named, or of the server itself", async () => {
    const from = async (Origin: string) =>
      open({ headers: { ...bearer(await token()).headers, Origin } });
    for (const origin of ["https://app.example", server.url]) {
      expect((await from(origin)).isOpen).toBe(true);
    }
    for (const origin of ["https://evil.example", "https://app.example.evil", "null"]) {
      await expect(from(origin)).rejects.toThrow(refused(403, "forbidden"));
    }
  });
});

test("a key that acts for one tenant finds nothing of another's", async () => {
  const id = await session(["ada"]);
  await server.sessions.send("acme", id, { author: "ada", parts: textMessage("secret").parts });
  const headers = { ...bearer(key).headers, "Flotilla-Tenant": "other", "Flotilla-User": "ada" };
  const client = await open({ headers });
  for (const frame of [
    { type: "join", session: id, lastSeq: 0 },
    { type: "send", session: id, message: textMessage("hi") },
    { type: "regenerate", session: id },
    { type: "stop", session: id },
    { type: "read", session: id, seq: 1 },
  ]) {
    expect(await client.request(frame)).toMatchObject({ type: "error", code: "not_found" });
  }
  expect(await client.request({ type: "inbox" })).toMatchObject({ type: "inbox", sessions: [] });
  expect(client.messages.join()).not.toContain("secret");
});

describe("a user", () => {
  const join = (id: string) => ({ type: "join", session: id, lastSeq: 0 });
  const notFound = { type: "error", code: "not_found" };

  test("reaches sessions that they take part in, and learns of no other", async () => {
    const mine = await session(["ada", "bob"]);
    const others = await session(["bob"]);
    const elsewhere = await session(["ada"], "other");
    const client = await as("ada");
    expect(await client.request(join(mine))).toMatchObject({ type: "joined" });
    const told: unknown[] = [];
    for (const id of [others, elsewhere, "nowhere"]) {
      for (const frame of [
        join(id),
        { type: "send", session: id, message: textMessage("hi") },
        { type: "stop", session: id },
        { type: "read", session: id, seq: 0 },
        { type: "regenerate", session: id },
        {
          type: "tool_result",
          session: id,
          messageId: "m",
          results: [{ toolCallId: "c", output: 1 }],
        },
      ]) {
        const answer = await client.request(frame);
        expect(answer).toMatchObject(notFound);
        told.push({ ...answer, ref: 0, message: answer.message.replace(id, "…") });
      }
    }
    expect(new Set(told.map((each) => JSON.stringify(each))).size).toBe(1);
    expect((await server.sessions.entries("other", elsewhere, {})).entries).toEqual([]);
  });

  test("writes as themselves, whatever their frames name", async () => {
    const id = await session(["ada"]);
    const client = await as("ada");
    const send = (more: object) =>
      client.request({ type: "send", session: id, message: { ...textMessage("hi"), ...more } });
    expect(await send({ author: "eve" })).toMatchObject({ code: "forbidden" });
    expect(await send({ role: "system" })).toMatchObject({ code: "forbidden" });
    expect(await send({})).toMatchObject({ type: "ack", seq: 1 });
    const { entries } = await server.sessions.entries("acme", id, {});
    expect(entries).toMatchObject([{ author: "ada", role: "user" }]);
  });

  test("does what the token allows, in the sessions that it names", async () => {
    const [first, second] = [await session(["ada"]), await session(["ada"])];
    const reader = await as("ada", { verbs: ["sessions:read"], sessions: [first] });
    expect(await reader.request(join(first))).toMatchObject({ type: "joined" });
    expect(await reader.request(join(second))).toMatchObject(notFound);
    const message = textMessage("hi");
    const answer = await reader.request({ type: "send", session: first, message });
    expect(answer).toMatchObject({ type: "error", code: "forbidden" });
    expect(await reader.request({ type: "inbox" })).toMatchObject({ code: "forbidden" });
    const any = await as("eve", { verbs: ["sessions:read", "sessions:any"] });
    expect(await any.request(join(first))).toMatchObject({ type: "joined" });
  });

  test("whose token names its sessions sees those alone in the inbox", async () => {
    const [first, second] = [await session(["sam"]), await session(["sam"])];
    const named = await as("sam", { sessions: [first] });
    const all = await as("sam");
    const shown = async (client: SocketClient) =>
      (await client.request({ type: "inbox" })).sessions.map((each: InboxItem) => each.sessionId);
    expect(await shown(named)).toEqual([first]);
    expect((await shown(all)).toSorted()).toEqual([first, second].toSorted());
    for (const id of [second, first]) {
      await server.sessions.send("acme", id, {
        author: "bob",
        parts: textMessage(`in ${id}`).parts,
      });
      const told = (client: SocketClient) =>
        client.find("inbox_changed", (frame) => frame.sessions[0]?.preview === `in ${id}`);
      await told(all);
      if (id === first) await told(named);
    }
    await server.sessions.remove("acme", second);
    await all.find("inbox_removed");
    await server.sessions.remove("acme", first);
    await named.find("inbox_removed");
    expect(named.messages.join()).not.toContain(second);
  });

  test("who is removed gets no more, at once or when something happens later", async () => {
    const id = await session(["ada", "bob"]);
    const client = await as("ada");
    await client.request(join(id));
    await server.sessions.changeMembers("acme", id, { removeUsers: ["ada"] });
    await clock.advance(5_001);
    const answer = await client.request({
      type: "send",
      session: id,
      message: textMessage("still here?"),
    });
    expect(answer).toMatchObject(notFound);
    await clock.advance(30_000);
    await server.sessions.send("acme", id, {
      author: "bob",
      parts: textMessage("she is gone").parts,
    });
    expect(await client.find("left")).toMatchObject({ session: id, reason: "removed" });
    await server.sessions.send("acme", id, { author: "bob", parts: textMessage("secret").parts });
    await client.request({ type: "ping" });
    expect(client.seqs(id)).toEqual([1]);
  });

  test("whose token expires is cut off, with nothing done in between", async () => {
    const id = await session(["ada"]);
    const client = await as("ada");
    await client.request(join(id));
    // The clock of a paused process: the timer is late, and the frame comes first.
    clock.jump(66_000);
    client.send({ type: "send", ref: 1, session: id, message: textMessage("too late") });
    expect(await client.closed()).toMatchObject({ code: 4401 });
    expect((await server.sessions.entries("acme", id, {})).entries).toEqual([]);
    const silent = await as("ada", soon());
    const { expiresAtMs } = await silent.find("hello");
    await clock.advance(expiresAtMs! - clock.now() - 1);
    expect((await silent.request({ type: "ping" })).type).toBe("pong");
    await clock.advance(1);
    expect(await silent.closed()).toMatchObject({ code: 4401 });
  });

  test("stays with a new token, of the same user", async () => {
    const client = await as("ada", soon());
    await clock.advance(8_000);
    const renew = async (claims: object) =>
      client.request({ type: "token", token: await token({ ...soon(), ...claims }) });
    expect(await renew({ sub: "eve" })).toMatchObject({ code: "forbidden" });
    expect(await renew({ tenant: "other" })).toMatchObject({ code: "forbidden" });
    expect(await client.request({ type: "token", token: "a.b.c" })).toMatchObject({
      code: "unauthorized",
    });
    expect(await renew({})).toMatchObject({ type: "ack", expiresAtMs: expect.any(Number) });
    await clock.advance(8_000);
    expect((await client.request({ type: "ping" })).type).toBe("pong");
    await clock.advance(8_000);
    expect(await client.closed()).toMatchObject({ code: 4401 });
  });
});

test("a new token without the role ends what only the role allowed", async () => {
  const [own, others] = [await session(["kim"]), await session(["bob"])];
  const client = await as("kim", { role: "viewer" });
  for (const id of [own, others]) {
    const joined = await client.request({ type: "join", session: id, lastSeq: 0 });
    expect(joined).toMatchObject({ type: "joined" });
  }
  const less = await token({ sub: "kim" });
  expect(await client.request({ type: "token", token: less })).toMatchObject({ type: "ack" });
  expect(await client.find("left")).toMatchObject({ session: others, reason: "removed" });
  const said = { author: "bob", parts: textMessage("hello").parts };
  for (const id of [others, own]) await server.sessions.send("acme", id, said);
  await until("what is said", () => client.seqs(own).length === 1);
  expect(client.seqs(others)).toEqual([]);
});

test("a token for all tenants stays with the tenant that its connection was opened for", async () => {
  const id = await session(["bob"]);
  const ofAll = () => token({ tenant: undefined, role: "viewer" });
  const headers = { ...bearer(await ofAll()).headers, "Flotilla-Tenant": "acme" };
  const client = await open({ headers });
  expect(await client.find("hello")).toMatchObject({ tenant: "acme", user: "ada" });
  const renewed = await client.request({ type: "token", token: await ofAll() });
  expect(renewed).toMatchObject({ type: "ack" });
  const joined = await client.request({ type: "join", session: id, lastSeq: 0 });
  expect(joined).toMatchObject({ type: "joined" });
});

test("a new token that allows less ends what it doesn't allow, and nothing else", async () => {
  const [first, second] = [await session(["kim"]), await session(["kim"])];
  const client = await as("kim");
  const renew = async (claims: object) =>
    client.request({ type: "token", token: await token({ sub: "kim", ...claims }) });
  for (const id of [first, second]) await client.request({ type: "join", session: id, lastSeq: 0 });
  await client.request({ type: "inbox" });
  await renew({});
  const inboxes = () => client.frames.flatMap((frame) => (frame.type === "inbox" ? [frame] : []));
  expect(inboxes()).toHaveLength(1);

  await renew({ sessions: [first] });
  expect(await client.find("left")).toMatchObject({ session: second, reason: "removed" });
  await until("the inbox of one session", () => inboxes().length === 2);
  expect(inboxes()[1]!.sessions.map((each: InboxItem) => each.sessionId)).toEqual([first]);
  await server.sessions.send("acme", first, {
    author: "bob",
    parts: textMessage("still heard").parts,
  });
  await until("what is said", () => client.seqs(first).length === 1);

  await renew({ verbs: ["sessions:write"] });
  await client.find("left", ({ session: id }) => id === first);
  await client.find("error", ({ code }) => code === "forbidden");
  await server.sessions.send("acme", first, {
    author: "bob",
    parts: textMessage("not heard").parts,
  });
  await client.request({ type: "ping" });
  expect(client.messages.join()).not.toContain("not heard");
});

test("a client that answers no pings is given up, one that does stays", async () => {
  const headers = bearer(key).headers;
  const dead = await open({ headers });
  const alive = await open({ headers });
  await until("hello", () => dead.frames.length > 0 && alive.frames.length > 0);
  // As if the machine behind it had gone: nothing is read, and nothing is answered.
  dead.socket.pause();
  const pings = { count: 0 };
  alive.socket.on("ping", () => pings.count++);
  for (let n = 1; n <= 4; n++) {
    await clock.advance(20_000);
    await until("a ping", () => pings.count >= n);
    await alive.request({ type: "ping" });
  }
  dead.socket.resume();
  expect(await dead.closed()).toMatchObject({ code: 1006 });
  expect(alive.isOpen).toBe(true);
});

test("who is removed by way of this server gets no more from that moment", async () => {
  const id = await session(["ada", "bob"]);
  const client = await as("ada");
  await client.request({ type: "join", session: id, lastSeq: 0 });
  const answer = await fetch(`${server.url}/v1/sessions/${id}/members`, {
    method: "PUT",
    headers: {
      ...bearer(key).headers,
      "Flotilla-Tenant": "acme",
      "Content-Type": "application/json",
    },
    body: JSON.stringify({ removeUsers: ["ada"] }),
  });
  expect(answer.status).toBe(200);
  expect(await client.find("left")).toMatchObject({ session: id, reason: "removed" });
  await server.sessions.send("acme", id, { author: "bob", parts: textMessage("secret").parts });
  await client.request({ type: "ping" });
  expect(client.seqs(id)).toEqual([]);
});
