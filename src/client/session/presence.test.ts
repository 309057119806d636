import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { simulatedClient } from "../contract/simulated-client.ts";
import { loadLazyModule } from "./view.ts";

// Loaded beside, which takes a time that the clock of a test doesn't know.
beforeAll(() => loadLazyModule());

let page: ReturnType<typeof simulatedClient>;
beforeEach(() => {
  page = simulatedClient();
});

describe("who is there", () => {
  test("is known while there are listeners, by a session that is followed for it", async () => {
    const { client, clock, sent, server } = page;
    const { presence } = client.session("a");
    expect(presence.get()).toEqual([]);
    let calls = 0;
    const stop = presence.subscribe(() => calls++);
    await clock.advance(1_000);
    expect(sent.map(({ type }) => type)).toEqual(["join", "presence"]);
    expect(presence.get()).toEqual([{ user: "ada", typing: false }]);
    expect(presence.get()).toBe(presence.get());
    expect(calls).toBe(1);
    const another = presence.subscribe(() => {});
    another();
    expect(page.count("presence")).toBe(1);
    stop();
    await clock.advance(1_000);
    expect(page.count("presence_leave")).toBe(1);
    expect(presence.get()).toEqual([]);
    await clock.advance(10_000);
    expect(page.count("leave")).toBe(1);
    expect(server.complaints).toEqual([]);
  });

  test("comes with the session where that is followed already, and goes without it", async () => {
    const { client, clock } = page;
    const session = client.session("a");
    session.subscribe(() => {});
    await clock.advance(1_000);
    expect(page.count("presence")).toBe(0);
    const stop = session.presence.subscribe(() => {});
    await clock.advance(1_000);
    expect(session.presence.get()).toHaveLength(1);
    stop();
    await clock.advance(10_000);
    expect([page.count("join"), page.count("presence_leave"), page.count("leave")]).toEqual([
      1, 1, 0,
    ]);
    page.push({ type: "presence", session: "a", people: [{ user: "bob", typing: false }] });
    expect(session.presence.get()).toEqual([]);
  });

  test("is an empty list while the connection is lost, and is said anew on the next", async () => {
    const { client, clock, server } = page;
    const { presence } = client.session("a");
    presence.subscribe(() => {});
    await clock.advance(1_000);
    presence.typing();
    server.isUp = false;
    server.end(1001);
    await clock.advance(100);
    expect(presence.get()).toEqual([]);
    presence.typing();
    server.isUp = true;
    await clock.advance(60_000);
    expect(presence.get()).toEqual([{ user: "ada", typing: false }]);
    expect(server.complaints).toEqual([]);
  });
});

describe("typing", () => {
  const typed = () =>
    page.sent.flatMap((frame) =>
      frame.type === "presence" ? [(frame as unknown as { typing: boolean }).typing] : [],
    );

  test("is sent once in three seconds, however many keys there are, and ends with the message", async () => {
    const { client, clock } = page;
    const session = client.session("a");
    session.presence.subscribe(() => {});
    await clock.advance(1_000);
    for (let at = 0; at < 500; at++) {
      session.presence.typing();
      await clock.advance(10);
    }
    expect(typed()).toEqual([false, true, true]);
    expect(session.presence.get()).toEqual([{ user: "ada", typing: true }]);
    void session.send("hello");
    await clock.advance(1_000);
    expect(typed()).toEqual([false, true, true, false]);
    session.presence.typing(false);
    await clock.advance(1_000);
    expect(typed()).toHaveLength(4);
  });

  test("isn't sent of a session whose presence has no listener", async () => {
    const { client, clock } = page;
    const session = client.session("a");
    session.subscribe(() => {});
    await clock.advance(1_000);
    session.presence.typing();
    await clock.advance(1_000);
    expect(typed()).toEqual([]);
  });
});
