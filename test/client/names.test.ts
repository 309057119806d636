import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { createClient } from "../../src/client/index.ts";
import { startTestServer } from "../../src/server/contract/test-server.ts";

const key = "a-key-of-16-chars-or-more";
const names = ["ada@example.org", "Ada Lovelace", "Zoë 🚢", "50% %41 a/b?c&d", "日本"];

let open: Awaited<ReturnType<typeof startTestServer>>;
let keyed: Awaited<ReturnType<typeof startTestServer>>;
beforeAll(async () => {
  open = await startTestServer();
  keyed = await startTestServer({ server: { apiKeys: [key] } });
});
afterAll(async () => {
  await open[Symbol.asyncDispose]();
  await keyed[Symbol.asyncDispose]();
});

describe.each(names)("a user called %s", (user) => {
  test.each(["a server without keys", "a key", "a key of a tenant of that name"])(
    "is that over HTTP and the socket alike: %s",
    async (way) => {
      const server = way === "a server without keys" ? open : keyed;
      const tenant = way.endsWith("name") ? user : "default";
      const client = createClient({
        url: server.url,
        user,
        ...(server === keyed && { token: key }),
        ...(tenant !== "default" && { tenant }),
      });
      const { sessionId, users } = await client.sessions.create();
      expect(users).toEqual([user]);
      await client.session(sessionId).send("hello");
      const { entries } = await client.sessions.entries(sessionId);
      expect(entries).toMatchObject([{ author: user }]);
      expect(client.connection.get()).toMatchObject({ status: "open", user, tenant });
      const inbox = client.inbox();
      inbox.subscribe(() => {});
      const mine = await until("the inbox", () =>
        inbox.get().sessions.find((each) => each.sessionId === sessionId),
      );
      expect(mine).toMatchObject({ sessionId });
      expect(await server.sessions.get(tenant, sessionId)).toMatchObject({ users: [user] });
      client.close();
    },
  );
});
