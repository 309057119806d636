import { describe, expect, test } from "vitest";
import { movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { FlotillaError } from "../base/errors.ts";
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

describe("an inbox whose store follows", () => {
  const away = new FlotillaError("store_unavailable", "the store is away");
  const asOfs = (events: readonly InboxEvent[]) =>
    events.map((event) => ("asOf" in event ? event.asOf : undefined));

  test("says as of when it is while the store is away, and that it is up to date afterwards", async () => {
    const { store, inbox, clock, touch, reads } = scened({ behindMs: () => 0 });
    store.set("a", item("a", 1));
    const reader = read(inbox);
    await reader.joined.ready;
    await clock.advance(10_000);
    const comparedMs = clock.now();
    expect(asOfs(reader.events)).toEqual([undefined]);
    reads.error = away;
    touch("a");
    await clock.advance(60_000);
    // Once, however often it can't be read.
    expect(reader.events.slice(1)).toEqual([
      { type: "changed", sessions: [], asOf: expect.any(Number) },
    ]);
    const { asOf } = reader.events[1] as { asOf: number };
    expect(asOf).toBeLessThanOrEqual(comparedMs);
    expect(asOf).toBeGreaterThan(comparedMs - 35_000);
    const late = read(inbox);
    await late.joined.ready;
    expect(late.events).toEqual([{ type: "snapshot", sessions: [item("a", 1)], asOf }]);
    reads.error = undefined;
    await clock.advance(3_000);
    expect(reader.events.slice(2)).toEqual([{ type: "changed", sessions: [] }]);
    inbox.close();
    expect(clock.timers).toBe(0);
  });

  test("says so, too, where the store can be read and is far behind", async () => {
    let behindMs = 100;
    const { store, inbox, clock } = scened({ behindMs: () => behindMs });
    store.set("a", item("a", 1));
    const reader = read(inbox);
    await reader.joined.ready;
    await clock.advance(5_000);
    behindMs = 20_000;
    await clock.advance(30_000);
    const seen = reader.events.length;
    const { asOf } = reader.events[1] as { asOf: number };
    expect(clock.now() - asOf).toBeGreaterThanOrEqual(20_000);
    expect(clock.now() - asOf).toBeLessThan(55_000);
    store.set("a", item("a", 2));
    await clock.advance(5_000);
    expect(sessionsOf(reader.events)).toEqual({ a: 2 });
    expect(asOfs(reader.events.slice(seen)).every((each) => each! > asOf)).toBe(true);
    behindMs = 100;
    await clock.advance(6_000);
    expect(asOfs(reader.events).at(-1)).toBeUndefined();
    inbox.close();
  });

  test("has one line in the log when the store goes away and one when it is back, for all inboxes", async () => {
    const { inbox, clock, reads, lines } = scened({ behindMs: () => 0 });
    const open = (user: string) => inbox.open("acme", user, { push: () => true, fail: () => {} });
    for (const each of upTo(20)) await open(`user ${each}`).ready;
    reads.error = away;
    const before = reads.count;
    await clock.advance(600_000);
    // One that nobody had open fails at once, each time.
    for (const each of upTo(20)) await open(`late ${each}`).ready.catch(() => {});
    expect(reads.count - before).toBeGreaterThan(1_000);
    reads.error = undefined;
    await clock.advance(10_000);
    const ofOutage = [
      "inboxes can't be read: they stay as they are, and are read again",
      "inboxes can be read again",
    ];
    expect(lines).toEqual(ofOutage);
    // A store that answers now and then fills no log either.
    for (let times = 0; times < 30; times++) {
      reads.error = away;
      await clock.advance(6_000);
      reads.error = undefined;
      await clock.advance(6_000);
    }
    expect(lines.length).toBeLessThanOrEqual(2 + 2 * 6);
    inbox.close();
  });

  test("that alone can't be read has one line, until it could be", async () => {
    const { inbox, clock, reads, lines } = scened();
    const reader = read(inbox);
    await reader.joined.ready;
    for (let times = 0; times < 2; times++) {
      reads.error = new Error("a row is odd");
      await clock.advance(100_000);
      reads.error = undefined;
      await clock.advance(40_000);
    }
    expect(lines).toEqual(Array(2).fill("an inbox can't be read: trying again"));
    inbox.close();
  });

  test("is shown again to who opens it while the store is away, for ten minutes, and then can't be read", async () => {
    const { store, inbox, clock, reads } = scened({ behindMs: () => 0 });
    store.set("a", item("a", 1));
    const early = read(inbox);
    await early.joined.ready;
    early.joined.leave();
    reads.error = away;
    await clock.advance(300_000);
    const reader = read(inbox);
    await reader.joined.ready;
    const shown = reader.events[0] as Extract<InboxEvent, { type: "snapshot" }>;
    expect(shown.sessions).toEqual([item("a", 1)]);
    expect(clock.now() - shown.asOf!).toBeGreaterThanOrEqual(300_000);
    const another = inbox.open("acme", "ben", { push: () => true, fail: () => {} });
    await expect(another.ready).rejects.toBe(away);
    await clock.advance(310_000);
    // Who has it open keeps it, and who comes now gets an error.
    expect(reader.failed).toBeUndefined();
    const late = read(inbox);
    await expect(late.joined.ready).rejects.toBe(away);
    expect([late.failed, late.events]).toEqual([away, []]);
    reader.joined.leave();
    const later = read(inbox);
    await expect(later.joined.ready).rejects.toBe(away);
    reads.error = undefined;
    const back = read(inbox);
    await back.joined.ready;
    expect(back.events).toEqual([{ type: "snapshot", sessions: [item("a", 1)] }]);
    inbox.close();
    expect(clock.timers).toBe(0);
  });

  test("without readers is remembered for those that were closed last, twenty thousand sessions of them", async () => {
    const { store, inbox, clock, reads } = scened({ behindMs: () => 0 });
    for (const each of upTo(100)) store.set(`s${each}`, item(`s${each}`, 1));
    const open = (user: string) => inbox.open("acme", user, { push: () => true, fail: () => {} });
    for (const each of upTo(300)) {
      const joined = open(`user ${each}`);
      await joined.ready;
      joined.leave();
    }
    reads.error = away;
    await expect(open("user 1").ready).rejects.toBe(away);
    await expect(open("user 300").ready).resolves.toBeUndefined();
    inbox.close();
    expect(clock.timers).toBe(0);
  });

  test("says nothing of its age where its store has the logs", async () => {
    const { store, inbox, clock, touch, reads } = scened();
    store.set("a", item("a", 1));
    const reader = read(inbox);
    await reader.joined.ready;
    reads.error = away;
    touch("a");
    await clock.advance(60_000);
    expect(asOfs(reader.events)).toEqual([undefined]);
    reader.joined.leave();
    await expect(read(inbox).joined.ready).rejects.toBe(away);
    inbox.close();
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
function scened({ behindMs }: { behindMs?: () => number | undefined } = {}) {
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
  const lines: string[] = [];
  const inbox = createInboxes({
    clock,
    log: {
      ...silentLogger,
      info: (_, text) => lines.push(text),
      warn: (_, text) => lines.push(text),
    },
    ...(behindMs && { behindMs }),
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
  return { clock, store, inbox, reads, touch, miss, watching, lines };
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
