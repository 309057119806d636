import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { between, seededRandom } from "../base/random.ts";
import { viewOf } from "../protocol/view.ts";
import { createClient } from "./index.ts";
import { calm } from "./contract/simulated-network.ts";
import { simulateServer } from "./contract/simulated-server.ts";

/** A client of a server that has no session `a`. */
function simulated(seed = 1) {
  const clock = movableClock();
  const server = simulateServer({ clock, random: seededRandom(seed) });
  server.remove("a");
  const joinedAtMs: number[] = [];
  class Noted extends server.WebSocket {
    override send(text: string) {
      if ((JSON.parse(text) as { type: string }).type === "join") joinedAtMs.push(clock.now());
      super.send(text);
    }
  }
  const client = createClient({
    url: "http://sim",
    WebSocket: Noted,
    fetch: server.fetch,
    clock,
    random: seededRandom(seed + 1),
    network: { isOnline: () => true, onChange: () => () => {} },
  });
  return { clock, server, client, joinedAtMs, session: client.session("a") };
}

describe("a session that isn't there", () => {
  test("is shown once another client has made it, to every client that holds it open", async () => {
    const { clock, server, client, session } = simulated();
    const seen: string[] = [];
    session.on(({ type }) => seen.push(type));
    await clock.advance(60_000);
    expect(session.get()).toMatchObject({ status: "gone", error: { code: "not_found" } });
    server.make("a");
    server.write("a", "hello");
    await clock.advance(11_000);
    expect(session.get()).toMatchObject({ status: "live", messages: [{ id: "hello" }] });
    expect(session.get().error).toBeUndefined();
    expect(seen).toEqual(["gone", "joined", "entry"]);
    client.close();
  });

  test("is polled without notifying subscribers, until it is there", async () => {
    const { clock, client, joinedAtMs, session } = simulated();
    await clock.advance(1_000);
    let changes = 0;
    session.subscribe(() => changes++);
    await clock.advance(5_000);
    const [snapshot, before] = [session.get(), changes];
    expect(snapshot.status).toBe("gone");
    const joins = joinedAtMs.length;
    await clock.advance(60_000);
    expect(joinedAtMs.length).toBeGreaterThan(joins + 3);
    expect(session.get()).toBe(snapshot);
    expect(changes).toBe(before);
    client.close();
  });

  test("is polled after a second, and later at intervals of up to ten seconds", async () => {
    const { clock, client, joinedAtMs, session } = simulated();
    session.subscribe(() => {});
    await clock.advance(600_000);
    const gapsMs = joinedAtMs.slice(1).map((atMs, at) => atMs - joinedAtMs[at]!);
    // What is asked takes up to 0.4 seconds to be answered.
    expect(gapsMs[0]).toBeLessThan(1_500);
    expect(Math.min(...gapsMs)).toBeGreaterThanOrEqual(1_000);
    expect(Math.max(...gapsMs)).toBeLessThan(10_500);
    expect(Math.max(...gapsMs)).toBeGreaterThan(8_000);
    expect(gapsMs.length).toBeLessThan(150);
    // Not all who wait ask at the same moment.
    expect(new Set(gapsMs.slice(10)).size).toBeGreaterThan(gapsMs.length / 2);
    client.close();
  });

  test("is read at once when the inbox names it", async () => {
    const { clock, server, client, session } = simulated();
    client.inbox().subscribe(() => {});
    session.subscribe(() => {});
    // Long enough for looks to be seconds apart.
    await clock.advance(120_000);
    expect(session.get().status).toBe("gone");
    server.make("a", { isReported: true });
    await clock.advance(900);
    expect(session.get().status).toBe("live");
    client.close();
  });

  test("isn't polled after it was unsubscribed, nor without a connection", async () => {
    const { clock, server, client, joinedAtMs, session } = simulated();
    const leave = session.subscribe(() => {});
    client.session("b").subscribe(() => {});
    await clock.advance(20_000);
    server.isUp = false;
    server.end(1001);
    await clock.advance(1_000);
    let before = joinedAtMs.length;
    await clock.advance(60_000);
    expect(joinedAtMs.length).toBe(before);
    server.isUp = true;
    await clock.advance(30_000);
    // Both are asked for again on the new connection, and the one that is missing then as before.
    expect(joinedAtMs.length).toBeGreaterThan(before + 2);
    leave();
    await clock.advance(4_000);
    expect(session.get()).toMatchObject({ status: "idle" });
    expect(session.get().error).toBeUndefined();
    before = joinedAtMs.length;
    await clock.advance(60_000);
    expect(joinedAtMs.length).toBe(before);
    client.close();
  });

  test("leaves no timer behind when the client is closed", async () => {
    const { clock, client, session } = simulated();
    session.subscribe(() => {});
    for (let n = 0; n < 300 && session.get().status !== "gone"; n++) await clock.advance(10);
    client.close();
    expect(session.get()).toMatchObject({ status: "gone", error: { code: "closed" } });
    expect(clock.timers).toBe(0);
  });

  test("that was deleted and created again is another, and shown from its first entry", async () => {
    const { clock, server, client, session } = simulated();
    server.make("a");
    for (const id of ["one", "two"]) server.write("a", id);
    session.subscribe(() => {});
    await clock.advance(2_000);
    expect(session.get()).toMatchObject({ status: "live", lastSeq: 2 });
    server.remove("a");
    await clock.advance(5_000);
    expect(session.get().status).toBe("gone");
    server.make("a");
    for (const id of ["three", "four"]) server.write("a", id);
    await clock.advance(11_000);
    expect(session.get().messages).toEqual(viewOf(server.log("a")));
    client.close();
  });

  test("is shown like its log however often it comes and goes, and connections with it", async () => {
    await fc.assert(fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 31 }), comesAndGoes), {
      numRuns: 40,
      endOnFailure: true,
    });
  });
});

async function comesAndGoes(seed: number): Promise<void> {
  const { clock, server, client, joinedAtMs, session } = simulated(seed);
  const random = seededRandom(seed + 2);
  server.faults = { ...calm, cut: 0.02, refused: 0.1 };
  let said = 0;
  let isThere = false;
  let leave = session.subscribe(() => {});
  for (let round = 0; round < 60; round++) {
    switch (between(random, 0, 7)) {
      case 0:
        isThere = false;
        server.remove("a");
        break;
      case 1:
        isThere = true;
        server.make("a", { isReported: between(random, 0, 1) === 0 });
        break;
      case 2:
        server.end(1001);
        break;
      case 3:
        leave();
        leave = session.subscribe(() => {});
        break;
      case 4:
        leave();
        await clock.advance(between(random, 0, 5_000));
        leave = session.subscribe(() => {});
        break;
      default:
        if (isThere) server.write("a", `${++said}`);
    }
    await clock.advance(between(random, 0, 8_000));
  }
  server.faults = calm;
  server.make("a");
  await clock.advance(60_000);
  server.write("a", "the last");
  await clock.advance(1_000);
  expect(session.get()).toMatchObject({ status: "live", unsent: [] });
  expect(session.get().messages).toEqual(viewOf(server.log("a")));
  expect(joinedAtMs.length).toBeLessThan(clock.now() / 1_000);
  expect(server.complaints).toEqual([]);
  client.close();
}
