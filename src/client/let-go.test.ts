import { describe, expect, test } from "vitest";
import { movableClock, turns } from "../base/movable-clock.contract.ts";
import { seededRandom } from "../base/random.ts";
import type { SocketLike } from "./options.ts";
import { createClient } from "./index.ts";
import { simulate } from "./simulated.contract.ts";

function simulated(token: () => string | Promise<string> = () => "a token") {
  const clock = movableClock();
  const server = simulate({ clock, random: seededRandom(1) });
  const sockets: SocketLike[] = [];
  class Noted extends server.WebSocket {
    constructor(...args: [string, string[]]) {
      super(...args);
      sockets.push(this);
    }
  }
  const client = createClient({
    url: "http://sim",
    WebSocket: Noted,
    fetch: server.fetch,
    clock,
    random: seededRandom(2),
    network: { isOnline: () => true, onChange: () => () => {} },
    token,
  });
  return { clock, server, client, sockets };
}

describe("a client", () => {
  test("opens nothing with a token that came when it had given up", async () => {
    const slow = Promise.withResolvers<string>();
    const { clock, client, sockets } = simulated(() => slow.promise);
    client.session("a").subscribe(() => {});
    await clock.advance(10_000);
    expect(client.connection.get().status).toBe("waiting");
    slow.resolve("a token");
    await turns();
    client.close();
    await clock.advance(60_000);
    expect(sockets).toEqual([]);
  });

  test("has no timer and no socket left when it is closed", async () => {
    const { clock, server, client, sockets } = simulated();
    const leave = client.session("a").subscribe(() => {});
    client.inbox().subscribe(() => {});
    void client.session("b").send("hello");
    await clock.advance(2_000);
    leave();
    client.close();
    await clock.advance(5_000);
    expect([clock.timers, server.connections]).toEqual([0, 0]);
    expect(sockets.map(({ readyState }) => readyState)).toEqual([3]);
  });

  test("doesn't follow for a reader whom it told already that the session is gone", async () => {
    const { clock, server, client } = simulated();
    const session = client.session("a");
    const leave = session.subscribe(() => {});
    await clock.advance(2_000);
    server.remove("a");
    await clock.advance(2_000);
    expect(session.get().status).toBe("gone");
    const seen: string[] = [];
    for await (const { type } of session.events()) seen.push(type);
    expect(seen).toEqual(["gone"]);
    leave();
    await clock.advance(20_000);
    expect(session.get().status).toBe("idle");
    expect(client.connection.get().status).toBe("idle");
    client.close();
  });
});
