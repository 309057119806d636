import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { silentLogger } from "../base/log.ts";
import { createHubHarness, joinAs, settled, upTo } from "./contract/delivery-harness.ts";
import { createInboxes, type Inboxes } from "./inbox.ts";
import type { InboxEvent, InboxItem } from "./service.ts";

describe("an inbox", () => {
  test("is a snapshot, then what changes in it", async () => {
    const { store, inbox, clock, touch } = scened();
    store.set("a", item("a", 1));
    store.set("b", item("b", 0));
    const reader = read(inbox);
    await reader.joined.ready;
    expect(reader.events).toEqual([{ type: "snapshot", sessions: [item("a", 1), item("b", 0)] }]);
    await clock.advance(250);
    store.set("a", item("a", 0));
    touch("a");
    await clock.advance(250);
    expect(reader.events.slice(1)).toEqual([{ type: "changed", sessions: [item("a", 0)] }]);
    store.delete("b");
    touch("b");
    await clock.advance(250);
    expect(reader.events.slice(2)).toEqual([{ type: "removed", sessionIds: ["b"] }]);
    inbox.close();
    expect(clock.timers).toBe(0);
  });

  test("sends nothing that is unchanged", async () => {
    const { store, inbox, clock, touch } = scened();
    store.set("a", item("a", 1));
    const reader = read(inbox);
    await reader.joined.ready;
    touch("a");
    touch("elsewhere");
    await clock.advance(1_000);
    expect(reader.events).toHaveLength(1);
    inbox.close();
  });

  test("is sent at most four times a second, and read as seldom", async () => {
    const { store, inbox, clock, touch, reads } = scened();
    const reader = read(inbox);
    await reader.joined.ready;
    for (const round of upTo(100)) {
      store.set("a", item("a", round));
      touch("a");
      await clock.advance(10);
    }
    await clock.advance(500);
    expect(reader.events.length).toBeLessThanOrEqual(7);
    expect(reads.count).toBeLessThanOrEqual(8);
    expect(reader.events.at(-1)).toEqual({ type: "changed", sessions: [item("a", 100)] });
    inbox.close();
  });

  test("misses nothing that changes while it is first read", async () => {
    const { store, inbox, clock, touch, reads } = scened();
    const gate = (reads.gate = Promise.withResolvers());
    const reader = read(inbox);
    await eventLoopTurns();
    store.set("a", item("a", 1));
    touch("a");
    gate.resolve();
    await reader.joined.ready;
    await clock.advance(300);
    expect(sessionsOf(reader.events)).toEqual({ a: 1 });
    inbox.close();
  });

  test("is compared again where something was missed while it was compared", async () => {
    const { store, inbox, clock, miss, reads } = scened();
    const reader = read(inbox);
    await reader.joined.ready;
    await clock.advance(500);
    const gate = (reads.gate = Promise.withResolvers());
    miss();
    await clock.advance(300);
    store.set("a", item("a", 1));
    miss();
    gate.resolve();
    reads.gate = undefined;
    await clock.advance(1_000);
    expect(sessionsOf(reader.events)).toEqual({ a: 1 });
    inbox.close();
  });

  test("is shared by all sockets of a user, and left with the last of them", async () => {
    const { store, inbox, clock, touch, reads, watching } = scened();
    store.set("a", item("a", 1));
    const [one, two] = [read(inbox), read(inbox)];
    await Promise.all([one.joined.ready, two.joined.ready]);
    const three = read(inbox);
    await three.joined.ready;
    expect(reads.count).toBe(1);
    await clock.advance(500);
    store.set("a", item("a", 5));
    touch("a");
    await clock.advance(500);
    for (const each of [one, two, three]) {
      expect(each.events.map(({ type }) => type)).toEqual(["snapshot", "changed"]);
    }
    expect(reads.count).toBe(2);
    for (const each of [one, two, three]) each.joined.leave();
    expect(clock.timers).toBe(0);
    expect(watching.size).toBe(0);
  });

  test("is compared with the store now and then, and where something was missed", async () => {
    const { store, inbox, clock, miss } = scened();
    store.set("a", item("a", 1));
    store.set("b", item("b", 1));
    const reader = read(inbox);
    await reader.joined.ready;
    await clock.advance(5_000);
    store.set("a", item("a", 2));
    store.delete("b");
    await clock.advance(31_000);
    expect(sessionsOf(reader.events)).toEqual({ a: 2 });
    await clock.advance(1_000);
    store.set("c", item("c", 3));
    miss();
    await clock.advance(300);
    expect(sessionsOf(reader.events)).toEqual({ a: 2, c: 3 });
    inbox.close();
  });

  test("keeps what is only too old to be among the first", async () => {
    const { store, inbox, clock, touch } = scened();
    store.set("a", item("a", 1));
    const reader = read(inbox);
    await reader.joined.ready;
    for (const each of upTo(150)) {
      store.set(`s${each}`, item(`s${each}`, 1));
      touch(`s${each}`);
    }
    await clock.advance(40_000);
    const shown = sessionsOf(reader.events);
    expect(shown["a"]).toBe(1);
    expect(Object.keys(shown)).toHaveLength(151);
    inbox.close();
  });

  test("rejects with a store that is away where there is nothing yet, and waits for it otherwise", async () => {
    const { store, inbox, clock, touch, reads } = scened();
    reads.error = new Error("away");
    const early = read(inbox);
    await expect(early.joined.ready).rejects.toThrow("away");
    expect(early.failed).toBe(reads.error);
    reads.error = undefined;
    const reader = read(inbox);
    await reader.joined.ready;
    reads.error = new Error("away");
    store.set("a", item("a", 1));
    touch("a");
    await clock.advance(3_000);
    expect(reader.events).toHaveLength(1);
    reads.error = undefined;
    await clock.advance(3_000);
    expect(sessionsOf(reader.events)).toEqual({ a: 1 });
    expect(reader.failed).toBeUndefined();
    inbox.close();
  });

  test("is compared again where it couldn't be, though no session is known to have changed", async () => {
    const { store, inbox, clock, miss, reads } = scened();
    const reader = read(inbox);
    await reader.joined.ready;
    await clock.advance(5_000);
    store.set("a", item("a", 1));
    reads.error = new Error("away");
    miss();
    await clock.advance(500);
    reads.error = undefined;
    await clock.advance(3_000);
    expect(sessionsOf(reader.events)).toEqual({ a: 1 });
    inbox.close();
  });

  test("is sent no more where its reader is too slow", async () => {
    const { store, inbox, clock, touch } = scened();
    const slow = read(inbox, () => false);
    await slow.joined.ready;
    store.set("a", item("a", 1));
    touch("a");
    await clock.advance(1_000);
    expect(slow.events).toHaveLength(1);
    expect(clock.timers).toBe(0);
  });
});

describe("the sessions of a watched user", () => {
  test("are reported here, from here and from other pods, until the last watcher leaves", async () => {
    const scene = await createHubHarness();
    const [gateway, owner] = [scene.hub("gateway"), scene.hub("owner")];
    const touched: string[] = [];
    gateway.onTouched((what) => what && touched.push(`gateway ${what.sessionId}`));
    owner.onTouched((what) => what && touched.push(`owner ${what.sessionId}`));
    const unwatch = [gateway.watchUser("acme", "ann"), owner.watchUser("acme", "ann")];
    gateway.watchUser("other", "ben");
    await settled();
    await scene.commit("s", { say: 1, users: ["ann", "bob"] });
    await scene.commit("t", { say: 1, users: ["ben"] });
    await settled();
    expect(touched.toSorted()).toEqual(["gateway s", "owner s"]);
    for (const each of unwatch) each();
    await settled();
    await scene.commit("s", { say: 1 });
    await settled();
    expect(touched).toHaveLength(2);
    await scene.close();
    expect(scene.clock.timers).toBe(0);
  });

  test("are requested again where an envelope was lost, or the owner is another", async () => {
    let losing = false;
    const scene = await createHubHarness({
      carry: ({ text }, arrive) =>
        losing && text.includes("session.touched") ? "lost" : queueMicrotask(arrive),
    });
    const gateway = scene.hub("gateway");
    let missed = 0;
    const touched: string[] = [];
    gateway.onTouched((what) => (what ? touched.push(what.sessionId) : missed++));
    gateway.watchUser("acme", "ann");
    await scene.clock.advance(3_000);
    missed = 0;
    losing = true;
    await scene.commit("s", { say: 1 });
    await settled();
    losing = false;
    expect([touched, missed]).toEqual([[], 0]);
    await scene.clock.advance(1_000);
    expect(missed).toBe(1);
    await scene.clock.advance(5_000);
    expect(missed).toBe(1);
    scene.own("next");
    scene.seenOwner = "next";
    await scene.clock.advance(2_000);
    expect(missed).toBeGreaterThan(1);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(touched).toEqual(["s"]);
    await scene.close();
  });

  test("are reported, also where their owner missed both the user and that another one is left", async () => {
    let losing = false;
    const scene = await createHubHarness({
      carry: ({ text }, arrive) =>
        losing && text.includes("session.watch") ? "lost" : queueMicrotask(arrive),
    });
    const gateway = scene.hub("gateway");
    const touched: string[] = [];
    gateway.onTouched((what) => what && touched.push(what.sessionId));
    const unwatch = gateway.watchUser("acme", "ben");
    gateway.watchUser("acme", "cleo");
    await scene.clock.advance(2_000);
    losing = true;
    gateway.watchUser("acme", "ann");
    unwatch();
    await settled();
    losing = false;
    await scene.clock.advance(2_000);
    await scene.commit("s", { say: 1, users: ["ann"] });
    await settled();
    expect(touched).toEqual(["s"]);
    await scene.close();
  });

  test("are read again where this pod has taken the log, and the last owner's envelopes were lost", async () => {
    let losing = false;
    const scene = await createHubHarness({
      carry: (_, arrive) => (losing ? "lost" : queueMicrotask(arrive)),
    });
    const next = scene.hub("next");
    let missed = 0;
    next.onTouched((what) => what ?? missed++);
    next.watchUser("acme", "ann");
    await scene.clock.advance(3_000);
    missed = 0;
    losing = true;
    await scene.commit("s", { say: 1 });
    await scene.clock.advance(500);
    scene.own("next");
    scene.seenOwner = "next";
    losing = false;
    await scene.clock.advance(3_000);
    expect(missed).toBe(1);
    await scene.close();
  });

  test("are watched where they were while the owners of logs can't be read", async () => {
    let letters = 0;
    const scene = await createHubHarness({
      carry({ text }, arrive) {
        if (text.includes("session.watch")) letters++;
        queueMicrotask(arrive);
      },
    });
    const gateway = scene.hub("gateway");
    const touched: string[] = [];
    gateway.onTouched((what) => what && touched.push(what.sessionId));
    gateway.watchUser("acme", "ann");
    await scene.commit("t", { say: 1, users: ["ben"] });
    joinAs(gateway, "t");
    await scene.clock.advance(2_000);
    letters = 0;
    scene.isAway = true;
    await scene.clock.advance(2_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(letters).toBe(0);
    expect(touched).toEqual(["s"]);
    await scene.close();
  });

  test("are forgotten by other pods, even where the last watcher left unnoticed", async () => {
    let losing = false;
    let letters = 0;
    let asked = 0;
    const scene = await createHubHarness({
      carry({ text }, arrive) {
        if (text.includes("session.touched")) letters++;
        if (text.includes("session.follow")) asked++;
        return losing && text.includes("session.watch") ? "lost" : queueMicrotask(arrive);
      },
    });
    await scene.commit("t", { say: 1, users: ["ben"] });
    const client = joinAs(scene.hub("gateway"), "t");
    const unwatch = scene.hub("gateway").watchUser("acme", "ann");
    await scene.clock.advance(2_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(letters).toBe(1);
    losing = true;
    unwatch();
    await settled();
    losing = false;
    await scene.clock.advance(3_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(letters).toBe(1);
    // Then both sides agree, and nothing is asked for again.
    asked = 0;
    await scene.clock.advance(5_000);
    expect(asked).toBe(0);
    expect(client.failed).toBeUndefined();
    await scene.close();
  });
});

/** An inbox over sessions that a test changes as it likes. */
function scened() {
  const clock = movableClock();
  const store = new Map<string, InboxItem>();
  const listeners = new Set<
    Parameters<Parameters<typeof createInboxes>[0]["hub"]["onTouched"]>[0]
  >();
  const watching = new Set<string>();
  const reads = {
    count: 0,
    /** What the next read finds, it gives when this is resolved. */
    gate: undefined as PromiseWithResolvers<void> | undefined,
    error: undefined as Error | undefined,
  };
  const inbox = createInboxes({
    clock,
    log: silentLogger,
    hub: {
      watchUser(tenant, user) {
        watching.add(`${tenant}/${user}`);
        return () => watching.delete(`${tenant}/${user}`);
      },
      onTouched(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    },
    async readInbox(_tenant, _user, { only, limit = 100 } = {}) {
      reads.count++;
      if (reads.error) throw reads.error;
      const found = [...store.values()];
      await reads.gate?.promise;
      return found.filter(({ sessionId }) => only?.includes(sessionId) ?? true).slice(-limit);
    },
  });
  const touch = (sessionId: string) => {
    const touched = { tenant: "acme", users: ["ann", "ben"], sessionId, offset: 1 };
    for (const listener of listeners) listener(touched);
  };
  const miss = () => {
    for (const listener of listeners) listener(undefined);
  };
  return { clock, store, inbox, reads, touch, miss, watching };
}

function read(inbox: Inboxes, push: () => boolean = () => true) {
  const events: InboxEvent[] = [];
  const reader = { events, failed: undefined as unknown };
  const joined = inbox.open("acme", "ann", {
    push(event) {
      events.push(event);
      return push();
    },
    fail: (error) => (reader.failed = error),
  });
  return Object.assign(reader, { joined });
}

/** What a client shows after these events: unread by session. */
function sessionsOf(events: readonly InboxEvent[]): Record<string, number> {
  const shown: Record<string, number> = {};
  for (const event of events) {
    if (event.type === "removed") for (const id of event.sessionIds) delete shown[id];
    else for (const { sessionId, unread } of event.sessions) shown[sessionId] = unread;
  }
  return shown;
}

function item(sessionId: string, unread: number): InboxItem {
  const said = { preview: "", previewAuthor: "", activeAtMs: 0, lastSeq: unread, readSeq: 0 };
  return { sessionId, agents: [], status: "active", state: "idle", unread, ...said };
}
