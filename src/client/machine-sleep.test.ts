import { describe, expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { createClient } from "./index.ts";
import { simulateServer } from "./contract/simulated-server.ts";

const maxSent = 50;

/** A client that follows something on a simulated server, with what it has sent. */
async function following(expiresInMs?: number) {
  const clock = movableClock();
  const server = simulateServer({ clock, random: seededRandom(1) });
  server.expiresInMs = expiresInMs;
  const sent: string[] = [];
  class Noted extends server.WebSocket {
    override send(text: string) {
      sent.push((JSON.parse(text) as { type: string }).type);
      // One that never comes to an end would keep the test from it, too.
      if (sent.length === maxSent) client.close();
      super.send(text);
    }
  }
  const client = createClient({
    url: "http://sim",
    WebSocket: Noted,
    fetch: server.fetch,
    clock,
    random: seededRandom(2),
    network: { isOnline: () => true, onChange: () => () => {} },
    token: () => "a token",
  });
  const leave = client.session("a").subscribe(() => {});
  await clock.advance(2_000);
  sent.length = 0;
  return { clock, server, client, sent, leave };
}

describe("a client whose machine slept past what it had to do", () => {
  test("pings once, and then renews its token", async () => {
    const { clock, client, sent } = await following(600_000);
    expect(client.connection.get().status).toBe("open");
    clock.jump(3_600_000);
    await clock.advance(1_000);
    expect(sent).toEqual(["ping", "token"]);
    client.close();
  });

  test("ends a connection that is no longer wanted", async () => {
    const { clock, client, sent, leave } = await following();
    leave();
    await clock.advance(4_000);
    expect(client.connection.get().status).toBe("open");
    clock.jump(3_600_000);
    await clock.advance(10_000);
    expect(client.connection.get().status).toBe("idle");
    expect(sent.length).toBeLessThan(maxSent);
    client.close();
  });
});
