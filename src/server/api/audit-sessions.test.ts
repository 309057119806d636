import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inHandler } from "../../audit/contract/harness.ts";
import { markFull } from "../../audit/sql.ts";
import { openStore } from "../../store/open.ts";
import { startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const key = "a-key-of-16-chars-or-more";
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  server = await startTestServer({
    server: { tokens: { secret }, apiKeys: [{ key, name: "ops" }] },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = async (bearer: string, method: string, path: string, body?: unknown) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${bearer}`,
      ...(body !== undefined && { "Content-Type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
};
const asOps = (method: string, path: string, body?: unknown) => ask(key, method, path, body);
const tokenOf = (user: string, verbs: readonly string[]) =>
  new SignJWT({ sub: user, tenant: "default", verbs })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
const made = async () => {
  const { body } = await asOps("POST", "/v1/sessions", { users: ["ada"] });
  return String(body["sessionId"]);
};
const entriesOf = async (subject: string) =>
  (await server.flotilla.audit.list({ subject })).entries.toReversed();

describe("acts on sessions", () => {
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
