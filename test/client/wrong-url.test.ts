import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { type Client, createClient } from "../../src/client/index.ts";
import { startTestServer } from "../../src/server/contract/test-server.ts";

const servers: Server[] = [];
const clients: Client[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** Some other program, which answers everything alike. */
const stranger = async (status: number, body: string): Promise<string> => {
  const server = createServer((_, answer) => answer.writeHead(status).end(body));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
};
/** Waits as briefly as chance may have it. */
const connecting = (url: string) => {
  const client = createClient({ url, user: "ada", random: { uint32: () => 0 } });
  clients.push(client);
  const sent = client.session("s").send("hello");
  sent.catch(() => {});
  return { client, sent };
};

describe("a url at which there is no Flotilla", () => {
  test.each([
    [404, "<h1>not found</h1>"],
    [404, '{"error":"not found"}'],
    [200, "<h1>an app for every path</h1>"],
  ])("is refused, and what waited with it: %i %s", async (status, body) => {
    const { client, sent } = connecting(await stranger(status, body));
    const error = { code: "invalid_option", message: expect.stringMatching(/^wrong url: .*v1/) };
    await expect(sent).rejects.toMatchObject(error);
    expect(client.connection.get()).toMatchObject({ status: "refused", error });
  });

  test("is refused where only its path is wrong, and found once that is right", async () => {
    await using server = await startTestServer();
    const { client, sent } = connecting(`${server.url}/wrong`);
    const message = expect.stringContaining("there is no route GET /wrong/v1/sessions");
    await expect(sent).rejects.toMatchObject({ code: "invalid_option", message });
    expect(client.connection.get().status).toBe("refused");
    const right = connecting(server.url);
    await expect(right.sent).rejects.toMatchObject({ code: "not_found" });
    expect(right.client.connection.get().status).toBe("open");
  });

  test("isn't taken for one where a server may come back", async () => {
    const { client } = connecting(await stranger(503, "<h1>back soon</h1>"));
    const state = client.connection;
    await until("many tries", () => {
      const now = state.get();
      return now.status === "waiting" && now.attempt > 12;
    });
    expect(state.get()).toMatchObject({ error: { message: expect.stringContaining("503") } });
  });
});
