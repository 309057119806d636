import { describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Login, LoginHook } from "../../runtime/server-config.ts";
import { dial, startTestServer } from "../contract/test-server.ts";
import { type AcceptedCredentials, createAuthenticator } from "./authenticate.ts";
import { may } from "./caller.ts";

const key = "a-key-of-16-chars-or-more";
const cookie = "sid=a-secret-cookie";
const ada: Login = { user: "ada", role: "operator" };

/** What a request with a cookie comes to, and what was logged meanwhile. */
function signingIn(login: LoginHook, credentials: Partial<AcceptedCredentials> = {}) {
  const clock = movableClock();
  const lines: string[] = [];
  const write = (fields: object, message: string) =>
    void lines.push(`${message} ${JSON.stringify(fields)}`);
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  const { caller } = createAuthenticator({ apiKeys: [], login, ...credentials }, { clock, log });
  const ask = (headers: Record<string, string> = {}, method = "GET") => {
    const all: Record<string, string> = { host: "ops.example", cookie, ...headers };
    return caller({
      header: (name) => all[name],
      headerNames: () => Object.keys(all),
      method,
      url: "/v1/tasks?limit=1",
    });
  };
  return { ask, clock, lines };
}

describe("a sign-in of the host app", () => {
  test("says who calls and what that person may do", async () => {
    const { ask, clock } = signingIn(async () => ada);
    const found = await ask();
    expect(found).toMatchObject({ kind: "user", user: "ada", role: "operator", allTenants: true });
    expect([may(found, "fleet:operate"), may(found, "admin"), may(found, "payloads:read")]).toEqual(
      [true, false, false],
    );
    // An open socket or stream signs in again by then.
    expect(found.expiresAtMs).toBe(clock.now() + 300_000);
  });

  test("may be of one tenant, and may see payloads", async () => {
    const found = await signingIn(() => ({ ...ada, tenant: "acme", payloads: true })).ask();
    expect(found).toMatchObject({ tenant: "acme" });
    expect(found).not.toHaveProperty("allTenants");
    expect(may(found, "payloads:read")).toBe(true);
  });

  test("gets the request without its body", async () => {
    let seen: Request | undefined;
    await signingIn((request) => {
      seen = request;
      return ada;
    }).ask({}, "POST");
    expect(seen).toMatchObject({ method: "POST", url: "http://ops.example/v1/tasks?limit=1" });
    expect([seen!.headers.get("cookie"), seen!.body]).toEqual([cookie, null]);
  });

  test("that is null is refused, and isn't logged", async () => {
    const { ask, lines } = signingIn(() => null);
    await expect(ask()).rejects.toMatchObject({ code: "unauthorized" });
    expect(lines).toEqual([]);
  });

  test.each<[string, () => unknown]>([
    ["nothing", () => undefined],
    ["text", () => "ada"],
    ["no role", () => ({ user: "ada" })],
    ["an unknown role", () => ({ user: "ada", role: "root" })],
    ["a role of every object", () => ({ user: "ada", role: "constructor" })],
    ["several roles", () => ({ user: "ada", role: ["admin"] })],
    ["no user", () => ({ role: "admin" })],
    ["a user that no database stores", () => ({ user: "ada\u0000", role: "admin" })],
    ["a tenant that isn't text", () => ({ ...ada, tenant: 7 })],
    ["an administrator of one tenant", () => ({ user: "ada", role: "admin", tenant: "acme" })],
    ["payloads that aren't true or false", () => ({ ...ada, payloads: "no" })],
    [
      "an error",
      () => {
        throw new TypeError(`no such session: ${cookie}`);
      },
    ],
    ["a rejection", () => Promise.reject(new Error(cookie))],
    ["a rejection with a text", () => Promise.reject(cookie)],
  ])("that gives %s is refused, and logged without the cookie", async (_, hook) => {
    const { ask, lines } = signingIn(hook as LoginHook);
    await expect(ask()).rejects.toMatchObject({ code: "unavailable" });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain("server.login failed");
    expect(lines[0]).not.toContain(cookie);
  });

  test("that is asked for by a flood of requests is asked for 256 of them at once", async () => {
    let asked = 0;
    const answers = Promise.withResolvers<typeof ada>();
    const { ask, lines } = signingIn(() => {
      asked++;
      return answers.promise;
    });
    const first = Array.from({ length: 256 }, () => ask());
    await expect(ask()).rejects.toMatchObject({ code: "unavailable" });
    expect([asked, lines.length]).toEqual([256, 1]);
    answers.resolve(ada);
    expect(await Promise.all(first)).toHaveLength(256);
    expect(await ask()).toMatchObject({ user: "ada" });
  });

  test("that never answers is refused after five seconds, and its request is given up", async () => {
    let given: AbortSignal | undefined;
    const { ask, clock, lines } = signingIn((request) => {
      given = request.signal;
      return new Promise(() => {});
    });
    const found = ask();
    found.catch(() => {});
    await clock.advance(4_999);
    expect([lines, given!.aborted]).toEqual([[], false]);
    await clock.advance(1);
    await expect(found).rejects.toMatchObject({ code: "unavailable" });
    expect([lines.length, given!.aborted, clock.timers]).toEqual([1, true, 0]);
  });

  test("that fails in a flood is a line in ten seconds, with a count", async () => {
    const { ask, clock, lines } = signingIn(() => Promise.reject(new Error("no")));
    for (let n = 0; n < 100; n++) await ask().catch(() => {});
    expect(lines).toHaveLength(1);
    await clock.advance(10_000);
    await ask().catch(() => {});
    expect(lines).toHaveLength(2);
    expect(lines[1]).toContain('"refused":100');
  });

  test("isn't asked about a request with a key, not even a wrong one", async () => {
    let calls = 0;
    const { ask } = signingIn(() => (calls++, ada), { apiKeys: [key] });
    expect(await ask({ authorization: `Bearer ${key}` })).toMatchObject({ kind: "server" });
    const wrong = ask({ authorization: "Bearer a-key-that-is-wrong" });
    await expect(wrong).rejects.toMatchObject({ code: "unauthorized" });
    expect(calls).toBe(0);
    expect(await ask()).toMatchObject({ user: "ada" });
  });

  test("leaves no caller in without one, also on this machine", async () => {
    const { ask } = signingIn(() => null);
    const local = { host: "localhost:8080" };
    await expect(ask(local)).rejects.toMatchObject({ code: "unauthorized" });
  });

  test("acts as no other user, and as one of one tenant for no other", async () => {
    const ofAll = signingIn(() => ada);
    const other = { "flotilla-tenant": "other" };
    expect(await ofAll.ask(other)).toMatchObject({ user: "ada", tenant: "other" });
    const forbidden = { code: "forbidden" };
    await expect(ofAll.ask({ "flotilla-user": "eve" })).rejects.toMatchObject(forbidden);
    const ofOne = signingIn(() => ({ ...ada, tenant: "acme" }));
    await expect(ofOne.ask(other)).rejects.toMatchObject(forbidden);
  });
});

describe("a page of another site, which a browser sends the cookie for", () => {
  const { ask } = signingIn(() => ada, { origins: ["https://app.example"] });

  test.each<Record<string, string>>([
    { origin: "https://evil.example" },
    { origin: "null" },
    { origin: "https://ops.example.evil" },
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site" },
    { origin: "https://ops.example", "sec-fetch-site": "cross-site" },
  ])("changes nothing: %j", async (headers) => {
    for (const method of ["POST", "PUT", "DELETE", "PATCH"])
      await expect(ask(headers, method)).rejects.toMatchObject({ code: "forbidden" });
  });

  test.each<Record<string, string>>([
    {},
    { origin: "https://ops.example", "sec-fetch-site": "same-origin" },
    { origin: "http://ops.example" },
    { origin: "https://app.example", "sec-fetch-site": "cross-site" },
  ])("is none of the server's own, nor one that is named: %j", async (headers) => {
    expect(await ask(headers, "POST")).toMatchObject({ user: "ada" });
  });
});

test("a flood of sign-ins that fail is no flood in the log of a server", async () => {
  const lines: string[] = [];
  const write = (_: object, message: string) => void lines.push(message);
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  const login = () => Promise.reject(new Error("no"));
  await using server = await startTestServer({ server: { login }, clock: movableClock(), log });
  for (let n = 0; n < 50; n++) expect((await fetch(`${server.url}/v1/pods`)).status).toBe(503);
  for (let n = 0; n < 5; n++)
    await expect(dial(server.socketUrl)).rejects.toMatchObject({ status: 503 });
  expect(lines).toEqual(["server.login failed"]);
});

test("a sign-in is used by requests, streams and sockets of a server alike", async () => {
  const login: LoginHook = (request) =>
    request.headers.get("cookie") === cookie ? { user: "ada", role: "viewer" } : null;
  await using server = await startTestServer({ server: { login } });
  const get = (path: string, Cookie = cookie) => fetch(server.url + path, { headers: { Cookie } });
  expect((await get("/v1/pods")).status).toBe(200);
  expect((await get("/v1/pods", "sid=wrong")).status).toBe(401);
  expect((await fetch(`${server.url}/v1/pods`)).status).toBe(401);
  const post = { method: "POST", headers: { Cookie: cookie, Origin: server.url }, body: "{}" };
  const paused = await fetch(`${server.url}/v1/pause`, post);
  expect(await paused.json()).toMatchObject({
    error: { message: expect.stringContaining("this user may not do that") },
  });
  const client = await dial(server.socketUrl, { headers: { Cookie: cookie } });
  expect(await client.find("hello")).toMatchObject({ user: "ada" });
  client.close();
  await expect(dial(server.socketUrl)).rejects.toMatchObject({ status: 401 });
  const foreign = { headers: { Cookie: cookie, Origin: "https://evil.example" } };
  await expect(dial(server.socketUrl, foreign)).rejects.toMatchObject({ status: 403 });
});
