import { describe, expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { createHubHarness, joinAs, settled, upTo } from "../contract/delivery-harness.ts";

describe("joining a session", () => {
  test("sends what there is, then what comes", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 3 });
    const client = joinAs(scene.hub("owner"), "s");
    await client.joined.ready;
    expect(client.events.map(({ type }) => type)).toEqual(["joined", "entries"]);
    expect(client.events[0]).toMatchObject({ lastSeq: 3, incarnation: "id-1" });
    await scene.commit("s", { say: 2 });
    expect(client.seqs).toEqual(upTo(5));
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("gives entries as the journal has them, without what their record had besides", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s", { lastSeq: 1 });
    await client.joined.ready;
    await scene.commit("s", { say: 1 });
    const told = client.events.flatMap((event) => (event.type === "entries" ? event.entries : []));
    expect(told).toEqual(await scene.journal.entries("s", { after: 1, limit: 10 }));
    await scene.close();
  });

  test("is polled every second only while there is something to find", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s");
    await client.joined.ready;
    await scene.clock.advance(2_000);
    const looks = scene.reads.looks;
    await scene.clock.advance(60_000);
    expect(scene.reads.looks).toBe(looks);
    await scene.commit("s", { say: 1, turn: {} });
    await scene.clock.advance(3_000);
    expect(scene.reads.looks).toBeGreaterThan(looks);
    client.joined.leave();
    await scene.clock.advance(5_000);
    // It was forgotten meanwhile, so the next one asks the journal.
    scene.isLoaded = false;
    const before = scene.reads.headers;
    await joinAs(scene.hub("owner"), "s").joined.ready;
    expect(scene.reads.headers).toBe(before + 1);
    await scene.close();
  });

  test("misses nothing that is committed at any step of it", async () => {
    // A commit has two steps, stored and told of; joining has several turns of the event loop.
    for (let storedAt = 0; storedAt < 14; storedAt++) {
      for (let toldAt = storedAt; toldAt < 14; toldAt++) {
        for (const isLoaded of [true, false]) {
          const scene = await createHubHarness({ limits: { pageEntries: 2 } });
          await scene.store("s", { say: 5 });
          scene.isLoaded = isLoaded;
          let client: ReturnType<typeof joinAs> | undefined;
          let committed: Awaited<ReturnType<typeof scene.store>> | undefined;
          for (let step = 0; step < 14; step++) {
            if (step === 1) client = joinAs(scene.hub("owner"), "s", { lastSeq: 1 });
            if (step === storedAt) committed = await scene.store("s", { say: 2 });
            if (step === toldAt) scene.hub("owner").committed([committed!]);
            await Promise.resolve();
          }
          await settled();
          expect(client!.failed).toBeUndefined();
          expect(client!.seqs, `${storedAt} ${toldAt} ${isLoaded}`).toEqual(upTo(7, 2));
          await scene.close();
        }
      }
    }
  });

  test("misses nothing that is committed while pages of the past are read", async () => {
    const scene = await createHubHarness({ limits: { pageEntries: 3, ringBytes: 500 } });
    await scene.commit("s", { say: 10 });
    const client = joinAs(scene.hub("owner"), "s");
    let isReady = false;
    void client.joined.ready.then(() => (isReady = true));
    for (let round = 0; round < 30 && !isReady; round++) {
      scene.gate = Promise.withResolvers();
      await eventLoopTurns(2);
      await scene.commit("s", { say: 1 });
      scene.gate.resolve();
      await eventLoopTurns(2);
      if (round > 10) scene.gate = undefined;
      if (round > 10) await settled();
    }
    expect(isReady).toBe(true);
    expect(client.failed).toBeUndefined();
    expect(client.seqs).toEqual(upTo(scene.header("s").lastSeq));
    await scene.close();
  });

  test("has no limit to what was missed", async () => {
    const scene = await createHubHarness({ limits: { pageBytes: 64 * 1024 } });
    for (let said = 0; said < 12; said++) await scene.commit("s", { say: 1_000 });
    let drained = 0;
    const client = joinAs(
      scene.hub("owner"),
      "s",
      { lastSeq: 0 },
      { drained: async () => void drained++ },
    );
    await client.joined.ready;
    expect(client.seqs).toEqual(upTo(12_000));
    expect(drained).toBeGreaterThan(20);
    await scene.close();
  });

  test("waits for its reader between pages", async () => {
    const scene = await createHubHarness({ limits: { pageEntries: 4 } });
    await scene.commit("s", { say: 10 });
    const reader = Promise.withResolvers<void>();
    const client = joinAs(
      scene.hub("owner"),
      "s",
      { lastSeq: 0 },
      { drained: () => reader.promise },
    );
    await settled();
    expect(client.seqs).toEqual(upTo(4));
    reader.resolve();
    await client.joined.ready;
    expect(client.seqs).toEqual(upTo(10));
    await scene.close();
  });

  test("fails where there is no such session, or no more", async () => {
    const scene = await createHubHarness();
    const nobody = joinAs(scene.hub("owner"), "none");
    await expect(nobody.joined.ready).rejects.toMatchObject({ code: "not_found" });
    expect(nobody.failed).toMatchObject({ code: "not_found" });
    await scene.commit("s", { say: 1 });
    await scene.commit("s", { status: "deleted" });
    for (const isLoaded of [true, false]) {
      scene.isLoaded = isLoaded;
      const late = joinAs(scene.hub("owner"), "s");
      await expect(late.joined.ready).rejects.toMatchObject({ code: "not_found" });
      expect(late.events).toEqual([]);
    }
    await scene.close();
  });

  test("gets the deletion, and nothing after it", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s");
    await client.joined.ready;
    await scene.commit("s", { status: "deleted" });
    await settled();
    expect(client.events.at(-1)).toEqual({ type: "deleted" });
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("gets the deletion while it still reads the past", async () => {
    const scene = await createHubHarness({ limits: { pageEntries: 2 } });
    await scene.commit("s", { say: 9 });
    scene.gate = Promise.withResolvers();
    scene.isLoaded = true;
    const client = joinAs(scene.hub("owner"), "s");
    await settled();
    await scene.store("s", { status: "deleted" });
    scene.gate.resolve();
    await settled();
    expect(client.events.at(-1)).toEqual({ type: "deleted" });
    expect(client.failed).toBeUndefined();
    await scene.close();
  });
});

describe("a position that isn't in the log", () => {
  test("because the session was deleted meanwhile isn't reset: there is no such session", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 3 });
    scene.gate = Promise.withResolvers();
    const client = joinAs(scene.hub("owner"), "s", { lastSeq: 2, lastMessageId: "m2" });
    await settled();
    await scene.store("s", { status: "deleted" });
    scene.gate.resolve();
    await settled();
    expect(client.events).toEqual([]);
    expect(client.failed).toMatchObject({ code: "not_found" });
    await scene.close();
  });

  test.each([
    ["ahead", { lastSeq: 9 }],
    ["incarnation", { lastSeq: 2, incarnation: "another" }],
    ["mismatch", { lastSeq: 2, lastMessageId: "m7" }],
  ])("is reset: %s", async (reason, place) => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 3 });
    const client = joinAs(scene.hub("owner"), "s", place);
    await client.joined.ready;
    expect(client.events[0]).toMatchObject({ type: "joined" });
    expect(client.events[1]).toEqual({ type: "reset", reason });
    await scene.commit("s", { say: 1 });
    expect(client.seqs).toEqual(upTo(4));
    await scene.close();
  });

  test("is distinguished from one that is", async () => {
    const scene = await createHubHarness({ limits: { pageEntries: 2 } });
    await scene.commit("s", { say: 6 });
    const place = { lastSeq: 3, incarnation: "id-1", lastMessageId: "m3" };
    const client = joinAs(scene.hub("owner"), "s", place);
    await client.joined.ready;
    // The page that held the entry of the place is used for what comes after it.
    expect(client.seqs).toEqual([4, 5, 6]);
    expect(client.events.map(({ type }) => type)).not.toContain("reset");
    await scene.close();
  });

  test("is believed where the client knows of more than this process", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 2 });
    const hub = scene.hub("owner");
    const first = joinAs(hub, "s");
    await first.joined.ready;
    const committed = await scene.store("s", { say: 2 });
    const client = joinAs(hub, "s", { lastSeq: 3 });
    await client.joined.ready;
    await settled();
    hub.committed([committed]);
    await scene.commit("s", { say: 1 });
    expect(client.events.map(({ type }) => type)).not.toContain("reset");
    expect(client.seqs).toEqual([4, 5]);
    expect(first.seqs).toEqual(upTo(5));
    await scene.close();
  });
});

describe("what comes twice or in part", () => {
  test("goes out once, also to a client that came with more than the others had", async () => {
    const scene = await createHubHarness({ limits: { pageEntries: 1 } });
    await scene.commit("s", { say: 2 });
    const hub = scene.hub("owner");
    const first = joinAs(hub, "s");
    await first.joined.ready;
    const committed = await scene.store("s", { say: 3 });
    const ahead = joinAs(hub, "s", { lastSeq: 4 });
    await ahead.joined.ready;
    await settled();
    hub.committed([committed, committed]);
    await scene.commit("s", { say: 1 });
    expect([first.seqs, ahead.seqs]).toEqual([upTo(6), [5, 6]]);
    expect([first.failed, ahead.failed]).toEqual([undefined, undefined]);
    await scene.close();
  });

  test("is taken from where it is new, and the rest isn't read again", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s", { lastSeq: 1 });
    await client.joined.ready;
    const one = await scene.store("s", { say: 1 });
    const two = await scene.store("s", { say: 1 });
    scene.hub("owner").committed([one]);
    scene.hub("owner").committed([{ ...two, entries: [...one.entries, ...two.entries] }]);
    expect(client.seqs).toEqual([2, 3]);
    expect(scene.reads.pages).toBe(0);
    await scene.close();
  });

  test("isn't sent to some before the others", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 2 });
    const hub = scene.hub("owner");
    const early = joinAs(hub, "s", { lastSeq: 2 });
    await early.joined.ready;
    const committed = await scene.store("s", { say: 1 });
    // The journal has it, but what state came with it isn't known here yet.
    const late = joinAs(hub, "s");
    await late.joined.ready;
    expect(late.seqs).toEqual([1, 2]);
    hub.committed([committed]);
    expect([early.seqs, late.seqs]).toEqual([[3], [1, 2, 3]]);
    await scene.close();
  });
});

describe("many clients", () => {
  test("read the journal a few at a time, and a page that they share once", async () => {
    const scene = await createHubHarness({ limits: { coldReads: 8 } });
    for (let each = 0; each < 100; each++) await scene.commit(`s${each}`, { say: 2 });
    scene.isLoaded = false;
    const clients = upTo(1_000).map((each) => joinAs(scene.hub("owner"), `s${each % 100}`));
    await Promise.all(clients.map(({ joined }) => joined.ready));
    for (const client of clients) expect(client.seqs).toEqual([1, 2]);
    expect(scene.reads.most).toBeLessThanOrEqual(8);
    expect(scene.reads.most).toBeGreaterThan(4);
    expect(scene.reads.headers).toBe(100);
    expect(scene.reads.pages).toBe(100);
    await scene.close();
  });

  test("that join hold up nothing for live subscribers, however large it is", async () => {
    const scene = await createHubHarness({ limits: { coldReads: 1 }, liveApart: true });
    for (const each of ["s", "a", "b"]) await scene.commit(each, { say: 1 });
    const hub = scene.hub("gateway");
    const live = joinAs(hub, "s");
    const quiet = ["a", "b"].map((each) => joinAs(hub, each, { lastSeq: 1 }));
    await Promise.all([live, ...quiet].map(({ joined }) => joined.ready));
    await scene.clock.advance(2_000);
    scene.gate = Promise.withResolvers<void>();
    const strangers = ["a", "b"].map((each) => joinAs(hub, each));
    await eventLoopTurns();
    expect(hub.load().coldReads).toMatchObject({ underWay: 1, waiting: 1 });
    // More than an envelope holds.
    await scene.commit("s", { say: 1, bytes: 300_000 });
    await scene.clock.advance(500);
    expect(live.seqs).toEqual([1, 2]);
    scene.gate.resolve();
    await Promise.all(strangers.map(({ joined }) => joined.ready));
    await scene.close();
  });

  test("wait for the journal no longer than they may, nor for a hub that closes", async () => {
    const scene = await createHubHarness({ limits: { coldReads: 1, coldWaitMs: 5_000 } });
    for (const each of ["a", "b", "c"]) await scene.commit(each, { say: 1 });
    scene.isLoaded = false;
    scene.gate = Promise.withResolvers<void>();
    const hub = scene.hub("owner");
    const [first, second] = ["a", "b"].map((each) => joinAs(hub, each));
    await scene.clock.advance(5_000);
    expect(second!.failed).toMatchObject({ code: "store_busy" });
    const third = joinAs(hub, "c");
    await eventLoopTurns();
    hub.close();
    await eventLoopTurns();
    expect(third.failed).toMatchObject({ code: "closed" });
    scene.gate.resolve();
    await eventLoopTurns();
    expect(hub.load().coldReads).toEqual({ underWay: 0, waiting: 0 });
    expect(first!.failed).toMatchObject({ code: "closed" });
    await scene.close();
  });

  test("that are too slow get no more, and others do", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const hub = scene.hub("owner");
    const slow = joinAs(hub, "s", { lastSeq: 0 }, { push: (event) => event.type === "joined" });
    const other = joinAs(hub, "s");
    await Promise.all([slow.joined.ready, other.joined.ready]);
    await scene.commit("s", { say: 1 });
    expect(slow.seqs).toEqual([1]);
    expect(other.seqs).toEqual([1, 2]);
    const late = joinAs(hub, "s", { lastSeq: 2 }, { push: (event) => event.type !== "entries" });
    await late.joined.ready;
    await scene.commit("s", { say: 1 });
    await scene.commit("s", { say: 1 });
    expect(late.seqs).toEqual([3]);
    await scene.close();
  });

  test("that have left get nothing", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const hub = scene.hub("owner");
    const [early, late] = [joinAs(hub, "s"), joinAs(hub, "s")];
    early.joined.leave();
    await late.joined.ready;
    await early.joined.ready;
    late.joined.leave();
    await scene.commit("s", { say: 1 });
    expect([early.events.length, late.seqs]).toEqual([0, [1]]);
    await scene.close();
  });

  test("leave no timer behind, and a session without subscribers is dropped", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const hub = scene.hub("owner");
    const client = joinAs(hub, "s");
    await client.joined.ready;
    expect(scene.clock.timers).toBe(1);
    client.joined.leave();
    await scene.clock.advance(5_000);
    expect(scene.clock.timers).toBe(0);
    const last = joinAs(hub, "s");
    await last.joined.ready;
    hub.close();
    expect(last.failed).toMatchObject({ code: "closed" });
    expect(scene.clock.timers).toBe(0);
    await scene.close();
  });

  test("find the last entries in memory, within its bounds", async () => {
    const limits = { ringBytes: 20_000, ringsBytes: 50_000 };
    const scene = await createHubHarness({ limits });
    const hub = scene.hub("owner");
    const keep = [];
    for (let each = 0; each < 10; each++) {
      await scene.commit(`s${each}`, { say: 1 });
      keep.push(joinAs(hub, `s${each}`));
      await keep.at(-1)!.joined.ready;
      for (let said = 0; said < 50; said++)
        await scene.commit(`s${each}`, { say: 1, bytes: 1_000 });
    }
    const before = scene.reads.pages;
    const recent = joinAs(hub, "s9", { lastSeq: 45 });
    await recent.joined.ready;
    expect(scene.reads.pages).toBe(before);
    const old = joinAs(hub, "s0", { lastSeq: 45 });
    const older = joinAs(hub, "s9", { lastSeq: 0 });
    await Promise.all([old.joined.ready, older.joined.ready]);
    expect(scene.reads.pages).toBeGreaterThan(before);
    expect([recent.seqs, old.seqs, older.seqs]).toEqual([upTo(51, 46), upTo(51, 46), upTo(51)]);
    await scene.close();
  });
});
