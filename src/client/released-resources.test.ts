import { beforeAll, describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { simulatedClient } from "./contract/simulated-client.ts";
import { simulateServer } from "./contract/simulated-server.ts";
import { errorFromWire } from "./http.ts";
import { createClient, type SessionEvent } from "./index.ts";
import { createListenerSet } from "./observable.ts";
import type { SocketLike } from "./options.ts";
import { readEvents } from "./session/reader.ts";
import { loadLazyModule } from "./session/view.ts";

// Loaded beside, which takes a time that the clock of a test doesn't know.
beforeAll(() => loadLazyModule());

function simulated(token: () => string | Promise<string> = () => "a token") {
  const clock = movableClock();
  const server = simulateServer({ clock, random: seededRandom(1) });
  const sockets: SocketLike[] = [];
  const asked: string[] = [];
  const heard: string[] = [];
  class Noted extends server.WebSocket {
    constructor(...args: [string, string[]]) {
      super(...args);
      sockets.push(this);
    }
  }
  const client = createClient({
    url: "http://sim",
    WebSocket: Noted,
    fetch: (url) => {
      asked.push(url);
      return server.fetch(url);
    },
    clock,
    random: seededRandom(2),
    network: {
      isOnline: () => true,
      onChange() {
        heard.push("network");
        return () => heard.pop();
      },
    },
    token,
  });
  return { clock, server, client, sockets, asked, heard };
}

describe("a client", () => {
  test("opens nothing with a token that came when it had given up", async () => {
    const slow = Promise.withResolvers<string>();
    const { clock, client, sockets } = simulated(() => slow.promise);
    client.session("a").subscribe(() => {});
    await clock.advance(10_000);
    expect(client.connection.get().status).toBe("waiting");
    slow.resolve("a-token");
    await eventLoopTurns();
    client.close();
    await clock.advance(60_000);
    expect(sockets).toEqual([]);
  });

  test("opens nothing with a ticket that came when it had given up", async () => {
    const slow = Promise.withResolvers<Response>();
    const token = "no subprotocol carries this";
    const { clock, client, sockets } = simulatedClient({ token, fetch: () => slow.promise });
    client.session("a").subscribe(() => {});
    await clock.advance(10_000);
    expect(client.connection.get().status).toBe("waiting");
    slow.resolve(Response.json({ ticket: "t" }));
    await eventLoopTurns();
    client.close();
    await clock.advance(60_000);
    expect(sockets).toEqual([]);
  });

  test("has no timer and no socket left when it is closed", async () => {
    const { clock, server, client, sockets } = simulated();
    const leave = client.session("a").subscribe(() => {});
    const [task, other] = [client.tasks.watch("t"), client.tasks.watch("u")];
    const leaveTask = task.subscribe(() => {});
    const leaveOther = other.subscribe(() => {});
    const leaveInbox = client.inbox().subscribe(() => {});
    void client.session("b").send("hello");
    const events = client.session("b").events();
    const first = events.next();
    await clock.advance(2_000);
    expect(await first).toMatchObject({ value: { type: "joined" } });
    leave();
    leaveTask();
    client.close();
    while (!(await events.next()).done);
    leaveInbox();
    leaveOther();
    // At once, since a process doesn't end before its timers.
    expect(clock.timers).toBe(0);
    await clock.advance(5_000);
    expect([clock.timers, server.connections]).toEqual([0, 0]);
    expect(sockets.map(({ readyState }) => readyState)).toEqual([3]);
  });

  test("that is closed polls nothing, and listens to no network events", async () => {
    const { clock, client, asked, heard } = simulated();
    client.close();
    const task = client.tasks.watch("t");
    task.subscribe(() => {});
    client.session("a").subscribe(() => {});
    await clock.advance(60_000);
    expect(task.get()).toMatchObject({ status: "gone", error: { code: "closed" } });
    expect(client.session("a").get()).toMatchObject({ status: "gone", error: { code: "closed" } });
    expect([asked, heard, clock.timers]).toEqual([[], [], 0]);
  });

  test("shows no user the inbox of another", async () => {
    const { clock, server, client } = simulated();
    const seen: unknown[] = [];
    const inbox = client.inbox();
    inbox.subscribe(() => seen.push([inbox.get().status, inbox.get().sessions.length]));
    await clock.advance(2_000);
    expect(seen.at(-1)).toEqual(["live", 1]);
    server.user = "bob";
    seen.length = 0;
    server.end(1001);
    await clock.advance(5_000);
    expect(seen).toContainEqual(["joining", 0]);
    expect(seen).not.toContainEqual(["joining", 1]);
    expect(seen.at(-1)).toEqual(["live", 1]);
    client.close();
  });

  test("doesn't follow for a reader that was already notified that the session is gone", async () => {
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

  test("that leaves off reading follows no longer, also while it waits for what comes", async () => {
    const listeners = createListenerSet<[SessionEvent]>();
    const events = readEvents({ replay: () => [], on: listeners.add }, {}, errorFromWire);
    const waiting = events.next();
    expect(listeners.size).toBe(1);
    expect(await events.return!()).toEqual({ done: true, value: undefined });
    expect(await waiting).toEqual({ done: true, value: undefined });
    expect(listeners.size).toBe(0);
  });
});
