import { describe, expect, test } from "vitest";
import { checkServer, type ServerConfig } from "./server-config.ts";

const key = "a-key-of-16-chars-or-more";
const hash = `sha256:${"ab".repeat(32)}`;
const secret = "a secret of thirty-two characters or more";

describe("the server's options in a config", () => {
  test.each<ServerConfig>([
    {},
    { apiKeys: [key, hash, { key, name: "shop", tenant: "acme" }, { hash, admin: true }] },
    { apiKeys: [{ key, verbs: ["sessions:read"] }] },
    { apiKeys: [{ key, role: "viewer", verbs: ["payloads:read"], tenant: "acme" }] },
    { apiKeys: [{ key, role: "admin" }], login: () => null },
    { tokens: { secret, claims: { role: "role" } } },
    { keys: "store" },
    { tokens: { secret } },
    { tokens: { secret, algorithms: ["HS512"], claims: { user: "email" } } },
    { tokens: { jwksUrl: "https://id.example/jwks.json", algorithms: ["ES256"] } },
    { tokens: { jwksUrl: "http://127.0.0.1:9000/keys" } },
    { tokens: { jwksUrl: "http://localhost/keys" } },
    { tokens: { jwks: { keys: [] }, issuer: "x", audience: "y" } },
    { origins: ["https://app.example.com", "http://localhost:3000"] },
    { pages: { "/chat": "web/dist", "/desk/inbox": "/srv/inbox" } },
    { dashboard: false },
    { maxConnections: 1_000_000, socketBufferBytes: 65_536, framesPerSecond: 1 },
  ])("may be %j", (server) => {
    expect(() => checkServer(server)).not.toThrow();
  });

  test.each<[unknown, string]>([
    [{ apiKey: [key] }, "did you mean `apiKeys`?"],
    [{ apiKeys: ["short"] }, "at least 16 characters"],
    [{ apiKeys: ["sha256:nonsense-and-more"] }, "64 hexadecimal digits"],
    [{ apiKeys: [{ hash: "nonsense" }] }, "64 hexadecimal digits"],
    [{ apiKeys: [{}] }, "a `key` or its `hash`"],
    [{ apiKeys: [{ key, hash }] }, "not both"],
    [{ apiKeys: [{ key, verbs: ["fly"] }] }, "must be one of sessions:read"],
    [{ apiKeys: [{ key, tennant: "acme" }] }, "did you mean `tenant`?"],
    [{ apiKeys: [{ key, tenant: "" }] }, "a tenant must be"],
    [{ apiKeys: [{ key, role: "root" }] }, "a role must be one of viewer, operator, admin"],
    [{ apiKeys: [{ key, role: "constructor" }] }, "must be one of viewer, operator, admin"],
    [{ apiKeys: [{ key, role: "admin", tenant: "acme" }] }, "acts for all tenants"],
    [{ apiKeys: [{ key, role: "viewer", admin: true }] }, "viewer or an administrator"],
    [{ apiKeys: [{ key, role: "operator", verbs: ["admin"] }] }, "operator or an administrator"],
    [{ login: { user: "ada" } }, "server.login must be a function"],
    [{ keys: "config" }, "server.keys must be one of store"],
    [{ keys: true }, "server.keys must be one of store"],
    [{ tokens: {} }, "one of `secret`, `jwks` and `jwksUrl`"],
    [{ tokens: { secret, jwksUrl: "https://x" } }, "one of `secret`, `jwks` and `jwksUrl`"],
    [{ tokens: { secret: "short" } }, "at least 32 characters"],
    [{ tokens: { secret, algorithms: ["RS256"] } }, "must be one of HS256"],
    [{ tokens: { secret, algorithms: ["none"] } }, "must be one of HS256"],
    [{ tokens: { secret, algorithms: [] } }, "must name at least one"],
    [{ tokens: { jwks: { keys: [] }, algorithms: ["HS256"] } }, "must be one of RS256"],
    [{ apiKeys: [{ key, tenant: "acme", admin: true }] }, "acts for all tenants"],
    [{ apiKeys: [{ key, tenant: "acme", verbs: ["admin"] }] }, "acts for all tenants"],
    [{ tokens: { secret, claims: { usr: "x" } } }, "did you mean `user`?"],
    [{ origins: ["app.example.com"] }, "isn't an origin"],
    [{ origins: ["https://app.example.com/"] }, "isn't an origin"],
    [{ origins: ["*"] }, "isn't an origin"],
    [{ pages: { chat: "web/dist" } }, "isn't a path like /chat"],
    [{ pages: { "/chat/": "web/dist" } }, "isn't a path like /chat"],
    [{ pages: { "/:chat": "web/dist" } }, "isn't a path like /chat"],
    [{ pages: { "/v1/chat": "web/dist" } }, "the server's own routes"],
    [{ pages: { "/health": "web/dist" } }, "the server's own routes"],
    [{ pages: { "/sign-in": "web/dist" } }, "the server's own routes"],
    [{ pages: { "/chat": "" } }, "must be mapped to the path of a folder"],
    [{ pages: { "/@dashboard": "web/dist" } }, "isn't a path like /chat"],
    [{ dashboard: true }, "server.dashboard can only be false"],
    [{ maxConnections: 0 }, "from 1 to"],
    [{ socketBufferBytes: 1 }, "from 65536 to"],
    [{ framesPerSecond: 0 }, "from 1 to"],
  ])("may not be %j: %s", (server, message) => {
    expect(() => checkServer(server as ServerConfig)).toThrow(message);
  });

  test.each([
    "file:///keys",
    "http://id.example/keys",
    "http://127.evil.example/keys",
    "http://localhost@id.example/keys",
  ])("takes no keys of tokens that may be changed on their way: %s", (jwksUrl) => {
    expect(() => checkServer({ tokens: { jwksUrl } })).toThrow("https://");
  });
});
