import { describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { seededRandom } from "../../base/random.ts";
import { createSendQueue } from "./send-queue.ts";

function start(most = 1_000) {
  const clock = movableClock();
  const sent: { type: string; ref: number | string; session?: string }[] = [];
  const exchange = createSendQueue({
    maxUnacked: most,
    send: (text) => sent.push(JSON.parse(text) as (typeof sent)[number]),
    refusal: () => undefined,
    onSize: () => {},
    clock,
    random: seededRandom(1),
  });
  const say = (session: string, id: string) =>
    exchange.submit({ type: "send", session, message: { id, parts: [] } });
  return { clock, sent, exchange, say };
}

describe("what goes out", () => {
  test("keeps within what a server takes: 48 that aren't acked, 80 a second after 100 at once", async () => {
    const { clock, sent, exchange, say } = start();
    for (let n = 0; n < 300; n++) void say(`s${n}`, `m${n}`);
    exchange.onOpen(10_000);
    await clock.advance(0);
    expect(sent).toHaveLength(48);
    let acked = 0;
    const ackAll = () => {
      for (; acked < sent.length; acked++) exchange.take({ type: "ack", ref: sent[acked]!.ref });
    };
    for (let round = 0; round < 100 && sent.length < 100; round++) {
      ackAll();
      await clock.advance(0);
    }
    expect(sent).toHaveLength(100);
    for (let ms = 0; ms < 1_000; ms += 10) {
      ackAll();
      await clock.advance(10);
    }
    expect(sent.length).toBeGreaterThan(150);
    expect(sent.length).toBeLessThanOrEqual(181);
  });

  test("has one of each session on its way, and sends again what the connection lost", async () => {
    const { clock, sent, exchange, say } = start();
    exchange.onOpen(10_000);
    const first = say("s", "a");
    void say("s", "b");
    await clock.advance(0);
    expect(sent).toMatchObject([{ message: { id: "a" } }]);
    exchange.onLost();
    exchange.onOpen(10_000);
    await clock.advance(0);
    expect(sent[1]).toEqual(sent[0]);
    exchange.take({ type: "ack", ref: sent[1]!.ref, seq: 1 });
    expect(await first).toMatchObject({ seq: 1 });
    await clock.advance(0);
    expect(sent[2]).toMatchObject({ message: { id: "b" } });
  });

  test.each([
    ["the connection is lost", "forbidden", "unknown_outcome"],
    ["the connection is lost", "not_found", "unknown_outcome"],
    ["the connection is lost", "conflict", "unknown_outcome"],
    ["the server doesn't know", "forbidden", "unknown_outcome"],
    ["it is too much for now", "forbidden", "forbidden"],
  ] as const)("after %s, a refusal as %s is reported as %s", async (what, code, told) => {
    const { clock, sent, exchange, say } = start();
    exchange.onOpen(10_000);
    const asked = say("s", "a");
    asked.catch(() => {});
    await clock.advance(0);
    const { ref } = sent[0]!;
    const error = { type: "error", ref, message: "no", details: {} } as const;
    if (what === "the connection is lost") {
      exchange.onLost();
      exchange.onOpen(10_000);
    } else if (what === "the server doesn't know") {
      exchange.take({ ...error, code: "unknown_outcome" });
    } else exchange.take({ ...error, code: "overloaded" });
    await clock.advance(5_000);
    expect(sent).toHaveLength(2);
    exchange.take({ ...error, code });
    await expect(asked).rejects.toMatchObject({ code: told });
  });

  test("a stop that was refused for now isn't one that may have been done", async () => {
    const { clock, sent, exchange } = start();
    exchange.onOpen(10_000);
    const asked = exchange.submit({ type: "stop", session: "s" });
    await clock.advance(0);
    const error = { type: "error", ref: 1, message: "no", details: {} } as const;
    exchange.take({ ...error, code: "overloaded" });
    exchange.onLost();
    exchange.onOpen(10_000);
    await clock.advance(5_000);
    expect(sent).toHaveLength(2);
    exchange.take({ type: "ack", ref: 1, done: true });
    expect(await asked).toMatchObject({ done: true });
  });

  test("what has gone out isn't called refused when all that waits is given up", async () => {
    const { clock, exchange, say } = start();
    exchange.onOpen(10_000);
    const [sent, unsent] = [say("s", "a"), say("s", "b")].map((each) =>
      each.catch((error: FlotillaError) => error.code),
    );
    await clock.advance(0);
    exchange.rejectAll(new FlotillaError("forbidden", "it speaks for another user now"));
    expect(await Promise.all([sent, unsent])).toEqual(["unknown_outcome", "forbidden"]);
  });

  test("waits as long as the refusal demands, and gives up what is refused for good", async () => {
    const { clock, sent, exchange, say } = start();
    exchange.onOpen(10_000);
    const asked = say("s", "a");
    await clock.advance(0);
    const { ref } = sent[0]!;
    const error = { type: "error", ref, message: "no", details: {} } as const;
    exchange.take({ ...error, code: "overloaded", retryAfterMs: 5_000 });
    await clock.advance(4_900);
    expect(sent).toHaveLength(1);
    await clock.advance(500);
    expect(sent).toHaveLength(2);
    exchange.take({ ...error, code: "invalid_input" });
    await expect(asked).rejects.toMatchObject({ code: "invalid_input" });
    expect(exchange.size).toBe(0);
  });

  test("waits ever longer for what is refused again and again, and reads nothing meanwhile", async () => {
    const { clock, sent, exchange, say } = start();
    exchange.onOpen(10_000);
    void say("s", "a");
    const gapsMs: number[] = [];
    for (let n = 1; n <= 12; n++) {
      const fromMs = clock.monotonic();
      for (let ms = 0; sent.length < n && ms < 30_000; ms += 50) await clock.advance(50);
      gapsMs.push(clock.monotonic() - fromMs);
      // On its way, it has nothing to be woken for.
      expect([sent.length, clock.timers]).toEqual([n, 0]);
      const refused = { code: "overloaded", message: "no", details: {} } as const;
      exchange.take({ type: "error", ref: sent[0]!.ref, ...refused });
    }
    expect(Math.max(...gapsMs.slice(0, 4))).toBeLessThan(2_100);
    expect(Math.max(...gapsMs.slice(6))).toBeGreaterThan(5_000);
  });

  test("takes no more than so many, and nothing that the server wouldn't", async () => {
    const { exchange, say, clock } = start(2);
    const large = exchange.submit({
      type: "send",
      session: "s",
      message: { id: "a", parts: [{ type: "text", text: "x".repeat(500) }] },
    });
    const other = say("s", "b");
    await expect(say("s", "c")).rejects.toMatchObject({ code: "overloaded" });
    const tooLarge = large.catch((error: unknown) => error);
    exchange.onOpen(400);
    await clock.advance(0);
    expect(await tooLarge).toMatchObject({ code: "payload_too_large" });
    exchange.rejectAll(new FlotillaError("closed", "over"));
    await expect(other).rejects.toMatchObject({ code: "closed" });
  });

  test("doesn't repeat a stop that names no turn", async () => {
    const { exchange, clock, sent } = start();
    exchange.onOpen(10_000);
    const bare = exchange.submit({ type: "stop", session: "s" });
    const named = exchange.submit({ type: "stop", session: "t", epoch: 3 });
    await clock.advance(0);
    const unknown = bare.catch((error: unknown) => error);
    exchange.onLost();
    expect(await unknown).toMatchObject({ code: "unknown_outcome" });
    exchange.onOpen(10_000);
    await clock.advance(0);
    expect(sent.slice(2)).toMatchObject([{ type: "stop", session: "t" }]);
    exchange.take({ type: "ack", ref: sent[2]!.ref, done: true });
    expect(await named).toMatchObject({ done: true });
  });

  test("gives up when its signal aborts, before and after it was sent", async () => {
    const { exchange, clock, sent } = start();
    const signal = AbortSignal.abort(new Error("never mind"));
    await expect(exchange.submit({ type: "read", session: "s", seq: 1 }, signal)).rejects.toThrow(
      "never mind",
    );
    const later = new AbortController();
    const asked = exchange.submit({ type: "read", session: "s", seq: 1 }, later.signal);
    exchange.onOpen(10_000);
    await clock.advance(0);
    expect(sent).toHaveLength(1);
    later.abort(new Error("enough"));
    await expect(asked).rejects.toThrow("enough");
    expect(exchange.size).toBe(0);
    // The answer to it may still come.
    const { ref } = sent[0]!;
    exchange.take({ type: "error", ref, code: "overloaded", message: "no", details: {} });
    exchange.take({ type: "ack", ref });
    await clock.advance(60_000);
    expect([sent.length, clock.timers]).toEqual([1, 0]);
  });
});
