import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { openFleet } from "../fleet.ts";
import { type ChaosProxy, startChaosProxy } from "../postgres/chaos-proxy.ts";
import { sessionAt, textsIn } from "./cast.ts";
import { sessionViolations } from "./checkers.ts";
import { type ServerProcess, type SessionFleet, sessionFleetOn } from "./fleet.ts";
import { refusals } from "./nemesis.ts";
import { postgresStore } from "../stores.ts";
import { until } from "../until.ts";

// A machine may let a server wait for a second or two, and then its log isn't another's yet.
const config = { deadAfterMs: 5_000 };

describe("a record of a session's log", () => {
  let fleet: SessionFleet;
  const proxies = new Map<ServerProcess, ChaosProxy>();

  const start = async () => {
    const proxy = await startChaosProxy(fleet.store);
    const server = await fleet.startServer({ store: proxy.through(fleet.store), config });
    proxies.set(server, proxy);
  };
  /** A session, the server that owns it with what lies between that and the store, and the other one. */
  const cast = async () => {
    const { session, owner } = await sessionAt(fleet, fleet.servers, null);
    const other = fleet.servers.find((each) => each !== owner)!;
    // A client that stays with the owner for as long as that lives, and then goes to the other one.
    const pick = () => (owner.alive ? owner.url : other.url);
    const ada = fleet.client("ada", { pick, silentMs: Infinity, giveUpMs: 60_000 });
    ada.follow(session);
    expect(await ada.say(session)).toMatchObject({ type: "ok", seq: 1 });
    return { session, owner, other, ada, proxy: proxies.get(owner)! };
  };
  const isOwnedBy = (session: string, server: ServerProcess) =>
    until("the other has the log", async () => (await fleet.ownerOf(session)) === server.podId);

  beforeAll(async () => {
    fleet = sessionFleetOn(await openFleet(() => postgresStore(inject("postgresUrl"))));
  });
  beforeEach(async () => {
    while (fleet.servers.length < 2) await start();
    // There are no logs before the first session.
    await fleet.open("first", null);
  });
  afterAll(async () => {
    for (const proxy of proxies.values()) await proxy.close();
    await fleet.close();
  });

  test("whose answer was lost is found to be stored, once, by the owner that sends it again", async () => {
    const { session, owner, ada, proxy } = await cast();
    const lost = proxy.loseAnswer((sent) => sent.includes("answer-lost"));
    const saying = ada.say(session, "answer-lost");
    await lost;
    expect(await saying).toEqual({ type: "ok", seq: 2, duplicate: false });
    expect(await ada.say(session)).toMatchObject({ type: "ok", seq: 3 });
    expect(await fleet.ownerOf(session)).toBe(owner.podId);
    expect(fleet.logged("session log commit failed, retrying")).not.toEqual([]);
    expect(await textsIn(fleet, session)).toHaveLength(3);
  });

  test("that comes when others have the log is refused, and its owner stores nothing more", async () => {
    const { session, owner, other, ada, proxy } = await cast();
    const before = fleet.logged(refusals.record).length;
    const held = proxy.hold("toServer", (sent) => sent.includes("too-late"));
    const saying = ada.say(session, "too-late");
    const letGo = await held;
    await owner.pause();
    await isOwnedBy(session, other);

    const { toClient } = proxy.counts().bytes;
    letGo();
    await until("the store has answered", () => proxy.counts().bytes.toClient > toClient);
    expect(await textsIn(fleet, session)).toHaveLength(1);

    const bob = fleet.client("bob", { pick: () => other.url });
    expect(await bob.say(session)).toMatchObject({ type: "ok", seq: 2 });
    owner.resume();
    expect(await saying).toEqual({ type: "ok", seq: 3, duplicate: false });
    const refused = fleet.logged(refusals.record).slice(before);
    expect(refused.map(({ pod }) => pod)).toContain(owner.podId);
    expect(await fleet.ownerOf(session)).toBe(other.podId);
  });

  test("that was stored when its server died is acked by the next, at the same seq", async () => {
    const { session, owner, other, ada, proxy } = await cast();
    const held = proxy.hold("toClient", (sent) => sent.includes("ack-missed"));
    const saying = ada.say(session, "ack-missed");
    await held;
    await until("it is stored", async () => (await textsIn(fleet, session)).length === 2);
    await owner.kill();
    expect(await saying).toEqual({ type: "ok", seq: 2, duplicate: true });
    expect(ada.at).toBe(other.url);
  });

  test("that was never stored wasn't acked either, and is stored once by the next server", async () => {
    const { session, owner, other, ada, proxy } = await cast();
    const held = proxy.hold("toServer", (sent) => sent.includes("not-sent"));
    const saying = ada.say(session, "not-sent");
    await held;
    // Whatever the owner sends its clients before the commit is sent by now.
    await ada.heard();
    await owner.kill();
    expect(await saying).toEqual({ type: "ok", seq: 2, duplicate: false });
    expect(await textsIn(fleet, session)).toHaveLength(2);
    await isOwnedBy(session, other);
  });

  test("is right in the end, in all of these sessions", async () => {
    const evidence = await fleet.gather();
    expect(evidence.stored).toHaveLength(5);
    expect(sessionViolations(evidence)).toEqual([]);
  });
});
