import { describe, expect, test } from "vitest";
import { systemClock } from "../../../base/clock.ts";
import { createAuthenticator } from "../../auth/authenticate.ts";
import { appHarness, openTestStore } from "../../contract/app-harness.ts";

const { flotilla } = openTestStore();
const { get, post, send } = appHarness(flotilla);

describe("keys over HTTP", () => {
  test("are made, listed, rotated and revoked", async () => {
    const body = { name: "ci", role: "operator", tenant: "acme", payloads: true };
    const made = await post("/v1/keys", body);
    expect(made).toMatchObject({
      status: 201,
      body: {
        key: { ...body, status: "active", createdBy: "local" },
        text: expect.stringMatching(/^fl_/),
      },
    });
    const { keyId } = made.body.key;
    const listed = await get("/v1/keys");
    expect(listed).toMatchObject({ status: 200, body: { keys: [made.body.key], next: null } });
    expect(JSON.stringify(listed.body)).not.toContain(made.body.text);
    const rotated = await post(`/v1/keys/${keyId}/rotate`, { overlapMs: 60_000 });
    expect(rotated).toMatchObject({
      status: 201,
      body: { key: { name: "ci" }, replaced: { keyId, replacedBy: rotated.body.key.keyId } },
    });
    expect(await post(`/v1/keys/${keyId}/rotate`)).toMatchObject({ status: 409 });
    expect(await send("DELETE", `/v1/keys/${rotated.body.key.keyId}`)).toMatchObject({
      status: 200,
      body: { key: { status: "revoked" } },
    });
    const pages = [await get("/v1/keys?limit=1")];
    pages.push(await get(`/v1/keys?limit=1&cursor=${pages[0]!.body.next}`));
    expect(pages.map((page) => page.body.keys[0].status)).toEqual(["revoked", "active"]);
  });

  test.each([
    [{}],
    [{ name: "ci" }],
    [{ name: "ci", role: "root" }],
    [{ name: "ci", role: "admin", tenant: "acme" }],
    [{ name: "ci", role: "viewer", expiresAtMs: 1 }],
    [{ name: "ci", role: "viewer", by: "eve" }],
    [{ name: "ci", role: "viewer", within: { verbs: ["admin"], payloads: true } }],
    [{ name: "", role: "viewer" }],
  ])("are refused with %j", async (body) => {
    expect((await post("/v1/keys", body)).status).toBe(400);
    expect((await get("/v1/keys")).body.keys).toEqual([]);
  });

  test("that aren't there are not found", async () => {
    expect(await send("DELETE", "/v1/keys/none")).toMatchObject({ status: 404 });
    expect(await post("/v1/keys/none/rotate")).toMatchObject({ status: 404 });
  });

  test("make none that may do more than themselves, and are named as the makers", async () => {
    const { text } = await flotilla.keys.create({ name: "root", role: "admin" });
    const { key: seeing } = await flotilla.keys.create({
      name: "seeing",
      role: "viewer",
      payloads: true,
    });
    const credentials = flotilla.credentials;
    const authenticator = createAuthenticator(
      { apiKeys: [], keys: "store" },
      { clock: systemClock, credentials },
    );
    const app = appHarness(flotilla, { authenticator });
    const own = { Authorization: `Bearer ${text}` };
    const plain = await app.post("/v1/keys", { name: "ci", role: "admin" }, own);
    expect(plain).toMatchObject({ status: 201, body: { key: { createdBy: "root" } } });
    const { text: lesser } = await flotilla.keys.create({ name: "lesser", role: "operator" });
    const ofLesser = { Authorization: `Bearer ${lesser}` };
    const more = { name: "ci", role: "viewer", payloads: true };
    expect(await app.post("/v1/keys", more, ofLesser)).toMatchObject({ status: 403 });
    const rotated = await app.post(`/v1/keys/${seeing.keyId}/rotate`, {}, ofLesser);
    expect(rotated).toMatchObject({ status: 403, body: { error: { code: "forbidden" } } });
  });
});

describe("tokens over HTTP", () => {
  test("are revoked by their id or by their user, and listed", async () => {
    const expiresAtMs = Date.now() + 60_000;
    const one = await post("/v1/tokens/revocations", { jti: "one", expiresAtMs });
    expect(one).toMatchObject({
      status: 201,
      body: { revocation: { jti: "one", expiresAtMs, createdBy: "local" } },
    });
    const tenant = { "Flotilla-Tenant": "acme" };
    const user = await post("/v1/tokens/revocations", { user: "ada" }, tenant);
    expect(user.body.revocation).toMatchObject({ user: "ada", tenant: "acme" });
    expect((await get("/v1/tokens/revocations")).body).toEqual({
      revocations: [one.body.revocation, user.body.revocation],
      next: null,
    });
  });

  test.each([
    [{}],
    [{ jti: "one", user: "ada" }],
    [{ jti: "one", tenant: "acme" }],
    [{ jti: "one", expiresAtMs: 1 }],
    [{ user: "" }],
  ])("are not revoked with %j", async (body) => {
    expect((await post("/v1/tokens/revocations", body)).status).toBe(400);
    expect((await get("/v1/tokens/revocations")).body.revocations).toEqual([]);
  });
});
