import { beforeAll, describe, expect, test } from "vitest";
import type { FlotillaError, SessionEvent } from "../index.ts";
import { loadLazyModule } from "./view.ts";
import { simulatedClient } from "../contract/simulated-client.ts";

// What puts answers together is loaded beside, in time that no clock of a test moves.
beforeAll(() => loadLazyModule());

const notNow = { code: "unavailable", message: "not now", details: {}, retryAfterMs: 60_000 };

describe("what the server sends", () => {
  test("with a time to join again is obeyed, where it refuses and where something failed", async () => {
    const all = simulatedClient();
    const { clock, client, count } = all;
    all.answer = ({ type, ref }) =>
      type === "join" ? { type: "error", ref, ...notNow, code: "unavailable" } : undefined;
    client.session("a").subscribe(() => {});
    await clock.advance(59_000);
    expect(count("join")).toBe(1);
    all.answer = undefined;
    await clock.advance(3_000);
    expect(count("join")).toBe(2);
    expect(client.session("a").get().status).toBe("live");
    const error = { ...notNow, code: "unavailable" } as const;
    all.push({ type: "left", session: "a", reason: "failed", error });
    await clock.advance(59_000);
    expect(count("join")).toBe(2);
    await clock.advance(3_000);
    expect(client.session("a").get().status).toBe("live");
    client.close();
  });

  test("that breaks the protocol ends the connection, which is opened again", async () => {
    const { clock, client, sockets, hear } = simulatedClient();
    client.session("a").subscribe(() => {});
    await clock.advance(2_000);
    hear("<html>a proxy's own words</html>");
    expect(client.connection.get().status).toBe("waiting");
    await clock.advance(2_000);
    expect(sockets.map(({ readyState }) => readyState)).toEqual([3, 1]);
    expect(client.session("a").get().status).toBe("live");
    client.close();
  });

  test("that leaves a gap makes the client rejoin from its position", async () => {
    const { clock, server, client, sent, push: tell } = simulatedClient();
    server.write("a", "one");
    client.session("a").subscribe(() => {});
    await clock.advance(2_000);
    tell({ type: "entries", session: "a", entries: [{ ...server.log("a")[0]!, seq: 3 }] });
    await clock.advance(1_000);
    expect(sent.filter(({ type }) => type === "join")).toMatchObject([
      { lastSeq: 0 },
      { lastSeq: 1, lastMessageId: "one" },
    ]);
    expect(client.session("a").get()).toMatchObject({ status: "live", lastSeq: 1 });
    client.close();
  });

  test("that leaves a gap right after a session was found makes the client rejoin at once, and then ever later", async () => {
    const { clock, server, client, count, push: tell } = simulatedClient();
    server.remove("a");
    client.session("a").subscribe(() => {});
    await clock.advance(120_000);
    server.make("a");
    server.write("a", "one");
    const isLive = () => client.session("a").get().status === "live";
    for (let n = 0; n < 1_200 && !isLive(); n++) await clock.advance(10);
    const skip = () =>
      tell({ type: "entries", session: "a", entries: [{ ...server.log("a")[0]!, seq: 9 }] });
    const before = count("join");
    skip();
    await clock.advance(0);
    expect(count("join")).toBe(before + 1);
    let waitMs = 0;
    for (let n = 0; n < 6; n++) {
      for (let at = 0; at < 1_200 && !isLive(); at++) await clock.advance(10);
      const joins = count("join");
      skip();
      for (; count("join") === joins && waitMs < 60_000; waitMs += 10) await clock.advance(10);
    }
    expect(waitMs).toBeGreaterThan(2_000);
    client.close();
  });

  test("of an inbox that is old says as of when, until one says that it is up to date", async () => {
    const { clock, client, push: tell } = simulatedClient();
    client.inbox().subscribe(() => {});
    await clock.advance(1_000);
    const asOf = () => client.inbox().get().asOf;
    const seen = [asOf()];
    const { sessions } = client.inbox().get();
    for (const more of [{ asOf: 123 }, {}, { asOf: 456 }, { asOf: "soon" as unknown as number }]) {
      tell({ type: "inbox_changed", sessions: [], ...more });
      await clock.advance(100);
      seen.push(asOf());
    }
    expect(seen).toEqual([undefined, 123, undefined, 456, undefined]);
    expect(client.inbox().get().sessions).toEqual(sessions);
    client.close();
  });

  test("of a session that is being joined doesn't make the client join twice", async () => {
    const all = simulatedClient();
    const { clock, server, client, count } = all;
    server.remove("a");
    client.inbox().subscribe(() => {});
    client.session("a").subscribe(() => {});
    await clock.advance(120_000);
    // Asked for, and not answered yet.
    const before = count("join");
    all.answer = ({ type }) => (type === "join" ? { type: "pong", ref: "none" } : undefined);
    const named = client.inbox().get().sessions;
    for (let n = 0; n < 3; n++) {
      all.push({ type: "inbox_changed", sessions: named });
      await clock.advance(1);
    }
    expect(count("join")).toBe(before + 1);
    client.close();
  });

  test.each([
    ["2", 2_000],
    ["-2", undefined],
    ["soon", undefined],
  ])(
    "with a time to retry over HTTP is passed on where that is in the future: %s",
    async (said, told) => {
      const headers = { "retry-after": said };
      const fetch = () => Promise.resolve(new Response("", { status: 503, headers }));
      const { client } = simulatedClient({ fetch });
      const failed = await client.agents.list().catch((error: unknown) => error);
      expect(failed).toMatchObject({ code: "unavailable" });
      expect((failed as { retryAfterMs?: number }).retryAfterMs).toBe(told);
      client.close();
    },
  );

  test.each([
    ["is lost", undefined, "unknown_outcome", "unavailable"],
    ["is a proxy's own that it failed", 502, "unknown_outcome", "unavailable"],
    ["is cut off", 200, "unknown_outcome", "unavailable"],
    ["is a proxy's own that it lets nothing through", 403, "unavailable", "unavailable"],
  ])(
    "over HTTP %s: what isn't a read is refused only where it can't have been done",
    async (_, status, written, read) => {
      const fetch = () =>
        status === undefined
          ? Promise.reject(new TypeError("fetch failed"))
          : Promise.resolve(new Response("{", { status }));
      const { client } = simulatedClient({ fetch });
      const codeOf = (call: Promise<unknown>) =>
        call.catch(({ code }: FlotillaError): string => code);
      expect(await codeOf(client.tasks.enqueue("task"))).toBe(written);
      expect(await codeOf(client.sessions.remove("a"))).toBe(written);
      expect(await codeOf(client.sessions.setMetadata("a", null))).toBe(written);
      expect(await codeOf(client.tasks.get("1"))).toBe(read);
      client.close();
    },
  );

  test("that answers a renewal is obeyed: refused or lost, another token is requested", async () => {
    let asked = 0;
    const all = simulatedClient({ token: () => `token ${++asked}` });
    const { clock, server, client, count } = all;
    server.expiresInMs = 40_000;
    all.answer = ({ type, ref }) =>
      type === "token" ? { type: "error", ref, ...notNow, code: "unavailable" } : undefined;
    client.session("a").subscribe(() => {});
    await clock.advance(32_000);
    expect([asked, count("token")]).toEqual([2, 1]);
    await clock.advance(5_000);
    expect([asked, count("token")]).toEqual([3, 2]);
    // One that is never answered is over with its connection.
    all.answer = ({ type }) => (type === "token" ? { type: "pong", ref: "none" } : undefined);
    await clock.advance(5_000);
    expect(count("token")).toBe(3);
    server.end(1001);
    await clock.advance(33_000);
    expect(count("token")).toBe(4);
    client.close();
  });

  test("is replayed to a late listener: the log, the answer so far, and that it is gone", async () => {
    const { clock, server, client } = simulatedClient();
    const session = client.session("a");
    server.write("a", "one");
    session.subscribe(() => {});
    await clock.advance(2_000);
    server.turn("a");
    server.writeChunk("a");
    await clock.advance(1_000);
    const seen: SessionEvent[] = [];
    const leave = session.on((event) => {
      seen.push(event);
      throw new Error("a listener's own affair");
    });
    expect(seen).toMatchObject([
      { type: "joined", lastSeq: 1, state: { state: "catching_up" } },
      { type: "entry", entry: { messageId: "one" } },
      { type: "chunks", fromStart: true },
    ]);
    leave();
    expect(session.get().answer).toBeDefined();
    server.remove("a");
    await clock.advance(500);
    expect(session.get()).toMatchObject({ status: "gone", messages: [{ id: "one" }] });
    expect(session.get().answer).toBeUndefined();
    client.close();
  });
});

describe("a client that can't reach its server", () => {
  test("shows that in every session it follows, before and after there was a connection", async () => {
    const { clock, server, client } = simulatedClient();
    const statuses = () => [client.session("a"), client.inbox()].map((each) => each.get().status);
    server.isUp = false;
    client.session("a").subscribe(() => {});
    client.inbox().subscribe(() => {});
    expect(statuses()).toEqual(["joining", "joining"]);
    await clock.advance(30_000);
    expect(statuses()).toEqual(["away", "away"]);
    // A later subscriber is told at once.
    client.session("b").subscribe(() => {});
    expect(client.session("b").get().status).toBe("away");
    server.isUp = true;
    await clock.advance(30_000);
    expect(statuses()).toEqual(["live", "live"]);
    const seen: string[] = [];
    client.session("a").on(({ type }) => seen.push(type));
    server.isUp = false;
    server.end(1001);
    await clock.advance(30_000);
    expect(statuses()).toEqual(["away", "away"]);
    expect(seen).toEqual(["joined", "away"]);
    client.close();
  });

  test("tries nothing where there is no network from the start", async () => {
    const network = { isOnline: () => false, onChange: () => () => {} };
    const { clock, client, sockets } = simulatedClient({ network });
    client.session("a").subscribe(() => {});
    await clock.advance(29_000);
    expect(client.connection.get()).toEqual({ status: "offline" });
    expect(sockets).toEqual([]);
    await clock.advance(3_000);
    expect(client.connection.get().status).toBe("open");
    client.close();
  });
});
