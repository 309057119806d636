import { describe, expect, test } from "vitest";
import type { Json } from "../../base/json.ts";
import type { Bus } from "../../bus/bus.ts";
import { createHubHarness, joinAs, settled, upTo } from "../contract/delivery-harness.ts";

describe("a session that another pod owns", () => {
  test.each([true, false])("is followed there (in its memory: %s)", async (isLoaded) => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 3 });
    scene.isLoaded = isLoaded;
    const client = joinAs(scene.hub("gateway"), "s", { lastSeq: 1 });
    await client.joined.ready;
    await scene.commit("s", { say: 2 });
    await settled();
    expect(client.seqs).toEqual([2, 3, 4, 5]);
    // What the owner has in memory isn't read.
    expect(scene.reads.headers).toBe(isLoaded ? 0 : 1);
    await scene.close();
  });

  test("is sent in one envelope for all that happens at once", async () => {
    let letters = 0;
    const scene = await createHubHarness({
      carry({ text }, arrive) {
        if (text.includes("session.committed")) letters++;
        queueMicrotask(arrive);
      },
    });
    const ids = upTo(20).map((each) => `s${each}`);
    for (const id of ids) await scene.commit(id, { say: 1 });
    const clients = ids.map((id) => joinAs(scene.hub("gateway"), id));
    await Promise.all(clients.map(({ joined }) => joined.ready));
    const committed = [];
    for (const id of ids) committed.push(await scene.store(id, { say: 1 }));
    scene.hub("owner").committed(committed);
    await settled();
    expect(letters).toBe(1);
    for (const client of clients) expect(client.seqs).toEqual([1, 2]);
    await scene.close();
  });

  test.each(["the next envelope", "the next second"])(
    "that lost an envelope is complete with %s",
    async (by) => {
      let losing = false;
      const scene = await createHubHarness({
        carry: ({ text }, arrive) =>
          losing && text.includes("session.committed") ? "lost" : queueMicrotask(arrive),
      });
      await scene.commit("s", { say: 1 });
      await scene.commit("other", { say: 1 });
      const client = joinAs(scene.hub("gateway"), "s");
      const other = joinAs(scene.hub("gateway"), "other");
      await Promise.all([client.joined.ready, other.joined.ready]);
      losing = true;
      await scene.commit("s", { say: 2, turn: {} });
      await settled();
      losing = false;
      expect(client.seqs).toEqual([1]);
      // Even one about another session shows that something is missing.
      if (by === "the next envelope") await scene.commit("other", { say: 1 });
      else await scene.clock.advance(1_000);
      await settled();
      expect(client.seqs).toEqual([1, 2, 3]);
      expect(client.state).toContain("catching_up");
      await scene.close();
    },
  );

  test.each(["by what it has", "by how many it has, as earlier releases do"])(
    "S5: is followed, also where its owner missed both it and that another one is left, and answers %s",
    async (how) => {
      let losing = false;
      const scene = await createHubHarness({
        carry: ({ text }, arrive) =>
          losing && text.includes("session.follow") ? "lost" : queueMicrotask(arrive),
        ...(how !== "by what it has" && { between: (bus) => answering(bus, withoutDigests) }),
      });
      await scene.commit("s", { say: 1 });
      await scene.commit("left", { say: 1 });
      const other = joinAs(scene.hub("gateway"), "left");
      await other.joined.ready;
      other.joined.leave();
      await scene.clock.advance(1_500);
      losing = true;
      const client = joinAs(scene.hub("gateway"), "s");
      await scene.clock.advance(1_200);
      losing = false;
      await client.joined.ready;
      await scene.commit("s", { say: 2 });
      await scene.clock.advance(3_000);
      expect(client.seqs).toEqual(upTo(3));
      await scene.close();
    },
  );

  test("S5: is requested again where its owner has as many sessions, and others", async () => {
    let asked = 0;
    let isAnother = false;
    const scene = await createHubHarness({
      carry({ text }, arrive) {
        if (text.includes("session.follow")) asked++;
        queueMicrotask(arrive);
      },
      between: (bus) =>
        answering(bus, (answer) => (isAnother ? { ...answer, sessionsDigest: "another" } : answer)),
    });
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    asked = 0;
    await scene.clock.advance(3_000);
    expect(asked).toBe(0);
    isAnother = true;
    await scene.clock.advance(1_000);
    expect(asked).toBe(1);
    await scene.close();
  });

  test("that was deleted isn't kept by its owner, even where its gateway's envelope is lost", async () => {
    let losing = false;
    const kept: unknown[] = [];
    const scene = await createHubHarness({
      carry: ({ text }, arrive) =>
        losing && text.includes("session.follow") ? "lost" : queueMicrotask(arrive),
      between: (bus) => answering(bus, (answer) => (kept.push(answer["sessions"]), answer)),
    });
    await scene.commit("s", { say: 1 });
    await scene.commit("gone", { say: 1 });
    const clients = ["s", "gone"].map((each) => joinAs(scene.hub("gateway"), each));
    await Promise.all(clients.map(({ joined }) => joined.ready));
    losing = true;
    await scene.commit("gone", { status: "deleted" });
    await scene.clock.advance(2_000);
    expect(clients[1]!.events.at(-1)).toEqual({ type: "deleted" });
    expect(kept).toEqual([1, 1]);
    await scene.close();
  });

  test("that was deleted before it was followed isn't kept by its owner either", async () => {
    const kept: unknown[] = [];
    const scene = await createHubHarness({
      carry: ({ text }, arrive) => (text.includes('"drop"') ? "lost" : queueMicrotask(arrive)),
      between: (bus) => answering(bus, (answer) => (kept.push(answer["sessions"]), answer)),
    });
    await scene.commit("s", { say: 1 });
    await scene.commit("gone", { status: "deleted" });
    const clients = ["s", "gone"].map((each) => joinAs(scene.hub("gateway"), each));
    await clients[0]!.joined.ready;
    await scene.clock.advance(1_000);
    expect(clients[1]!.failed).toMatchObject({ code: "not_found" });
    expect(kept).toEqual([1]);
    await scene.close();
  });

  test("that is joined while its owner sends what it has isn't requested again as a whole", async () => {
    let isJoining = false;
    let asked = 0;
    const scene = await createHubHarness({
      carry({ text }, arrive) {
        if (text.includes('"only"')) asked++;
        queueMicrotask(arrive);
      },
      between: (bus) =>
        answering(bus, (answer) => {
          if (isJoining) clients.push(joinAs(scene.hub("gateway"), "other"));
          isJoining = false;
          return answer;
        }),
    });
    await scene.commit("s", { say: 1 });
    await scene.commit("other", { say: 1 });
    const clients = [joinAs(scene.hub("gateway"), "s")];
    await clients[0]!.joined.ready;
    isJoining = true;
    await scene.clock.advance(1_000);
    await clients[1]!.joined.ready;
    expect(clients[1]!.seqs).toEqual([1]);
    expect(asked).toBe(0);
    await scene.close();
  });

  test("is followed at its next owner, with what the last one never published", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    await scene.store("s", { say: 1 });
    scene.owner = undefined;
    await scene.clock.advance(1_000);
    scene.seenOwner = undefined;
    await scene.clock.advance(2_000);
    await settled();
    expect(client.seqs).toEqual([1, 2]);
    scene.owner = "next";
    await scene.commit("s", { say: 1 });
    scene.seenOwner = "next";
    await scene.clock.advance(2_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(client.seqs).toEqual(upTo(4));
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("is followed elsewhere where this pod has lost it, and here where it has taken it", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const here = joinAs(scene.hub("owner"), "s");
    const there = joinAs(scene.hub("next"), "s");
    await Promise.all([here.joined.ready, there.joined.ready]);
    await scene.clock.advance(2_000);
    await scene.store("s", { say: 1 });
    // The pod that has lost it hasn't heard of that, and only knows that its beats don't get through.
    scene.owner = scene.seenOwner = "next";
    scene.isSure = false;
    await scene.clock.advance(2_000);
    expect([here.seqs, there.seqs]).toEqual([upTo(2), upTo(2)]);
    await scene.commit("s", { say: 1 });
    await settled();
    expect([here.seqs, there.seqs]).toEqual([upTo(3), upTo(3)]);
    await scene.close();
  });

  test("is read from the journal where its owner doesn't answer", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 2 });
    scene.seenOwner = "nobody";
    const client = joinAs(scene.hub("gateway"), "s");
    await settled();
    await scene.clock.advance(1_000);
    await client.joined.ready;
    expect(client.seqs).toEqual([1, 2]);
    await scene.close();
  });

  test("is read from the journal where an envelope would be too large", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    await scene.commit("s", { say: 1, bytes: 400_000 });
    await scene.commit("s", { say: 1 });
    await settled();
    expect(client.seqs).toEqual([1, 2, 3]);
    await scene.close();
  });

  test("isn't sent to silent processes any more", async () => {
    let letters = 0;
    let cut = false;
    const scene = await createHubHarness({
      carry({ text, from }, arrive) {
        if (text.includes("session.committed")) letters++;
        return cut && from === "gateway" ? "lost" : queueMicrotask(arrive);
      },
    });
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    await scene.clock.advance(20_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(letters).toBe(1);
    cut = true;
    await scene.clock.advance(8_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(letters).toBe(1);
    cut = false;
    await scene.clock.advance(3_000);
    expect(client.seqs).toEqual([1, 2, 3]);
    client.joined.leave();
    await scene.clock.advance(10_000);
    await scene.commit("s", { say: 1 });
    await settled();
    expect(letters).toBe(1);
    expect(scene.clock.timers).toBe(0);
    await scene.close();
  });

  test("isn't followed for subscribers that left before its owner was found", async () => {
    let letters = 0;
    const scene = await createHubHarness({
      carry(_envelope, arrive) {
        letters++;
        queueMicrotask(arrive);
      },
    });
    await scene.commit("s", { say: 1 });
    scene.gate = Promise.withResolvers();
    const client = joinAs(scene.hub("gateway"), "s");
    await settled();
    client.joined.leave();
    await scene.clock.advance(5_000);
    scene.gate.resolve();
    await scene.clock.advance(10_000);
    expect([letters, scene.clock.timers, client.events]).toEqual([0, 0, []]);
    await scene.close();
  });

  test("is delivered whatever pods of other releases send", async () => {
    const odd = [null, 7, "x", [], {}, { sessions: 3 }, { sessions: [null, { sessionId: 4 }] }];
    const more = [
      { born: -1, envelopes: "1", sessions: [{ sessionId: "s", view: { lastSeq: 90 } }] },
      { born: 1, envelopes: 1, sessions: [{ sessionId: "s", view: null, entries: [{ seq: 2 }] }] },
      { live: [{ sessionId: "s", epoch: 1, attempt: 1, index: 0, chunks: [7] }] },
      { touched: [{ tenant: 1 }] },
    ];
    let foreign: ((topic: string, body: never) => void) | undefined;
    const scene = await createHubHarness({
      between(bus) {
        foreign ??= (topic, body) => bus.send("gateway", topic, body);
        return bus;
      },
    });
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("gateway"), "s");
    await client.joined.ready;
    for (const body of [...odd, ...more]) {
      for (const topic of [
        "follow",
        "watch",
        "moved",
        "committed",
        "touched",
        "listen",
        "chunks",
      ]) {
        foreign!(`session.${topic}`, body as never);
      }
    }
    await settled();
    await scene.commit("s", { say: 1 });
    await scene.clock.advance(2_000);
    expect(client.seqs).toEqual([1, 2]);
    expect(client.failed).toBeUndefined();
    await scene.close();
  });

  test("is joined again where its log was replaced by another", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s");
    await client.joined.ready;
    const committed = await scene.store("s", { say: 1 });
    scene.hub("owner").committed([{ ...committed, incarnation: "stray" }]);
    await settled();
    // A stray is no reason: the journal still says what it said.
    expect(client.failed).toBeUndefined();
    scene.incarnation = "id-2";
    scene.hub("owner").committed([{ ...committed, incarnation: "id-2" }]);
    await settled();
    expect(client.failed).toMatchObject({ code: "conflict" });
    await scene.close();
  });

  test.each(["is told by its owner before it knows", "hears nothing of its owner"])(
    "is joined again, and is reset once, at a pod that %s",
    async (how) => {
      const scene = await createHubHarness();
      await scene.commit("s", { say: 3 });
      scene.isLoaded = false;
      const gateway = scene.hub("gateway");
      const client = joinAs(gateway, "s");
      await client.joined.ready;
      const committed = await scene.store("s", { say: 1 });
      if (how !== "hears nothing of its owner") {
        scene.hub("owner").committed([{ ...committed, incarnation: "id-2" }]);
      }
      await settled();
      expect(client.failed).toBeUndefined();
      scene.incarnation = "id-2";
      // Nothing more is said in the session.
      await scene.clock.advance(2_000);
      await settled();
      expect(client.failed).toMatchObject({ code: "conflict" });
      const again = joinAs(gateway, "s", { lastSeq: 3, incarnation: "id-1", lastMessageId: "m3" });
      await again.joined.ready;
      await scene.clock.advance(5_000);
      await settled();
      expect(again.events.filter(({ type }) => type === "reset")).toEqual([
        { type: "reset", reason: "incarnation" },
      ]);
      expect(again.seqs).toEqual([1, 2, 3, 4]);
      expect(again.failed).toBeUndefined();
      await scene.close();
    },
  );

  test("is joined again at its owner, too, where that learns it later", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s");
    await client.joined.ready;
    const committed = await scene.store("s", { say: 1 });
    scene.hub("owner").committed([{ ...committed, incarnation: "id-2" }]);
    for (let second = 0; second < 3; second++) await scene.clock.advance(1_000);
    expect(client.failed).toBeUndefined();
    scene.incarnation = "id-2";
    await scene.clock.advance(1_000);
    await settled();
    expect(client.failed).toMatchObject({ code: "conflict" });
    await scene.close();
  });

  test("goes on where a view of an earlier log comes late, which is read a few times and forgotten", async () => {
    const scene = await createHubHarness();
    await scene.commit("s", { say: 1 });
    const client = joinAs(scene.hub("owner"), "s");
    await client.joined.ready;
    const committed = await scene.store("s", { say: 1 });
    scene.hub("owner").committed([{ ...committed, incarnation: "earlier" }]);
    await scene.clock.advance(15_000);
    const { headers } = scene.reads;
    await scene.clock.advance(15_000);
    expect(scene.reads.headers).toBe(headers);
    scene.hub("owner").committed([committed]);
    await settled();
    expect(client.seqs).toEqual([1, 2]);
    expect(client.failed).toBeUndefined();
    await scene.close();
  });
});

type Answer = { readonly [field: string]: Json };

/** A bus whose pod answers otherwise when it is asked how much there was to hear. */
function answering(bus: Bus, change: (answer: Answer) => Answer): Bus {
  return {
    ...bus,
    serve: (topic, handle) =>
      bus.serve(topic, async (body, from) => {
        const answer = await handle(body, from);
        return topic === "session.moved" ? change(answer as Answer) : answer;
      }),
  };
}

function withoutDigests(answer: Answer): Answer {
  return Object.fromEntries(Object.entries(answer).filter(([field]) => !field.endsWith("Digest")));
}
