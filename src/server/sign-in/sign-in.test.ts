import { existsSync, readFileSync } from "node:fs";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { ask, sendForm, signInWith } from "../contract/signed-in.ts";
import { dial, startTestServer } from "../contract/test-server.ts";
import { ownPath } from "./sign-in.ts";
import { createWrongKeys } from "./wrong-keys.ts";

const webKey = "a-key-of-the-config-for-the-web";
const secret = "a secret of thirty-two characters or more";
const lines: string[] = [];
const write = (fields: object, message: string) =>
  void lines.push(`${message} ${JSON.stringify(fields)}`);
const log: Logger = { debug: write, info: write, warn: write, error: write };
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  server = await startTestServer({
    server: {
      apiKeys: [
        { key: "another-key-of-the-config", verbs: ["fleet:read"] },
        { key: webKey, name: "web", role: "operator" },
      ],
      tokens: { secret },
    },
    log,
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const makeKey = (more: object = {}) =>
  server.flotilla.keys.create({ name: "ops", role: "admin", ...more } as never);
const pods = (cookie: string, headers = {}) =>
  ask(server, "/v1/pods", { headers: { Cookie: cookie, ...headers } });

describe("signing in", () => {
  test("gives a browser a cookie for a key of the config or of the store, and leads it home", async () => {
    const { text } = await makeKey();
    for (const key of [webKey, ` ${text}\n`]) {
      const answer = await sendForm(server, key);
      expect(answer).toMatchObject({ status: 303, headers: { location: "/" } });
      expect(answer.headers["set-cookie"]).toEqual([
        expect.stringMatching(
          /^flotilla=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
        ),
      ]);
      const cookie = answer.headers["set-cookie"]![0]!.split(";")[0]!;
      expect(await pods(cookie)).toMatchObject({ status: 200 });
    }
    expect(await pods("")).toMatchObject({ status: 401 });
  });

  test("over HTTPS sets a cookie that no other host and no plain HTTP can set or get", async () => {
    const https = { Host: "ops.example", Origin: "https://ops.example" };
    const answer = await sendForm(server, webKey, { headers: https });
    const [set] = answer.headers["set-cookie"]!;
    expect(set).toMatch(
      /^__Host-flotilla=[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict$/,
    );
    const cookie = set!.split(";")[0]!;
    expect(await pods(cookie, { Host: "ops.example" })).toMatchObject({ status: 200 });
    const renamed = cookie.replace("__Host-", "");
    expect(await pods(renamed, { Host: "ops.example" })).toMatchObject({ status: 401 });
    const plain = await signInWith(server, webKey);
    expect(await pods(`__Host-${plain}`)).toMatchObject({ status: 401 });
  });

  test.each([
    ["foreign", { Origin: "https://evil.example" }],
    ["of another port", { Origin: "http://127.0.0.1:1" }],
    ["null", { Origin: "null" }],
    ["missing", { Origin: undefined }],
    ["own, but the page is of another site", { "Sec-Fetch-Site": "cross-site" }],
    ["a name that leads here", { Host: "evil.example", Origin: "http://evil.example" }],
    ["plain HTTP of another machine", { Host: "ops.example", Origin: "http://ops.example" }],
    ["another scheme", { Host: "ops.example", Origin: "ftp://ops.example" }],
  ])("is refused where the origin is %s", async (_, given) => {
    const headers = Object.fromEntries(
      Object.entries({ Origin: server.url, ...given }).filter(([, value]) => value !== undefined),
    ) as Record<string, string>;
    const answer = await ask(server, "/sign-in", {
      method: "POST",
      headers: { "Content-Type": "application/x-www-form-urlencoded", ...headers },
      body: `key=${webKey}`,
    });
    expect(answer.status).toBe(403);
    expect(answer.headers["set-cookie"]).toBeUndefined();
    expect(answer.text).toMatch(/only pages of this server itself|over plain HTTP/i);
  });

  test("refuses what isn't the form of its page", async () => {
    const send = (type: string, body: string) =>
      ask(server, "/sign-in", {
        method: "POST",
        headers: { "Content-Type": type, Origin: server.url },
        body,
      });
    expect(await send("application/json", `{"key":"${webKey}"}`)).toMatchObject({ status: 415 });
    expect(await send("text/plain", `key=${webKey}`)).toMatchObject({ status: 415 });
    const form = "application/x-www-form-urlencoded";
    expect(await send(form, `key=${"x".repeat(9_000)}`)).toMatchObject({ status: 413 });
    for (const body of ["", "key=", "key=%ff%00", "%%%", "key=a&key=b"])
      expect(
        await ask(server, "/sign-in", {
          method: "POST",
          headers: { "Content-Type": form, Origin: server.url },
          body,
          from: "127.0.0.9",
        }),
      ).toMatchObject({ status: 401 });
  });

  test("leaves an entry in the audit that says which key and from where, and nothing of either text", async () => {
    const cookie = await signInWith(server, webKey);
    const { signIns } = await server.flotilla.signIns.list();
    const newest = signIns[0]!;
    expect(newest).toMatchObject({ keyName: "web", role: "operator", address: "127.0.0.1" });
    const { entries } = await server.flotilla.audit.list({ subject: newest.signInId });
    expect(entries).toMatchObject([
      { action: "sign-ins.create", actor: "key/web", address: "127.0.0.1", role: "operator" },
    ]);
    const files = [server.path, `${server.path}-wal`].filter((path) => existsSync(path));
    const texts = [webKey, cookie.slice("flotilla=".length)];
    for (const path of files)
      for (const text of texts) expect(readFileSync(path).includes(text)).toBe(false);
    expect(lines.filter((line) => texts.some((text) => line.includes(text)))).toEqual([]);
  });

  test("says what to do where the key has as many sign-ins as it may", async () => {
    const { key, text } = await makeKey({ name: "many" });
    const { keyId, name: keyName } = key;
    const made = { keyId, keyName, tenant: null, origin: server.url, address: null };
    for (let n = 0; n < 100; n++)
      await server.flotilla.signIns.create({ ...made, role: "admin", verbs: ["admin"] });
    const answer = await sendForm(server, text);
    expect(answer).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
    expect(answer.text).toContain("<h1>Not signed in</h1>");
    expect(answer.text).toContain("flotilla sign-ins end");
    expect(answer.headers["set-cookie"]).toBeUndefined();
  });

  test("again in the same browser ends the sign-in that it had", async () => {
    const before = await signInWith(server, webKey);
    const after = await signInWith(server, webKey, { headers: { Cookie: before } });
    await until("the end", async () => (await pods(before)).status === 401);
    expect(await pods(after)).toMatchObject({ status: 200 });
  });
});

describe("a wrong key", () => {
  const from = "127.0.0.2";
  test.each([
    ["unknown", () => "a-key-that-no-server-has"],
    ["unknown of the store's form", () => `fl_${"x".repeat(43)}`],
    [
      "a user's token",
      () =>
        new SignJWT({ sub: "ada" })
          .setProtectedHeader({ alg: "HS256" })
          .setExpirationTime("1h")
          .sign(new TextEncoder().encode(secret)),
    ],
    [
      "revoked",
      async () => {
        const { key, text } = await makeKey();
        await server.flotilla.keys.revoke(key.keyId);
        return text;
      },
    ],
  ])("that is %s is refused, with what to do", async (_, keyOf) => {
    const key = await keyOf();
    await until("the refusal", async () => {
      const answer = await sendForm(server, key, { from, next: "/v1/docs/tasks.md" });
      if (answer.status === 303) return false;
      expect(answer.status).toBe(401);
      expect(answer.headers["set-cookie"]).toBeUndefined();
      expect(answer.text).toContain('role="alert"');
      expect(answer.text).toContain("ask an administrator");
      expect(answer.text).toContain('value="/v1/docs/tasks.md"');
      expect(answer.text).not.toContain(key);
      return true;
    });
  });

  test("comes ten times a minute from an address, which then waits, with the right one too", async () => {
    const clock = movableClock();
    const apiKeys = [{ key: webKey, name: "web", role: "operator" as const }];
    await using limited = await startTestServer({ server: { apiKeys }, clock });
    const wrong = () => sendForm(limited, "a-key-that-no-server-has", { from });
    await wrong();
    await clock.advance(20_000);
    // At once, so that each is under way before any is known to be wrong.
    const answers = await Promise.all(Array.from({ length: 12 }, wrong));
    const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b);
    expect(statuses).toEqual([...Array.from({ length: 9 }, () => 401), 429, 429, 429]);
    const refused = await sendForm(limited, webKey, { from });
    expect(refused).toMatchObject({ status: 429, headers: { "retry-after": "40" } });
    expect(refused.text).toContain("Try again in 40 seconds".toLowerCase());
    expect(await sendForm(limited, webKey, { from: "127.0.0.3" })).toMatchObject({ status: 303 });
    await clock.advance(40_000);
    expect(await sendForm(limited, webKey, { from })).toMatchObject({ status: 303 });
    expect((await wrong()).status).toBe(401);
    expect((await wrong()).status).toBe(429);
  });

  test("of a stranger keeps no key out that is too long to be guessed, though those count as wrong ones too", async () => {
    const longKey = "a-key-as-long-as-those-that-the-store-makes-itself";
    const apiKeys = [{ key: longKey, name: "web", role: "operator" as const }];
    await using limited = await startTestServer({ server: { apiKeys }, clock: movableClock() });
    const wrong = `${longKey.slice(0, -1)}x`;
    for (let n = 0; n < 10; n++)
      expect((await sendForm(limited, wrong, { from })).status).toBe(401);
    expect((await sendForm(limited, wrong, { from })).status).toBe(429);
    expect((await sendForm(limited, "a-key-that-no-server-has", { from })).status).toBe(429);
    expect(await sendForm(limited, longKey, { from })).toMatchObject({ status: 303 });
  });

  test("is said in the log once a minute, with how many there were and nothing of them", async () => {
    const clock = movableClock();
    const said: unknown[] = [];
    const warn = (fields: object, message: string) => void said.push([fields, message]);
    const wrongKeys = createWrongKeys({ clock, log: { warn } });
    for (let n = 0; n < 5; n++) wrongKeys.note();
    await clock.advance(60_000);
    wrongKeys.note();
    const message = "wrong keys at the sign-in page";
    expect(said).toEqual([
      [{ refused: 1 }, message],
      [{ refused: 5 }, message],
    ]);
    await sendForm(server, "a-key-that-no-server-has", { from: "127.0.0.17" });
    expect(lines.filter((line) => line.startsWith(message)).length).toBeGreaterThan(0);
    expect(lines.join()).not.toContain("a-key-that-no-server-has");
  });

  test("is remembered of ten thousand addresses at most", () => {
    const wrongKeys = createWrongKeys({ clock: movableClock(), log: silentLogger });
    const fill = (address: string) => {
      for (let n = 0; n < 10; n++) wrongKeys.begin(address);
    };
    fill("first");
    expect(() => wrongKeys.begin("first")).toThrow("10 wrong keys");
    for (let n = 0; n < 9_999; n++) wrongKeys.begin(`other ${n}`);
    expect(() => wrongKeys.begin("first")).toThrow("10 wrong keys");
    wrongKeys.begin("one more");
    wrongKeys.begin("first");
  });
});

describe("where a browser goes on", () => {
  test.each([
    ["/chat/?a=1#b", "/chat/?a=1#b"],
    ["/v1/docs/tasks.md", "/v1/docs/tasks.md"],
    ["/a/../b", "/b"],
    ["/ü?q=ü", "/%C3%BC?q=%C3%BC"],
    ["//evil.example", "/"],
    ["/\\evil.example", "/"],
    ["\\/evil.example", "/"],
    ["/\t/evil.example", "/"],
    ["/\n/evil.example", "/"],
    ["\t//evil.example", "/"],
    ["/.//evil.example", "/"],
    ["/a/..//evil.example", "/"],
    ["/%2e//evil.example", "/"],
    ["https://evil.example", "/"],
    ["javascript:alert(1)", "/"],
    ["evil.example", "/"],
    ["", "/"],
    [`/${"a".repeat(3_000)}`, "/"],
    ["/\r\nSet-Cookie: a=b", "/Set-Cookie:%20a=b"],
  ])("with %j is %j", async (next, wanted) => {
    expect(ownPath(next)).toBe(wanted);
    const { location } = (await sendForm(server, webKey, { next })).headers;
    expect(location).toBe(wanted);
    expect(new URL(location!, server.url).origin).toBe(server.url);
  });
});

describe("the page", () => {
  test("is a form without a script, that no other page may hold", async () => {
    const { status, headers, text } = await ask(server, "/sign-in?next=/chat/");
    expect(status).toBe(200);
    const policy = headers["content-security-policy"]!;
    for (const part of [
      "default-src 'none'",
      "form-action 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
      "require-trusted-types-for 'script'",
    ])
      expect(policy).toContain(part);
    expect(policy).not.toMatch(/script-src|unsafe|https?:|\*/);
    expect(headers).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      // With `no-referrer` browsers would hide the origin of the form.
      "referrer-policy": "same-origin",
      "cross-origin-opener-policy": "same-origin",
    });
    expect(text).not.toMatch(/<script|\son\w+=|style="/);
    expect(text).toContain('<label for="key">');
    expect(text).toContain('name="next" value="/chat/"');
    expect((await ask(server, '/sign-in?next=/"><script>')).text).not.toContain("<script");
  });

  test("shows who is signed in, and signs out", async () => {
    const name = `<script>alert("${"x".repeat(3)}")</script>`;
    const { text } = await makeKey({ name, role: "viewer", tenant: "acme" });
    const cookie = await signInWith(server, text);
    const view = await ask(server, "/sign-in", { headers: { Cookie: cookie } });
    expect(view.text).toContain("You are signed in");
    expect(view.text).toMatch(/<dd>viewer<\/dd>[^]*<dd>acme<\/dd>/);
    expect(view.text).not.toContain("<script");
    expect(view.text).toContain("&lt;script&gt;");

    const client = await dial(server.socketUrl, {
      headers: { Cookie: cookie, Origin: server.url },
    });
    const out = await ask(server, "/sign-out", {
      method: "POST",
      headers: { Cookie: cookie, Origin: server.url },
    });
    expect(out).toMatchObject({ status: 303, headers: { location: "sign-in" } });
    expect(out.headers["set-cookie"]).toEqual([
      "flotilla=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict",
    ]);
    // The cookie may have been stolen: it is of no use any more.
    await until("the end", async () => (await pods(cookie)).status === 401);
    const reason = "the sign-in has ended: sign in again";
    expect(await client.closed()).toEqual({ code: 4401, reason });
    const after = await ask(server, "/sign-in", { headers: { Cookie: cookie } });
    expect(after.text).toContain("The sign-in has ended: sign in again.");
    expect(after.headers["set-cookie"]).toHaveLength(2);
    expect(after.headers["set-cookie"]!.join()).toMatch(/Max-Age=0.*Max-Age=0/);
  });

  test("takes no key where others on the way could read it, and says where it does", async () => {
    const at = (headers: Record<string, string>) =>
      ask(server, "/sign-in", { headers: { Host: "ops.example:7777", ...headers } });
    const { text } = await at({});
    expect(text).toContain("This page came over plain HTTP");
    expect(text).toContain("https://ops.example:7777");
    expect(text).toContain("localhost:7777");
    expect(text).not.toMatch(/<form|<input/);
    // Browsers send the first over HTTPS alone, and a proxy adds the second where it ends HTTPS.
    const safe = [{ "Sec-Fetch-Site": "none" }, { "X-Forwarded-Proto": "https" }];
    for (const headers of safe) expect((await at(headers)).text).toContain("<form");
  });

  test("signs out by its own form alone", async () => {
    const cookie = await signInWith(server, webKey);
    for (const Origin of ["https://evil.example", "null", ""]) {
      const headers = { Cookie: cookie, ...(Origin !== "" && { Origin }) };
      expect(await ask(server, "/sign-out", { method: "POST", headers })).toMatchObject({
        status: 403,
      });
    }
    expect(await ask(server, "/sign-out", { headers: { Cookie: cookie } })).toMatchObject({
      status: 404,
    });
    expect(await pods(cookie)).toMatchObject({ status: 200 });
    const own = { Origin: server.url };
    const without = await ask(server, "/sign-out", { method: "POST", headers: own });
    expect(without).toMatchObject({ status: 303 });
  });

  test("is where the front page leads, and says so where it isn't needed", async () => {
    const Accept = "text/html";
    expect((await ask(server, "/", { headers: { Accept } })).text).toContain('href="/sign-in"');
    const cookie = await signInWith(server, webKey);
    const home = await ask(server, "/", { headers: { Accept, Cookie: cookie } });
    expect(home.text).toContain("In the store now");
    await using open = await startTestServer();
    expect((await ask(open, "/", { headers: { Accept } })).text).not.toContain("/sign-in");
    expect((await ask(open, "/sign-in")).text).toContain("No sign-in needed");
    const sent = await sendForm(open, webKey, { next: "/metrics" });
    expect(sent).toMatchObject({ status: 303, headers: { location: "/metrics" } });
    expect(sent.headers["set-cookie"]).toBeUndefined();
  });

  test("asks for no key where the app of the server knows who calls", async () => {
    const login = () => ({ user: "ada", role: "viewer" }) as const;
    await using own = await startTestServer({ server: { login } });
    expect((await ask(own, "/sign-in")).text).toMatch(/knows you as\s+<strong>ada/);
  });
});
