import { expect, test } from "vitest";
import { dial, startTestServer, textMessage } from "../contract/test-server.ts";

test("entries that come before it is known who reads them wait, and are shown as that reader may see them", async () => {
  const known = Promise.withResolvers<void>();
  await using server = await startTestServer({
    sessions: (real) => ({
      ...real,
      async get(...given) {
        await known.promise;
        return real.get(...given);
      },
    }),
  });
  const secret = "sk-4f9a8b7c6d5e4f3a2b1c";
  await server.sessions.create("default", { sessionId: "s", users: ["ada"] });
  const { parts } = textMessage(`my key is ${secret}`);
  await server.sessions.send("default", "s", { author: "ada", role: "user", parts });

  const [member, other] = await Promise.all(
    ["ada", "eve"].map((user) => dial(`${server.socketUrl}?user=${user}`)),
  );
  for (const client of [member!, other!]) {
    const joined = await client.request({ type: "join", session: "s", lastSeq: 0 });
    expect(joined.type).toBe("joined");
    await client.request({ type: "ping" });
    expect(client.seqs("s")).toEqual([]);
  }
  known.resolve();
  expect(JSON.stringify(await member!.find("entries"))).toContain(secret);
  const seen = JSON.stringify(await other!.find("entries"));
  expect(seen).toContain("my key is [redacted]");
  for (const client of [member!, other!]) client.close();
});
