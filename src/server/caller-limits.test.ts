import { describe, expect, test } from "vitest";
import { movableClock } from "../base/movable-clock.contract.ts";
import { accountOf, accountOfAddress, createCallerLimits } from "./caller-limits.ts";

const mib = 1024 * 1024;
const ada = accountOf({ kind: "user", tenant: "acme", user: "ada", verbs: new Set() });
const overloaded = expect.objectContaining({ code: "overloaded" });
const asRead = { isRead: true, cut: () => {} };

describe("what waits to be read", () => {
  test("is refused to a read that goes over it, and never to what was done", () => {
    const limits = createCallerLimits(movableClock(), { unreadBytesPerCaller: 4 * mib });
    const [first, second] = [limits.enter(ada), limits.enter(ada)];
    first.answer(3 * mib, asRead);
    expect(() => second.answer(2 * mib, asRead)).toThrow(overloaded);
    second.answer(2 * mib, { isRead: false, cut: () => {} });
    expect(() => limits.enter(ada)).toThrow(overloaded);
    second.leave();
    limits.enter(ada).answer(mib, asRead);
  });

  test("may be more where it is one answer alone", () => {
    const limits = createCallerLimits(movableClock(), {
      unreadBytesPerCaller: mib,
      unreadBytes: mib,
    });
    const visit = limits.enter(ada);
    visit.answer(9 * mib, asRead);
    expect(() => limits.enter(ada)).toThrow(overloaded);
    visit.leave();
    limits.enter(ada).answer(9 * mib, asRead);
  });

  test("is cut where nothing of it is read, and not while some of it is", async () => {
    const clock = movableClock();
    const limits = createCallerLimits(clock, { unreadMs: 1_000 });
    let cuts = 0;
    const stream = limits.enter(ada);
    const holds = (bytes: number) => stream.answer(bytes, { isRead: true, cut: () => cuts++ });
    holds(100);
    await clock.advance(900);
    holds(50);
    await clock.advance(900);
    // More is added, and nothing read.
    holds(200);
    expect(cuts).toBe(0);
    await clock.advance(100);
    expect(cuts).toBe(1);
    holds(0);
    await clock.advance(10_000);
    expect(cuts).toBe(1);
    stream.leave();
    expect(clock.timers).toBe(0);
  });
});

test.each([
  ["10.0.0.1", "10.0.0.1"],
  ["::ffff:10.0.0.1", "10.0.0.1"],
  ["::1", "0:0:0:0::/64"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:db8::6", "2001:db8:0:0::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
])("the address %s counts as %s", (address, id) => {
  expect(accountOfAddress(address)).toEqual({ kind: "address", id });
});
