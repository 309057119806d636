import { expect, test } from "vitest";
import type { Entry } from "../protocol/message.ts";
import { eventsOf } from "./events.ts";
import type { FeedEvent, Sink } from "./service.ts";

function page(from: number, count: number): FeedEvent {
  const entries = Array.from({ length: count }, (_, at): Entry => {
    const seq = from + at;
    const said = { author: "ada", messageId: `m${seq}`, tokens: 1, parts: [], atMs: 0 };
    return { seq, kind: "message", role: "user", ...said };
  });
  return { type: "entries", entries };
}

test("a loop over a long history is given it as fast as it reads, however slow it is", async () => {
  const replay = async (sink: Sink<FeedEvent>) => {
    for (let from = 1; from <= 30_000; from += 6_000) {
      sink.push(page(from, 6_000));
      await sink.drained?.();
    }
  };
  const events = eventsOf((_, sink) => ({ ready: replay(sink), leave() {} }), {});
  const seqs: number[] = [];
  for await (const event of events) {
    if (event.type === "entry") seqs.push(event.entry.seq);
    if (seqs.length % 5_000 === 0) await new Promise(setImmediate);
    if (seqs.length === 30_000) break;
  }
  expect(seqs).toEqual(Array.from({ length: 30_000 }, (_, at) => at + 1));
});

test("a loop that falls behind is ended, with the position where it may begin again", async () => {
  let left = 0;
  const events = eventsOf((_, sink) => {
    const taken = [page(1, 12_000), page(12_001, 1)].map((event) => sink.push(event));
    expect(taken).toEqual([true, false]);
    return { ready: Promise.resolve(), leave: () => left++ };
  }, {});
  const read = async () => {
    let last = 0;
    try {
      for await (const event of events) if (event.type === "entry") last = event.entry.seq;
    } catch (error) {
      return { last, error };
    }
    return { last };
  };
  expect(await read()).toMatchObject({ last: 12_000, error: { code: "overloaded" } });
});
