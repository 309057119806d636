import { randomUUID } from "node:crypto";
import { type IncomingMessage, request } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { LoginHook, ServerConfig } from "../../runtime/server-config.ts";
import { ask, signInWith } from "../contract/signed-in.ts";
import {
  dial,
  serveBeside,
  type SocketClient,
  startTestServer,
  type TestServer,
} from "../contract/test-server.ts";

const webKey = "a-key-of-the-config-for-the-web";
const namelessKey = "a-key-of-the-config-without-name";
const adminKey = "a-key-of-an-administrator-of-all";
const settings: ServerConfig = {
  apiKeys: [
    { key: webKey, name: "web", role: "operator" },
    { key: namelessKey, role: "viewer" },
    { key: adminKey, name: "root", role: "admin" },
  ],
};
let server: TestServer;
const clients: SocketClient[] = [];
const ends: (() => void)[] = [];
beforeAll(async () => {
  server = await startTestServer({ server: settings });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
  for (const end of ends.splice(0)) end();
});
afterAll(() => server[Symbol.asyncDispose]());

type Headers = Record<string, string>;
const own = () => ({ Origin: server.url, "Flotilla-Action": randomUUID() });
const get = (
  cookie: string,
  path = "/v1/pods",
  headers: Headers = {},
  at = server as { url: string },
) => ask(at, path, { headers: { Cookie: cookie, ...headers } });
const pause = (headers: Headers, name = "mail") =>
  ask(server, "/v1/pause", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify({ name }),
  });
const isPaused = async (name = "mail") =>
  (await server.flotilla.tasks.paused()).some((each) => each.name === name);
const bearer = (key: string) => ({ Authorization: `Bearer ${key}` });
const open = async (headers: Headers) => {
  const client = await dial(server.socketUrl, { headers });
  clients.push(client);
  return client;
};
const newestId = async () => (await server.flotilla.signIns.list()).signIns[0]!.signInId;

describe("a request by a sign-in", () => {
  test("may do what its key may, and is that key in the audit", async () => {
    const cookie = await signInWith(server, webKey);
    expect(await get(cookie)).toMatchObject({ status: 200 });
    expect(await get(cookie, "/v1/keys")).toMatchObject({ status: 403 });
    expect(await pause({ Cookie: cookie, ...own() }, "by-cookie")).toMatchObject({ status: 200 });
    const { entries } = await server.flotilla.audit.list({ subject: "by-cookie" });
    expect(entries).toMatchObject([{ actor: "key/web", action: "names.pause" }]);
  });

  test("with the id of an act that was done is the same act", async () => {
    const cookie = await signInWith(server, webKey);
    const headers = { Cookie: cookie, ...own() };
    expect(await pause(headers, "once")).toMatchObject({ status: 200 });
    await server.flotilla.tasks.resume("once");
    expect(await pause(headers, "once")).toMatchObject({ status: 200 });
    expect(await isPaused("once")).toBe(false);
    const by = { actor: "key/web", subject: "once" };
    expect((await server.flotilla.audit.list(by)).entries).toHaveLength(1);
    expect(await pause(headers, "another")).toMatchObject({ status: 409 });
  });

  test.each<[string, Headers]>([
    ["another site", { Origin: "https://evil.example" }],
    ["a site whose name begins the same", { Origin: "ORIGIN.evil.example" }],
    ["another port of the machine", { Origin: "http://127.0.0.1:1" }],
    ["another name of the machine", { Origin: "http://localhost:PORT" }],
    ["the same name over HTTPS", { Origin: "https://127.0.0.1:PORT" }],
    ["a sandboxed frame or a file", { Origin: "null" }],
    ["nowhere", { Origin: "" }],
    ["another site, as the browser says", { "Sec-Fetch-Site": "cross-site" }],
    ["another host of the site, as the browser says", { "Sec-Fetch-Site": "same-site" }],
  ])("that changes something is refused from %s", async (_, given) => {
    const cookie = await signInWith(server, webKey);
    const filled = Object.entries({ ...own(), ...given }).flatMap(([name, value]) =>
      value === ""
        ? []
        : [[name, value.replace("PORT", String(server.port)).replace("ORIGIN", server.url)]],
    );
    const answer = await pause({ Cookie: cookie, ...Object.fromEntries(filled) });
    expect(answer).toMatchObject({ status: 403, json: { error: { code: "forbidden" } } });
    expect(answer.json.error.message).toContain("only pages of this server itself");
    expect(await isPaused()).toBe(false);
  });

  test.each(["POST", "PUT", "DELETE", "PATCH"])(
    "that changes something needs the id of its act: %s",
    async (method) => {
      const cookie = await signInWith(server, webKey);
      const headers = { Cookie: cookie, Origin: server.url };
      const answer = await ask(server, "/v1/pause", { method, headers });
      expect(answer.status).toBe(403);
      expect(answer.json.error.message).toContain("needs `Flotilla-Action: <id>`");
      expect(await isPaused()).toBe(false);
    },
  );

  test.each(["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"])(
    "is no form that a page sends: %s",
    async (type) => {
      const cookie = await signInWith(server, webKey);
      const headers = { Cookie: cookie, Origin: server.url, "Content-Type": type };
      const body = "name=mail";
      expect(await ask(server, "/v1/pause", { method: "POST", headers, body })).toMatchObject({
        status: 403,
      });
      const named = { ...headers, ...own() };
      expect(
        await ask(server, "/v1/pause", { method: "POST", headers: named, body }),
      ).toMatchObject({ status: 415 });
      expect(await isPaused()).toBe(false);
    },
  );

  test("is refused at every other name of the server, reads too", async () => {
    const cookie = await signInWith(server, webKey);
    for (const Host of ["evil.example", `localhost:${server.port}`, "127.0.0.1"]) {
      const answer = await get(cookie, "/v1/pods", { Host });
      expect(answer).toMatchObject({ status: 403, json: { error: { code: "forbidden" } } });
      expect(answer.json.error.message).toContain(`was made at ${server.url}`);
    }
  });

  test("gets nothing that a page of a listed origin could read", async () => {
    const origin = "https://app.example";
    await using listing = await serveBeside(server, { ...settings, origins: [origin] });
    const cookie = await signInWith(listing, webKey);
    const answer = await get(cookie, "/v1/pods", { Origin: origin }, listing);
    expect(answer.headers["access-control-allow-credentials"]).toBeUndefined();
    const headers = { Cookie: cookie, Origin: origin, "Flotilla-Action": "a" };
    const changed = await ask(listing, "/v1/pause", { method: "POST", headers, body: "{}" });
    expect(changed).toMatchObject({ status: 403 });
  });

  test("is the bearer's where it has a key as well, then the sign-in's, then the app's", async () => {
    const login = vi.fn<LoginHook>(() => ({ user: "ada", role: "viewer" }));
    await using beside = await serveBeside(server, { ...settings, login });
    const cookie = await signInWith(beside, webKey);
    login.mockClear();
    const status = async (path: string, headers: Headers) =>
      (await get(cookie, path, headers, beside)).status;
    expect(await status("/v1/keys", bearer(adminKey))).toBe(200);
    expect(await status("/v1/pods", bearer("a-key-that-no-server-has"))).toBe(401);
    expect(await status("/v1/pods", {})).toBe(200);
    expect(login).not.toHaveBeenCalled();
    const signInId = await newestId();
    await server.flotilla.signIns.end(signInId);
    await until("the app's sign-in", async () => {
      expect(await status("/v1/pods", {})).toBe(200);
      return login.mock.calls.length > 0;
    });
    // What a bearer changes needs neither an origin nor an id.
    const paused = await ask(beside, "/v1/resume", {
      method: "POST",
      headers: { Cookie: cookie, ...bearer(webKey), "Content-Type": "application/json" },
      body: `{"name":"mail"}`,
    });
    expect(paused.status).toBe(200);
  });
});

describe("a cookie", () => {
  const valid = "x".repeat(43);
  test.each([
    ["unknown, or from another store", `flotilla=${valid}`],
    ["unknown over HTTPS", `__Host-flotilla=${valid}`],
    ["empty", "flotilla="],
    ["without a value", "flotilla"],
    ["malformed", "flotilla=%00%ff\"'<script>"],
    ["very long", `flotilla=${"x".repeat(12_000)}`],
    ["of many", Array.from({ length: 1_000 }, (_, n) => `a${n}=b`).join("; ")],
    ["of many of the same", Array.from({ length: 200 }, () => `flotilla=${valid}`).join("; ")],
    ["of odd separators", ";;; = ;flotilla;=;"],
    ["quoted", `flotilla="${valid}"`],
  ])("that is %s is none", async (_, cookie) => {
    expect(await get(cookie)).toMatchObject({ status: 401 });
    expect(await ask(server, "/sign-in", { headers: { Cookie: cookie } })).toMatchObject({
      status: 200,
    });
    const out = { Cookie: cookie, Origin: server.url };
    expect(await ask(server, "/sign-out", { method: "POST", headers: out })).toMatchObject({
      status: 303,
    });
  });

  test("that is there twice is none, whichever comes first", async () => {
    const cookie = await signInWith(server, webKey);
    for (const both of [`${cookie}; flotilla=${valid}`, `flotilla=${valid}; ${cookie}`])
      expect(await get(both)).toMatchObject({ status: 401 });
    expect(await get(`other=1; ${cookie}; flotilla2=x`)).toMatchObject({ status: 200 });
  });

  test("of another server on the machine doesn't stand in the way of one over HTTPS", async () => {
    const https = { Host: "ops.example", Origin: "https://ops.example" };
    const cookie = await signInWith(server, webKey, { headers: https });
    const both = `flotilla=${valid}; ${cookie}`;
    expect(await get(both, "/v1/pods", { Host: "ops.example" })).toMatchObject({ status: 200 });
  });
});

describe("a socket by a sign-in", () => {
  test("is opened by own pages alone", async () => {
    const cookie = await signInWith(server, webKey);
    const client = await open({ Cookie: cookie, Origin: server.url });
    await client.find("hello");
    for (const headers of [
      {},
      { Origin: "null" },
      { Origin: "https://evil.example" },
      { Origin: `https://127.0.0.1:${server.port}` },
      { Origin: server.url, "Sec-Fetch-Site": "cross-site" },
      { Origin: "http://evil.example", Host: "evil.example" },
    ])
      await expect(open({ Cookie: cookie, ...(headers as Headers) })).rejects.toMatchObject({
        status: 403,
        code: "forbidden",
      });
  });

  test("keeps it from being idle by what the client does, and not by pings", async () => {
    const cookie = await signInWith(server, webKey);
    const client = await open({ Cookie: cookie, Origin: server.url });
    const used = vi.spyOn(server.flotilla.credentials, "useSignIn");
    await client.request({ type: "ping" });
    expect(used).not.toHaveBeenCalled();
    await client.request({ type: "leave", session: "none" });
    expect(used).toHaveBeenCalledWith(await newestId());
    used.mockRestore();
  });

  test("and a stream end with the key of the sign-in, on every server", async () => {
    const { key, text } = await server.flotilla.keys.create({ name: "ops", role: "admin" });
    await using other = await serveBeside(server, settings);
    const cookie = await signInWith(server, text);
    const client = await open({ Cookie: cookie, Origin: server.url });
    const state = { text: "", isOver: false };
    const path = `${server.url}/v1/inbox/events`;
    const sent = request(path, { headers: { Cookie: cookie, "Flotilla-User": "ada" } });
    ends.push(() => sent.destroy());
    sent.on("response", (answer: IncomingMessage) => {
      answer.setEncoding("utf8").on("data", (more: string) => (state.text += more));
      answer.on("close", () => (state.isOver = true)).on("error", () => {});
    });
    sent.on("error", () => {}).end();
    await until("the stream", () => state.text !== "");
    await other.flotilla.keys.revoke(key.keyId);
    const reason = "the sign-in's key was revoked or has expired: sign in with another one";
    expect(await client.closed()).toEqual({ code: 4401, reason });
    await until("the end of the stream", () => state.isOver);
    expect(state.text).toContain(reason);
    const answer = await get(cookie);
    expect(answer).toMatchObject({ status: 401, json: { error: { message: reason } } });
  });

  test("is opened by no ticket of a sign-in that has ended", async () => {
    const cookie = await signInWith(server, adminKey);
    const headers = { Cookie: cookie, ...own() };
    const issued = await ask(server, "/v1/tickets", { method: "POST", headers });
    expect(issued.status).toBe(201);
    await server.flotilla.signIns.end(await newestId());
    await until("the end", async () => (await get(cookie)).status === 401);
    const url = `${server.socketUrl}?ticket=${issued.json.ticket}`;
    await expect(dial(url)).rejects.toMatchObject({ status: 401 });
  });
});

describe("a sign-in with a key of the config", () => {
  const [web, nameless, admin] = settings.apiKeys as [object, object, object];

  test("counts as long as the key is in the config, in whichever place, with what it allows now", async () => {
    const cookie = await signInWith(server, webKey);
    const at = { Host: new URL(server.url).host };
    const statusAt = async (config: ServerConfig, path = "/v1/pods") => {
      await using beside = await serveBeside(server, config);
      return (await get(cookie, path, at, beside)).status;
    };
    expect(await statusAt({ apiKeys: [admin, nameless, web] as never })).toBe(200);
    expect(await statusAt({ apiKeys: [admin, nameless] as never })).toBe(401);
    expect(await statusAt({ keys: "store" })).toBe(401);
    const raised = { key: webKey, name: "web", role: "admin" as const };
    expect(await statusAt({ apiKeys: [raised] }, "/v1/keys")).toBe(200);
    expect(await statusAt({ apiKeys: [web] as never }, "/v1/keys")).toBe(403);
  });

  test("tells nothing about the key to a copy of the store", async () => {
    const cookie = await signInWith(server, webKey);
    const again = await signInWith(server, webKey);
    expect(again).not.toBe(cookie);
    const [first, second] = (await server.flotilla.signIns.list()).signIns;
    expect([first!.keyId, second!.keyId]).toEqual([null, null]);
  });
});

describe("sign-ins over HTTP", () => {
  const listed = async (headers: Headers) =>
    (await ask(server, "/v1/sign-ins?limit=1000", { headers })).json.signIns as {
      signInId: string;
      keyName: string;
    }[];
  const end = (signInId: string, headers: Headers) =>
    ask(server, `/v1/sign-ins/${signInId}`, { method: "DELETE", headers });

  test("are listed to their own key, and to an administrator all", async () => {
    const cookie = await signInWith(server, webKey);
    const id = await newestId();
    await signInWith(server, adminKey);
    const names = async (headers: Headers) => [
      ...new Set((await listed(headers)).map(({ keyName }) => keyName)),
    ];
    for (const headers of [{ Cookie: cookie }, bearer(webKey)] as Headers[]) {
      expect(await names(headers)).toEqual(["web"]);
      expect((await listed(headers)).map(({ signInId }) => signInId)).toContain(id);
    }
    expect(await names(bearer(adminKey))).toEqual(expect.arrayContaining(["web", "root"]));
    expect(JSON.stringify(await listed(bearer(adminKey)))).not.toContain(
      cookie.slice("flotilla=".length),
    );
  });

  test("of a key without a name are its own only one by one", async () => {
    const cookie = await signInWith(server, namelessKey);
    const id = await newestId();
    await signInWith(server, namelessKey);
    expect((await listed({ Cookie: cookie })).map(({ signInId }) => signInId)).toEqual([id]);
    expect(await listed(bearer(namelessKey))).toEqual([]);
  });

  test("are ended by their own key without an entry, and by an administrator with one", async () => {
    const cookie = await signInWith(server, webKey);
    const id = await newestId();
    const other = await signInWith(server, namelessKey);
    const otherId = await newestId();
    const byCookie = { Cookie: cookie, ...own() };
    expect(await end(otherId, byCookie)).toMatchObject({ status: 404 });
    expect(await end(id, bearer(namelessKey))).toMatchObject({ status: 404 });
    expect(await get(other)).toMatchObject({ status: 200 });
    expect(await end(id, { Cookie: cookie })).toMatchObject({ status: 403 });
    expect(await end(id, byCookie)).toMatchObject({ status: 200 });
    await until("the end", async () => (await get(cookie)).status === 401);
    const twice = { ...bearer(adminKey), "Flotilla-Action": "end-it" };
    expect(await end(otherId, twice)).toMatchObject({
      status: 200,
      json: { signIn: { signInId: otherId } },
    });
    expect(await end(otherId, twice)).toMatchObject({ status: 200 });
    await until("its end", async () => (await get(other)).status === 401);
    const entriesOf = async (subject: string) =>
      (await server.flotilla.audit.list({ subject, action: "sign-ins.end" })).entries;
    expect(await entriesOf(id)).toEqual([]);
    expect(await entriesOf(otherId)).toMatchObject([{ actor: "key/root", actId: "end-it" }]);
  });
});
