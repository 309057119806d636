import { existsSync, readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { SignJWT } from "jose";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { hashOfKey } from "../../keys/key.ts";
import type { ServerConfig } from "../../runtime/server-config.ts";
import {
  dial,
  serveBeside,
  type SocketClient,
  startTestServer,
  type TestServer,
} from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
// More than the buffers of a connection hold.
const messages = 120;
const settings: ServerConfig = { keys: "store", tokens: { secret } };
type Headers = Record<string, string>;

let one: TestServer;
let other: Awaited<ReturnType<typeof serveBeside>>;
const clients: SocketClient[] = [];
const ends: (() => void)[] = [];

beforeAll(async () => {
  one = await startTestServer({ server: settings });
  other = await serveBeside(one, settings);
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
  for (const end of ends.splice(0)) end();
});
afterAll(async () => {
  await other[Symbol.asyncDispose]();
  await one[Symbol.asyncDispose]();
});

const bearer = (text: string): Headers => ({ Authorization: `Bearer ${text}` });
const make = (more: object = {}) =>
  one.flotilla.keys.create({ name: "ci", role: "admin", ...more } as never);

async function ask(
  { url }: { url: string },
  headers: Headers = {},
  path = "/v1/tasks",
  method = "GET",
) {
  const answer = await fetch(`${url}${path}`, { method, headers });
  const body = (await answer.json()) as any;
  return { status: answer.status, body, headers: answer.headers };
}
const statusOf = async (...asked: Parameters<typeof ask>) => (await ask(...asked)).status;

const open = async (server: { url: string }, headers: Headers, query = "") => {
  const url = `${server.url.replace("http", "ws")}/v1/socket${query}`;
  const client = await dial(url, { headers });
  clients.push(client);
  return client;
};

/** Follows events, and keeps their text until they end. */
function follow(server: { url: string }, path: string, headers: Headers) {
  const state = { text: "", isOver: false };
  const sent = request(`${server.url}${path}`, { headers }, (answer) => {
    answer.setEncoding("utf8").on("data", (more: string) => (state.text += more));
    answer.on("close", () => (state.isOver = true)).on("error", () => {});
  });
  ends.push(() => sent.destroy());
  sent.on("error", () => (state.isOver = true)).end();
  return state;
}

const token = (claims: Record<string, unknown> = {}) =>
  new SignJWT({ sub: "ada", tenant: "acme", ...claims })
    .setProtectedHeader({ alg: "HS256" })
    .setIssuedAt()
    .setExpirationTime("1h")
    .sign(new TextEncoder().encode(secret));

describe("a key of the store", () => {
  test("is accepted by every server on the store, as soon as it is made", async () => {
    const { text } = await make();
    expect([await statusOf(one, bearer(text)), await statusOf(other, bearer(text))]).toEqual([
      200, 200,
    ]);
    expect(await statusOf(one)).toBe(401);
    const unknown = await ask(other, bearer(`fl_${"x".repeat(43)}`));
    expect(unknown).toMatchObject({ status: 401, body: { error: { code: "unauthorized" } } });
  });

  test("that one server revokes is refused by the other, on requests, sockets and streams", async () => {
    const { key, text } = await make();
    const headers = { ...bearer(text), "Flotilla-User": "ada" };
    const client = await open(other, headers);
    const here = await open(one, headers);
    await client.find("hello");
    const stream = follow(other, "/v1/inbox/events", headers);
    await until("the stream", () => stream.text !== "");
    const admin = await make({ name: "admin" });
    const revoked = await ask(one, bearer(admin.text), `/v1/keys/${key.keyId}`, "DELETE");
    expect(revoked).toMatchObject({ status: 200, body: { key: { status: "revoked" } } });
    await until("the refusal", async () => (await statusOf(other, headers)) === 401);
    await until("the refusal here", async () => (await statusOf(one, headers)) === 401);
    const reason = "the key was revoked: use another one";
    expect(await client.closed()).toEqual({ code: 4401, reason });
    expect(await here.closed()).toEqual({ code: 4401, reason });
    await until("the end of the stream", () => stream.isOver);
    expect(stream.text).toContain(
      `event: error\ndata: ${JSON.stringify({ code: "unauthorized", message: reason, details: {} })}`,
    );
    await expect(open(other, headers)).rejects.toMatchObject({ status: 401, code: "unauthorized" });
    expect(await statusOf(other, bearer(admin.text))).toBe(200);
  });

  test("ends with its time, on open sockets too", async () => {
    // A busy machine may take longer for a socket than such a key lasts.
    let lastsMs = 750;
    const { text, client } = await until("a socket before the end of its key", async () => {
      lastsMs *= 2;
      const made = await make({ expiresAtMs: Date.now() + lastsMs });
      const opened = await open(other, bearer(made.text)).catch(() => undefined);
      return opened && { text: made.text, client: opened };
    });
    expect(await client.closed()).toEqual({
      code: 4401,
      reason: "the key has expired: use another one",
    });
    expect(await statusOf(one, bearer(text))).toBe(401);
  });

  test("gets no more of an export than was on its way when it was revoked", async () => {
    const { key, text } = await make();
    const sessionId = "long";
    await one.sessions.create("default", { sessionId, users: ["ada"] });
    const parts = [{ type: "text" as const, text: "x".repeat(200_000) }];
    for (let n = 0; n < messages; n++)
      await one.sessions.send("default", sessionId, { parts, author: "ada" });
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const path = `${one.url}/v1/sessions/${sessionId}/export`;
      const sent = request(path, { headers: bearer(text) }, resolve);
      ends.push(() => sent.destroy());
      sent.on("error", reject).end();
    });
    answer.on("error", () => {});
    // Nothing is read yet, so that the rest waits on the server.
    await one.flotilla.keys.revoke(key.keyId);
    await until("the refusal", async () => (await statusOf(one, bearer(text))) === 401);
    let bytes = 0;
    answer.on("data", (chunk: Buffer) => (bytes += chunk.length));
    await until("the end", () => answer.closed);
    expect(answer.complete).toBe(false);
    expect(bytes).toBeLessThan(messages * 200_000);
  });

  test("opens no socket by a ticket that was issued before it was revoked", async () => {
    const { key, text } = await make();
    const issued = await ask(one, bearer(text), "/v1/tickets", "POST");
    expect(issued.status).toBe(201);
    await one.flotilla.keys.revoke(key.keyId);
    await until("the refusal", async () => (await statusOf(one, bearer(text))) === 401);
    const opened = open(one, {}, `?ticket=${issued.body.ticket}`);
    await expect(opened).rejects.toMatchObject({ status: 401 });
  });

  test("allows what its role does, for its tenant alone", async () => {
    const { text } = await make({ role: "operator", tenant: "acme" });
    expect(await ask(one, bearer(text), "/v1/sessions")).toMatchObject({ status: 200 });
    const elsewhere = { ...bearer(text), "Flotilla-Tenant": "other" };
    expect(await ask(one, elsewhere, "/v1/sessions")).toMatchObject({ status: 403 });
    expect(await ask(one, bearer(text), "/v1/keys")).toMatchObject({ status: 403 });
  });

  test("is in no file of the store", async () => {
    const { text } = await make();
    expect(await statusOf(one, bearer(text))).toBe(200);
    const files = [one.path, `${one.path}-wal`, `${one.path}-shm`].filter((path) =>
      existsSync(path),
    );
    expect(files.filter((path) => readFileSync(path).includes(text.slice(3)))).toEqual([]);
    expect(files.filter((path) => readFileSync(path).includes(hashOfKey(text)))).not.toEqual([]);
  });

  test("is noted as used", async () => {
    const { key, text } = await make();
    expect(await statusOf(other, bearer(text))).toBe(200);
    await other.flotilla.credentials.close();
    const { keys } = await one.flotilla.keys.list();
    expect(keys.find(({ keyId }) => keyId === key.keyId)!.lastUsedAtMs).not.toBe(null);
    await other[Symbol.asyncDispose]();
    other = await serveBeside(one, settings);
  });
});

describe("a user's token", () => {
  test("that one server revokes by its id is refused by the other, and its socket ended", async () => {
    const revoked = await token({ jti: "one" });
    const kept = await token({ jti: "two" });
    const client = await open(other, bearer(revoked));
    const stays = await open(other, bearer(kept));
    await one.flotilla.tokens.revoke({ jti: "one" });
    const reason = "the token was revoked: get a new one";
    expect(await client.closed()).toEqual({ code: 4401, reason });
    expect(await ask(other, bearer(revoked), "/v1/inbox")).toMatchObject({
      status: 401,
      body: { error: { message: reason } },
    });
    expect(await statusOf(other, bearer(kept), "/v1/inbox")).toBe(200);
    expect(stays.isOpen).toBe(true);
  });

  test("is refused with everything that its user was issued before", async () => {
    const before = await token({ sub: "eve", iat: Math.floor(Date.now() / 1_000) - 10 });
    const others = await token({ sub: "eve", tenant: "other" });
    const stream = follow(other, "/v1/inbox/events", bearer(before));
    await until("the stream", () => stream.text !== "");
    await one.flotilla.tokens.revoke({ user: "eve", tenant: "acme" });
    await until("the end of the stream", () => stream.isOver);
    expect(await statusOf(other, bearer(before), "/v1/inbox")).toBe(401);
    expect(await statusOf(other, bearer(others), "/v1/inbox")).toBe(200);
    const later = Math.floor(Date.now() / 1_000) + 2;
    const after = await new SignJWT({ sub: "eve", tenant: "acme", iat: later, exp: later + 60 })
      .setProtectedHeader({ alg: "HS256" })
      .sign(new TextEncoder().encode(secret));
    expect(await statusOf(other, bearer(after), "/v1/inbox")).toBe(200);
  });
});

describe("a server without credentials in its config", () => {
  test("needs none on this machine, and takes a key that is sent for what it allows", async () => {
    await using free = await serveBeside(one, {});
    expect(await statusOf(free)).toBe(200);
    const { key, text } = await make({ role: "viewer" });
    expect(await statusOf(free, bearer(text), "/v1/keys")).toBe(403);
    await one.flotilla.keys.revoke(key.keyId);
    await until("the refusal", async () => (await statusOf(free, bearer(text))) === 401);
    expect(await statusOf(free, bearer("a-key-of-another-server"))).toBe(200);
  });

  test("with `keys` needs one, and says where the store has none", async () => {
    const warned: string[] = [];
    const log = {
      ...silentLogger,
      warn: (_: object, message: string) => void warned.push(message),
    };
    await using strict = await startTestServer({ server: { keys: "store" }, log });
    expect(warned).toEqual(["the store has no keys yet, so that every request is refused"]);
    expect(await statusOf(strict)).toBe(401);
    const { text } = await strict.flotilla.keys.create({ name: "first", role: "admin" });
    expect(await statusOf(strict, bearer(text))).toBe(200);
  });
});
