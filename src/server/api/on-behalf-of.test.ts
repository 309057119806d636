import { expect, test } from "vitest";
import { startTestServer } from "../contract/test-server.ts";

test("a session that a program makes for a user is in that user's inbox", async () => {
  await using server = await startTestServer();
  const ask = async (path: string, init: RequestInit = {}) => {
    const headers = { "content-type": "application/json", "flotilla-user": "ada" };
    // oxlint-disable-next-line typescript/no-explicit-any
    return (await (await fetch(`${server.url}${path}`, { ...init, headers })).json()) as any;
  };
  const make = (body: object) =>
    ask("/v1/sessions", { method: "POST", body: JSON.stringify(body) });
  expect((await make({ sessionId: "s-1" })).users).toEqual(["ada"]);
  expect((await make({ sessionId: "s-2", users: ["bob", "ada"] })).users).toEqual(["ada", "bob"]);
  const listed = await ask("/v1/sessions?user=ada");
  const ids = listed.sessions.map(({ sessionId }: { sessionId: string }) => sessionId);
  expect(ids.sort()).toEqual(["s-1", "s-2"]);
});
