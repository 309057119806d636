import { beforeAll, describe, expect, test } from "vitest";
import { simulatedClient } from "./contract/simulated-client.ts";
import { calm } from "./contract/simulated-network.ts";
import { errorFromWire } from "./http.ts";
import type { SessionEvent } from "./index.ts";
import { createListenerSet } from "./observable.ts";
import { readEvents } from "./session/reader.ts";
import { loadLazyModule } from "./session/view.ts";

function simulated() {
  const { clock, server, client, count } = simulatedClient();
  const write = (session: string, count: number) => {
    for (let n = 0; n < count; n++) server.write(session, `${session} ${n}`);
  };
  return { clock, server, client, count, write };
}

// Loaded beside, which takes a time that the clock of a test doesn't know.
beforeAll(() => loadLazyModule());

describe("a client keeps bounds", () => {
  test("on how often it sends a join that is refused", async () => {
    const { clock, server, client, count } = simulated();
    server.faults = { ...calm, refused: 1 };
    client.session("a").subscribe(() => {});
    await clock.advance(120_000);
    const joins = count("join");
    expect(joins).toBeGreaterThan(5);
    expect(joins).toBeLessThan(40);
    client.close();
  });

  test("on what it keeps of sessions without subscribers", async () => {
    const { clock, client, write } = simulated();
    const names = Array.from({ length: 40 }, (_, n) => `s${n}`);
    for (const name of names) write(name, 2);
    const leaves = names.map((name) => client.session(name).subscribe(() => {}));
    await clock.advance(10_000);
    for (const leave of leaves) leave();
    await clock.advance(10_000);
    const kept = names.filter((name) => client.session(name).get().messages.length > 0);
    expect(kept).toEqual(names.slice(10));
    client.close();
  });

  test("on what it shows of messages that were refused", async () => {
    const { clock, client } = simulated();
    const session = client.session("a");
    session.subscribe(() => {});
    await clock.advance(2_000);
    const large = "x".repeat(10_001);
    const refused = Array.from({ length: 60 }, (_, n) => session.send(large, { id: `m${n}` }));
    const codes = refused.map((each) => each.then(String, ({ code }: { code: string }) => code));
    await clock.advance(10_000);
    expect(new Set(await Promise.all(codes))).toEqual(new Set(["payload_too_large"]));
    const { unsent, messages } = session.get();
    expect(unsent.map(({ id }) => id)).toEqual(codes.map((_, n) => `m${n}`).slice(10));
    expect(messages).toEqual([]);
    client.close();
  });

  test("on what waits for a reader, which gets what there was before", async () => {
    const { clock, client, write } = simulated();
    write("a", 5);
    const events = client.session("a").events({ after: 3 });
    // Asked for at once, they come in order.
    const both = [events.next(), events.next()];
    await clock.advance(2_000);
    expect(await Promise.all(both)).toMatchObject([
      { value: { type: "joined", lastSeq: 5 } },
      { value: { type: "entry", entry: { seq: 4 } } },
    ]);
    client.close();
  });

  test("on what waits for a reader that is too slow, which then follows no longer", async () => {
    const listeners = createListenerSet<[SessionEvent]>();
    const events = readEvents({ replay: () => [], on: listeners.add }, {}, errorFromWire);
    const first = events.next();
    for (let n = 0; n < 20_002; n++) listeners.emit({ type: "away" });
    await first;
    expect(listeners.size).toBe(0);
    let read = 0;
    const rest = (async () => {
      for await (const _ of events) read++;
    })();
    await expect(rest).rejects.toMatchObject({ code: "overloaded" });
    // The first is one of those that may wait.
    expect(read).toBe(19_999);
  });
});
