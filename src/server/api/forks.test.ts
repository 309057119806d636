import { SignJWT } from "jose";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createClient } from "../../client/client.ts";
import { textMessage, startTestServer } from "../contract/test-server.ts";

const secret = "a secret of thirty-two characters or more";
const verbs = ["sessions:read", "sessions:write", "sessions:create"];
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  server = await startTestServer({
    use: [],
    server: { tokens: { secret }, origins: ["https://app.example"] },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

const clientOf = async (user: string) =>
  createClient({ url: server.url, token: await tokenOf(user) });

/** A session of three messages, of ada and bob. */
async function talked(sessionId: string): Promise<void> {
  await server.sessions.create("acme", { sessionId, users: ["ada", "bob"] });
  for (const id of ["one", "two", "three"]) {
    await server.sessions.send("acme", sessionId, { ...textMessage(id), id, author: "ada" });
  }
}

test("a member of a session forks it, is the member of the fork, and follows one log", async () => {
  await talked("p");
  const bob = await clientOf("bob");
  const fork = await bob.sessions.fork("p", { id: "f", atSeq: 2 });
  expect(fork).toMatchObject({
    users: ["bob"],
    parent: { sessionId: "p", atSeq: 2 },
    lastSeq: 2,
  });
  expect(await bob.sessions.fork("p", { id: "f", atSeq: 2 })).toEqual(fork);
  const session = bob.session("f");
  const leave = session.subscribe(() => {});
  await session.send("on", { id: "four" });
  await expect
    .poll(() => session.get().messages.map(({ id }) => id))
    .toEqual(["one", "two", "four"]);
  leave();
  const { entries } = await bob.sessions.entries("f");
  expect(entries.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  const exported = await fetch(`${server.url}/v1/sessions/f/export`, {
    headers: { Authorization: `Bearer ${await tokenOf("bob")}` },
  });
  // The session, and three entries.
  expect((await exported.text()).trim().split("\n")).toHaveLength(4);
  bob.close();
});

test("others neither fork it nor see its forks, and members see those that they are in", async () => {
  await talked("q");
  const [ada, bob, eve] = [await clientOf("ada"), await clientOf("bob"), await clientOf("eve")];
  await expect(eve.sessions.fork("q", { atSeq: 1 })).rejects.toMatchObject({ code: "not_found" });
  await expect(eve.sessions.forks("q")).rejects.toMatchObject({ code: "not_found" });
  await ada.sessions.fork("q", { id: "of-ada", atSeq: 1 });
  expect((await ada.sessions.forks("q")).forks).toMatchObject([{ sessionId: "of-ada" }]);
  expect(await bob.sessions.forks("q")).toEqual({ forks: [], next: null });
  // Another's fork has its id, which says no more than that.
  const taken = bob.sessions.fork("q", { id: "of-ada", atSeq: 1 });
  await expect(taken).rejects.toMatchObject({ code: "conflict" });
  const none = ada.sessions.fork("q", { atSeq: 9 });
  await expect(none).rejects.toThrow("the session has 3 entries");
  for (const client of [ada, bob, eve]) client.close();
});

test("an edit says a message anew in a fork, once for its id", async () => {
  await talked("r");
  const bob = await clientOf("bob");
  const edited = await bob.sessions.edit("r", "two", "deux", { id: "e" });
  expect(edited).toMatchObject({ seq: 2, duplicate: false, session: { sessionId: "e" } });
  expect(await bob.sessions.edit("r", "two", "deux", { id: "e" })).toMatchObject({
    seq: 2,
    duplicate: true,
  });
  const { entries } = await bob.sessions.entries("e");
  expect(entries).toMatchObject([
    { messageId: "one", author: "ada" },
    { messageId: "two", author: "bob", parts: [{ text: "deux" }] },
  ]);
  bob.close();
});

async function tokenOf(user: string): Promise<string> {
  return new SignJWT({ sub: user, tenant: "acme", verbs })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime("5m")
    .sign(new TextEncoder().encode(secret));
}
