import { createHash, createHmac } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, exportSPKI, generateKeyPair, SignJWT } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { Role } from "../../protocol/verbs.ts";
import type { TokenConfig } from "../../runtime/server-config.ts";
import { type AuthRequest, createAuthenticator, type AcceptedCredentials } from "./authenticate.ts";
import { type Caller, may, canSee } from "./caller.ts";

const secret = "a secret of thirty-two characters or more";
const clock = movableClock();
const nowSeconds = () => Math.floor(clock.now() / 1_000);
const unauthorized = expect.objectContaining({ code: "unauthorized" });

const authenticator = (credentials: Partial<AcceptedCredentials>) =>
  createAuthenticator({ apiKeys: [], ...credentials }, { clock, random: seededRandom(1) });

/** Who is found behind a request with these headers. */
const caller = (
  credentials: Partial<AcceptedCredentials>,
  headers: Record<string, string>,
  rest: Partial<AuthRequest> = {},
) => authenticator(credentials).caller({ ...headed(headers), ...rest });

const headed = (headers: Record<string, string>) => ({
  header: (name: string) => headers[name],
  headerNames: () => Object.keys(headers),
});

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** A token that is good for a minute, unless told otherwise. */
function token(claims: Record<string, unknown> = {}, { key = secret, alg = "HS256" } = {}) {
  return new SignJWT({ sub: "ada", tenant: "acme", exp: nowSeconds() + 60, ...claims })
    .setProtectedHeader({ alg })
    .sign(new TextEncoder().encode(key));
}

describe("a key", () => {
  const plain = "a-key-of-16-chars-or-more";
  const hash = `sha256:${createHash("sha256").update("another-key-of-16").digest("hex")}`;

  test("in plain or as a hash is that of a server that may do everything for any tenant", async () => {
    const apiKeys = [plain, hash];
    for (const key of [plain, "another-key-of-16"]) {
      const found = await caller({ apiKeys }, { ...bearer(key), "flotilla-tenant": "acme" });
      expect(found).toMatchObject({ kind: "server", tenant: "acme" });
      expect(may(found, "admin")).toBe(true);
    }
    expect(await caller({ apiKeys }, bearer(plain))).toMatchObject({ tenant: "default" });
    const acting = { ...bearer(plain), "flotilla-user": "ada" };
    expect(await caller({ apiKeys }, acting)).toMatchObject({ user: "ada" });
  });

  test("isn't matched by its own hash, nor by something like it", async () => {
    for (const wrong of [hash, `${plain}x`, plain.slice(1), "x"]) {
      await expect(caller({ apiKeys: [plain, hash] }, bearer(wrong))).rejects.toThrow(unauthorized);
    }
    await expect(caller({ apiKeys: [plain] }, {})).rejects.toThrow(unauthorized);
    const basic = { authorization: `Basic ${plain}` };
    await expect(caller({ apiKeys: [plain] }, basic)).rejects.toThrow(unauthorized);
  });

  test("of a tenant acts for that one only, and is no administrator", async () => {
    const apiKeys = [{ key: plain, tenant: "acme" }];
    const found = await caller({ apiKeys }, bearer(plain));
    expect(found).toMatchObject({ kind: "server", tenant: "acme" });
    expect([may(found, "admin"), may(found, "sessions:any")]).toEqual([false, true]);
    const other = { ...bearer(plain), "flotilla-tenant": "other" };
    await expect(caller({ apiKeys }, other)).rejects.toMatchObject({ code: "forbidden" });
  });

  test("may be given less, or more", async () => {
    const verbsOf = async (rest: object) => [
      ...(await caller({ apiKeys: [{ key: plain, ...rest }] }, bearer(plain))).verbs,
    ];
    expect(await verbsOf({ verbs: ["sessions:read"] })).toEqual(["sessions:read"]);
    expect(await verbsOf({ admin: false })).not.toContain("admin");
    expect(await verbsOf({ verbs: ["sessions:read"], admin: true })).toContain("admin");
  });

  test("of a tenant is no administrator whatever its headers, since those act for all tenants", async () => {
    for (const rest of [{ admin: true }, { verbs: ["admin", "tasks:read"] as const }]) {
      const found = await caller(
        { apiKeys: [{ key: plain, tenant: "acme", ...rest }] },
        bearer(plain),
      );
      expect([may(found, "admin"), may(found, "tasks:read")]).toEqual([false, true]);
      expect([canSee(found, { tenant: "acme" }), canSee(found, { tenant: "other" })]).toEqual([
        true,
        false,
      ]);
    }
  });
});

describe("a key with a role", () => {
  const plain = "a-key-of-16-chars-or-more";
  const found = (rest: object) => caller({ apiKeys: [{ key: plain, ...rest }] }, bearer(plain));

  test.each<[Role, boolean, boolean, boolean]>([
    ["viewer", true, false, false],
    ["operator", true, true, false],
    ["admin", true, true, true],
  ])("%s has that role's verbs", async (role, reads, operates, administers) => {
    const by = await found({ role, name: "ops" });
    expect(by).toMatchObject({ kind: "server", role, keyName: "ops" });
    expect([may(by, "fleet:read"), may(by, "fleet:operate"), may(by, "admin")]).toEqual([
      reads,
      operates,
      administers,
    ]);
    expect([may(by, "payloads:read"), may(by, "sessions:write")]).toEqual([
      administers,
      administers,
    ]);
    expect([canSee(by, { tenant: "acme" }), canSee(by, { tenant: "other" })]).toEqual([true, true]);
  });

  test("may be granted more beside it", async () => {
    const by = await found({ role: "viewer", verbs: ["payloads:read", "inbox:read"] });
    expect([may(by, "payloads:read"), may(by, "inbox:read"), may(by, "fleet:operate")]).toEqual([
      true,
      true,
      false,
    ]);
  });

  test("and a tenant sees that tenant only", async () => {
    const by = await found({ role: "operator", tenant: "acme" });
    expect([canSee(by, { tenant: "acme" }), canSee(by, { tenant: "other" })]).toEqual([
      true,
      false,
    ]);
  });

  test("that was given past the checks of the config makes no administrator of a tenant", async () => {
    const by = await found({ role: "admin", tenant: "acme" });
    expect([may(by, "admin"), canSee(by, { tenant: "other" })]).toEqual([false, false]);
  });
});

test("a caller that may not look at the fleet reads what is its own whole", async () => {
  const apiKeys = [{ key: "a-key-of-16-chars-or-more", verbs: ["tasks:read"] as const }];
  const reader = await caller({ apiKeys }, bearer("a-key-of-16-chars-or-more"));
  const user = await caller({ tokens: { secret } }, bearer(await token()));
  expect([may(reader, "payloads:read"), may(user, "payloads:read")]).toEqual([true, true]);
});

describe("a token with a role", () => {
  const tokens: TokenConfig = { secret, claims: { role: "role" } };
  const found = async (claims: Record<string, unknown>, config = tokens) =>
    caller({ tokens: config }, bearer(await token(claims)));

  test("has that role's verbs and a user's own", async () => {
    const by = await found({ role: "operator" });
    expect(by).toMatchObject({ kind: "user", user: "ada", tenant: "acme", role: "operator" });
    expect([may(by, "fleet:operate"), may(by, "sessions:write"), may(by, "admin")]).toEqual([
      true,
      true,
      false,
    ]);
    expect(may(by, "payloads:read")).toBe(false);
    const granted = await found({ role: "viewer", verbs: ["payloads:read"] });
    expect([may(granted, "payloads:read"), may(granted, "sessions:read")]).toEqual([true, false]);
    expect([canSee(by, { tenant: "acme" }), canSee(by, { tenant: "other" })]).toEqual([
      true,
      false,
    ]);
  });

  test("and no tenant is for all tenants, and only such a one is an administrator's", async () => {
    const by = await found({ role: "admin", tenant: undefined });
    expect([may(by, "admin"), canSee(by, { tenant: "other" })]).toEqual([true, true]);
    await expect(found({ role: "admin" })).rejects.toThrow("leave out its claim tenant");
  });

  test.each(["root", "Admin", "constructor", ["admin"], 7, {}, ""])(
    "that isn't one is refused: %j",
    async (role) => {
      await expect(found({ role })).rejects.toThrow(
        "the token's claim role must be one of viewer, operator, admin",
      );
    },
  );

  test("has none where the config names no claim for it, since other services have their own", async () => {
    for (const role of ["admin", "authenticated"]) {
      const by = await found({ role, tenant: undefined }, { secret });
      expect(by).not.toHaveProperty("role");
      expect([may(by, "admin"), may(by, "fleet:read"), may(by, "sessions:read")]).toEqual([
        false,
        false,
        true,
      ]);
    }
    const other = { secret, claims: { role: "https://ops.example/role" } };
    const by = await found({ role: "admin", "https://ops.example/role": "viewer" }, other);
    expect(by).toMatchObject({ role: "viewer" });
  });
});

describe("a token", () => {
  const tokens: TokenConfig = { secret };

  test("names a user and what that user may do", async () => {
    const found = await caller({ tokens }, bearer(await token()));
    expect(found).toMatchObject({
      kind: "user",
      tenant: "acme",
      user: "ada",
      expiresAtMs: (nowSeconds() + 65) * 1_000,
    });
    expect([...found.verbs]).toEqual(["sessions:read", "sessions:write", "inbox:read"]);
  });

  test.each([
    [{ verbs: ["sessions:read", "admin", "fly"] }, ["sessions:read"]],
    [{ verbs: [] }, []],
    [{ scope: "openid sessions:read sessions:create" }, ["sessions:read", "sessions:create"]],
    [{ scope: "openid" }, ["sessions:read", "sessions:write", "inbox:read"]],
    [{ scope: "fleet:read fleet:operate" }, ["sessions:read", "sessions:write", "inbox:read"]],
    [{ scope: "sessions:read fleet:read payloads:read" }, ["sessions:read"]],
    [{ verbs: ["sessions:read", "fleet:read"] }, ["sessions:read", "fleet:read"]],
    [{ verbs: ["sessions:write"], scope: "sessions:any" }, ["sessions:write"]],
  ])("with %j may do %j", async (claims, verbs) => {
    expect([...(await caller({ tokens }, bearer(await token(claims)))).verbs]).toEqual(verbs);
  });

  test("may have other claims, and the sessions it is good for", async () => {
    const claims = { tenant: "org", user: "email", verbs: "rights", sessions: "chats" };
    const given = await token({ org: "acme", email: "a@b", rights: ["inbox:read"], chats: ["s"] });
    const found = await caller({ tokens: { secret, claims } }, bearer(given));
    expect(found).toMatchObject({ tenant: "acme", user: "a@b", sessions: new Set(["s"]) });
    expect([...found.verbs]).toEqual(["inbox:read"]);
  });

  const unsigned = () => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const claims = part({ sub: "ada", tenant: "acme", exp: nowSeconds() + 60 });
    return [`${part({ alg: "none" })}.${claims}.`, `${part({ alg: "HS256" })}.${claims}.`];
  };
  test.each<[string, () => Promise<string> | string]>([
    ["`alg: none`", () => unsigned()[0]!],
    ["no signature", () => unsigned()[1]!],
    ["another secret", () => token({}, { key: "another secret of thirty-two characters" })],
    ["another algorithm", () => token({}, { alg: "HS512", key: secret.repeat(2) })],
    ["an end that has passed", () => token({ exp: nowSeconds() - 6 })],
    ["no end", () => token({ exp: undefined })],
    ["a beginning that hasn't come", () => token({ nbf: nowSeconds() + 60 })],
    ["no user", () => token({ sub: undefined })],
    ["a user that isn't text", () => token({ sub: 7 })],
    ["a tenant that isn't text", () => token({ tenant: ["acme"] })],
    ["a user that no database stores", () => token({ sub: "ada\u0000" })],
    ["half a character in its tenant", () => token({ tenant: "acme\ud800" })],
    [
      "another's claims",
      async () => {
        const [head, , signature] = (await token()).split(".");
        return [head, (await token({ sub: "eve" })).split(".")[1], signature].join(".");
      },
    ],
    ["too much in it", () => token({ more: "x".repeat(20_000) })],
    ["nothing of a token", () => "a.b.c"],
  ])("is refused with %s", async (_, make) => {
    await expect(caller({ tokens }, bearer(await make()))).rejects.toThrow(unauthorized);
  });

  test.each(["1e400", "1e300", "-1e400", '"soon"'])("is refused with the end %s", async (exp) => {
    const part = (text: string) => Buffer.from(text).toString("base64url");
    const head = `${part('{"alg":"HS256"}')}.${part(`{"sub":"ada","exp":${exp}}`)}`;
    const signature = createHmac("sha256", secret).update(head).digest("base64url");
    await expect(caller({ tokens }, bearer(`${head}.${signature}`))).rejects.toThrow(unauthorized);
  });

  test("without an end is refused with the claim that it lacks", async () => {
    const endless = caller({ tokens }, bearer(await token({ exp: undefined })));
    await expect(endless).rejects.toThrow("the token has no claim exp");
  });

  test("is held to its issuer and audience", async () => {
    const strict = { secret, issuer: "https://id.example", audience: "chat" };
    const good = { iss: "https://id.example", aud: ["chat", "mail"] };
    expect(await caller({ tokens: strict }, bearer(await token(good)))).toMatchObject({
      user: "ada",
    });
    for (const claims of [{}, { ...good, iss: "x" }, { ...good, aud: "mail" }]) {
      const given = bearer(await token(claims));
      await expect(caller({ tokens: strict }, given)).rejects.toThrow(unauthorized);
    }
  });

  test("forgives clocks that differ by a few seconds", async () => {
    const given = bearer(await token({ exp: nowSeconds() - 3 }));
    expect(await caller({ tokens }, given)).toMatchObject({ user: "ada" });
  });

  test("can't be used as another user", async () => {
    const given = bearer(await token());
    for (const headers of [{ "flotilla-user": "eve" }, { "flotilla-tenant": "other" }]) {
      await expect(caller({ tokens }, { ...given, ...headers })).rejects.toMatchObject({
        code: "forbidden",
      });
    }
  });
});

describe("a token of a key pair", () => {
  let tokens: TokenConfig;
  let pem: string;
  const sign: Record<string, () => Promise<string>> = {};

  beforeAll(async () => {
    const keys = [];
    for (const alg of ["RS256", "ES256", "EdDSA"]) {
      const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
      keys.push({ ...(await exportJWK(publicKey)), kid: alg, alg });
      if (alg === "RS256") pem = await exportSPKI(publicKey);
      sign[alg] = () =>
        new SignJWT({ sub: "ada", exp: nowSeconds() + 60 })
          .setProtectedHeader({ alg, kid: alg })
          .sign(privateKey);
    }
    tokens = { jwks: { keys } };
  });

  test.each(["RS256", "ES256", "EdDSA"])("is checked with the public one: %s", async (alg) => {
    const found = await caller({ tokens }, bearer(await sign[alg]!()));
    expect(found).toMatchObject({ kind: "user", tenant: "default", user: "ada" });
  });

  test("isn't one that was made with the public key as if it were a secret", async () => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const claims = part({ sub: "ada", exp: nowSeconds() + 60 });
    for (const kid of ["RS256", undefined]) {
      const head = `${part({ alg: "HS256", kid })}.${claims}`;
      const forged = `${head}.${createHmac("sha256", pem).update(head).digest("base64url")}`;
      await expect(caller({ tokens }, bearer(forged))).rejects.toThrow(unauthorized);
    }
  });

  test("is refused where its algorithm isn't one of ours", async () => {
    const pinned = { ...tokens, algorithms: ["ES256"] };
    await expect(caller({ tokens: pinned }, bearer(await sign["RS256"]!()))).rejects.toThrow(
      unauthorized,
    );
  });

  test("can't be checked while the keys can't be had, which isn't the token's fault", async () => {
    const gone = { jwksUrl: "http://127.0.0.1:9/keys" };
    await expect(caller({ tokens: gone }, bearer(await sign["RS256"]!()))).rejects.toMatchObject({
      code: "timeout",
    });
  });

  test.each([
    [503, "later"],
    [200, "<html>sign in</html>"],
    [200, '{"error":"later"}'],
  ])("nor while something else comes in their place: %i %s", async (status, body) => {
    const server = createServer((_, answer) => answer.writeHead(status).end(body));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const broken = { jwksUrl: `http://127.0.0.1:${port}/keys` };
    const found = caller({ tokens: broken }, bearer(await sign["RS256"]!()));
    await expect(found).rejects.toMatchObject({ code: "timeout" });
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
});

describe("a name in a header", () => {
  const apiKeys = ["a-key-of-16-chars-or-more"];
  const acting = (headers: Record<string, string>) =>
    caller({ apiKeys }, { ...bearer(apiKeys[0]!), ...headers });

  test.each([
    ["ada", "ada"],
    ["Ada Lovelace", "Ada Lovelace"],
    ["ada+chat@example.org", "ada+chat@example.org"],
    ["Zo%C3%AB%20%F0%9F%9A%A2", "Zoë 🚢"],
    ["100%25", "100%"],
  ])("is percent-encoded where it isn't plain: %s is %s", async (sent, name) => {
    const found = await acting({ "flotilla-user": sent, "flotilla-tenant": sent });
    expect(found).toMatchObject({ user: name, tenant: name });
    const own = bearer(await token({ sub: name, tenant: name }));
    const same = await caller({ tokens: { secret } }, { ...own, "flotilla-user": sent });
    expect(same).toMatchObject({ kind: "user", user: name });
  });

  test.each(["Zo\u00eb", "100%", "%zz", "%ff", "%ed%a0%80", "a%00b", "", "%61".repeat(501)])(
    "is refused where it can't be decoded or stored: %j",
    async (sent) => {
      for (const header of ["flotilla-user", "flotilla-tenant"]) {
        const refused = { code: "invalid_input" };
        await expect(acting({ [header]: sent })).rejects.toMatchObject(refused);
      }
    },
  );

  test("is taken as it is from an address, which is decoded already", async () => {
    const rest = { user: "100% Zoë" };
    expect(await caller({ apiKeys }, bearer(apiKeys[0]!), rest)).toMatchObject(rest);
    const wrong = caller({ apiKeys }, bearer(apiKeys[0]!), { user: "a\u0000" });
    await expect(wrong).rejects.toMatchObject({ code: "invalid_input" });
  });
});

describe("a ticket", () => {
  test("stands for its caller, once and for half a minute", async () => {
    const { tickets, caller: ask } = authenticator({ tokens: { secret } });
    const none = headed({});
    const found = await ask({ ...none, bearer: await token() });
    const { ticket, expiresAtMs } = tickets.issue(found);
    expect(expiresAtMs).toBe(clock.now() + 30_000);
    expect(await ask({ ...none, ticket })).toBe(found);
    await expect(ask({ ...none, ticket })).rejects.toThrow(unauthorized);
    const late = tickets.issue(found).ticket;
    expect(late).not.toBe(ticket);
    await clock.advance(30_000);
    await expect(ask({ ...none, ticket: late })).rejects.toThrow(unauthorized);
  });

  test("of a token that has expired since is refused, and so is what goes on with the token", async () => {
    const { tickets, caller: ask, refusalOf } = authenticator({ tokens: { secret } });
    const found = await ask({ ...headed({}), bearer: await token({ exp: nowSeconds() + 5 }) });
    const { ticket } = tickets.issue(found);
    expect(refusalOf(found)).toBeUndefined();
    await clock.advance(10_000);
    expect(refusalOf(found)).toMatchObject({ code: "unauthorized" });
    await expect(ask({ ...headed({}), ticket })).rejects.toThrow(unauthorized);
  });

  test("is refused once too many wait to be used", async () => {
    const { tickets } = authenticator({});
    const somebody: Caller = { kind: "local", tenant: "t", verbs: new Set() };
    for (let n = 0; n < 10_000; n++) tickets.issue(somebody);
    expect(() => tickets.issue(somebody)).toThrow(expect.objectContaining({ code: "overloaded" }));
    await clock.advance(30_000);
    expect(tickets.issue(somebody).ticket).toHaveLength(64);
  });

  test("of one user leaves those of the others alone, however many that user requests", async () => {
    const { tickets, caller: ask } = authenticator({});
    const user = (name: string): Caller => ({
      kind: "user",
      tenant: "t",
      user: name,
      verbs: new Set(),
    });
    const own = Array.from({ length: 100 }, () => tickets.issue(user("eve")).ticket);
    for (let n = 0; n < 10; n++) {
      expect(() => tickets.issue(user("eve"))).toThrow(
        expect.objectContaining({ code: "overloaded" }),
      );
    }
    expect(tickets.issue(user("ada")).ticket).toHaveLength(64);
    await ask({ ...headed({}), ticket: own[0] });
    expect(tickets.issue(user("eve")).ticket).toHaveLength(64);
  });

  test("of a user of all tenants counts for that user, whichever tenant it names", () => {
    const { tickets } = authenticator({});
    const naming = (tenant: string): Caller => ({
      kind: "user",
      tenant,
      allTenants: true,
      user: "eve",
      verbs: new Set(),
    });
    for (let n = 0; n < 100; n++) tickets.issue(naming(`t${n}`));
    expect(() => tickets.issue(naming("t100"))).toThrow(
      expect.objectContaining({ code: "overloaded" }),
    );
  });

  test("of one key leaves those of the others alone, whichever users it names", () => {
    const { tickets } = authenticator({});
    const program = (keyId: string, user?: string): Caller => ({
      kind: "server",
      tenant: "t",
      keyId,
      ...(user !== undefined && { user }),
      verbs: new Set(),
    });
    const overloaded = expect.objectContaining({ code: "overloaded" });
    for (let n = 0; n < 10_000; n++) tickets.issue(program("0", `u${n % 5_000}`));
    expect(() => tickets.issue(program("0"))).toThrow(overloaded);
    expect(() => tickets.issue(program("0", "another"))).toThrow(overloaded);
    for (let n = 0; n < 100; n++) tickets.issue(program("1", "u1"));
    expect(() => tickets.issue(program("1", "u1"))).toThrow(overloaded);
    expect(tickets.issue(program("1")).ticket).toHaveLength(64);
  });
});

describe("without credentials", () => {
  const local = { host: "localhost:8080" };

  test("a program on this machine is its administrator, and may name the user it acts for", async () => {
    const found = await caller({}, { ...local, "flotilla-tenant": "acme" }, { user: "ada" });
    expect(found).toMatchObject({ kind: "local", tenant: "acme", user: "ada" });
    expect(may(found, "admin")).toBe(true);
  });

  test.each([
    "forwarded",
    "via",
    "x-forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-anything-else",
    "x-real-ip",
  ])("what a proxy passes on isn't from this machine: %s", async (name) => {
    await expect(caller({}, { ...local, [name]: "203.0.113.7" })).rejects.toMatchObject({
      code: "forbidden",
      message: expect.stringContaining(name),
    });
  });

  test("pages of other sites aren't, unless they are named", async () => {
    const page = { ...local, origin: "http://localhost:3000" };
    await expect(caller({}, page)).rejects.toMatchObject({ code: "forbidden" });
    expect(await caller({ origins: ["http://localhost:3000"] }, page)).toMatchObject({
      kind: "local",
    });
  });
});
