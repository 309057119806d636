import { describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import {
  accountOf,
  accountOfAddress,
  type CallerLimits,
  createCallerLimits,
} from "./caller-limits.ts";

const mib = 1024 * 1024;
const user = (name: string) =>
  accountOf({ kind: "user", tenant: "acme", user: name, verbs: new Set() });
const ada = user("ada");
const overloaded = expect.objectContaining({ code: "overloaded" });
const asRead = { isRead: true };

/** A connection that holds what it is told to. */
function connection() {
  const state = { isClosed: false, unflushedBytes: 0, flushedBytes: 0, cuts: 0 };
  return Object.assign(state, { cut: () => void (state.cuts++, (state.isClosed = true)) });
}

/** A request whose connection is told at the same time. */
function visit(limits: CallerLimits, account = ada) {
  const on = connection();
  return { on, ...limits.enter(account, on) };
}

test("a user of all tenants is one caller, whichever tenant it names", () => {
  const limits = createCallerLimits(movableClock(), { requestsAtOnce: { user: 1 } });
  const naming = (tenant: string) =>
    accountOf({ kind: "user", tenant, allTenants: true, user: "ada", verbs: new Set() });
  visit(limits, naming("acme"));
  expect(() => visit(limits, naming("other"))).toThrow(overloaded);
  visit(limits, ada);
});

describe("what waits to be read", () => {
  test("is refused to a read that goes over it, and never to what was done", () => {
    const limits = createCallerLimits(movableClock(), { unreadBytesPerCaller: 4 * mib });
    const [first, second] = [visit(limits), visit(limits)];
    first.answer(3 * mib, asRead);
    expect(() => second.answer(2 * mib, asRead)).toThrow(overloaded);
    second.answer(2 * mib, { isRead: false });
    expect(() => visit(limits)).toThrow(overloaded);
    second.leave();
    visit(limits).answer(mib, asRead);
  });

  test("may be more where it is one answer alone", () => {
    const limits = createCallerLimits(movableClock(), {
      unreadBytesPerCaller: mib,
      unreadBytes: mib,
    });
    const one = visit(limits);
    one.answer(9 * mib, asRead);
    expect(() => visit(limits)).toThrow(overloaded);
    one.leave();
    visit(limits).answer(9 * mib, asRead);
  });

  test("of others is cut for a caller that holds less, the oldest of the one that holds the most", () => {
    const limits = createCallerLimits(movableClock(), { unreadBytes: 10 * mib });
    const eve = Array.from({ length: 6 }, () => visit(limits, user("eve")));
    const bob = Array.from({ length: 4 }, () => visit(limits, user("bob")));
    for (const each of [...bob, ...eve]) each.answer(mib, asRead);
    const cuts = () => [...eve, ...bob].map(({ on }) => on.cuts);
    // The caller that holds the most gets no more.
    expect(() => visit(limits, user("eve")).answer(mib, asRead)).toThrow(overloaded);
    expect(cuts()).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    visit(limits).answer(mib, asRead);
    expect(cuts()).toEqual([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    visit(limits).answer(10, { isRead: false });
    expect(cuts()).toEqual([1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
  });

  test("of sockets and streams counts as well, and the one that holds the most is cut", () => {
    const limits = createCallerLimits(movableClock(), { unreadBytesPerCaller: 4 * mib });
    const [one, other, third] = [visit(limits), visit(limits), visit(limits)];
    one.on.unflushedBytes = 2 * mib;
    expect(one.stream(mib)).toBe(true);
    other.on.unflushedBytes = mib / 2;
    expect(other.stream(0)).toBe(true);
    expect(() => third.answer(mib, asRead)).toThrow(overloaded);
    other.on.unflushedBytes = mib;
    expect(other.stream(1)).toBe(true);
    expect([one.on.cuts, other.on.cuts]).toEqual([1, 0]);
    expect(one.stream(0)).toBe(false);
    third.on.unflushedBytes = 4 * mib;
    expect(third.stream(0)).toBe(false);
    expect([other.on.cuts, third.on.cuts]).toEqual([0, 1]);
  });

  test("counts no longer once the connection has sent it, though no event reports that", () => {
    const limits = createCallerLimits(movableClock(), { unreadBytesPerCaller: mib });
    const socket = visit(limits);
    socket.on.unflushedBytes = 2 * mib;
    socket.stream(0);
    expect(() => visit(limits)).toThrow(overloaded);
    socket.on.unflushedBytes = 0;
    visit(limits).answer(mib, asRead);
  });

  test("is cut where nothing of it is read, and not while some of it is", async () => {
    const clock = movableClock();
    const limits = createCallerLimits(clock, { unreadMs: 1_000 });
    const [slow, large] = [visit(limits), visit(limits)];
    slow.answer(mib, asRead);
    large.answer(3 * mib, asRead);
    slow.on.unflushedBytes = large.on.unflushedBytes = 65_536;
    for (let n = 0; n < 20; n++) {
      slow.on.flushedBytes += 10;
      await clock.advance(750);
    }
    expect([slow.on.cuts, large.on.cuts]).toEqual([0, 1]);
    await clock.advance(1_000);
    expect(slow.on.cuts).toBe(1);
    slow.leave();
    large.leave();
    expect(clock.timers).toBe(0);
  });

  test("isn't watched while there is nothing of it", async () => {
    const clock = movableClock();
    const limits = createCallerLimits(clock);
    const socket = visit(limits);
    socket.on.unflushedBytes = 10;
    socket.stream(0);
    expect(clock.timers).toBe(1);
    socket.on.unflushedBytes = 0;
    await clock.advance(1_000);
    expect(clock.timers).toBe(0);
  });
});

test("a caller with a request under way isn't forgotten for callers that come after it", () => {
  const limits = createCallerLimits(movableClock(), { requestsAtOnce: { user: 1 } });
  const first = visit(limits);
  for (let n = 0; n < 100_050; n++) limits.count(user(`u${n}`));
  expect(() => visit(limits)).toThrow(overloaded);
  first.leave();
  visit(limits);
});

test("a flood of addresses makes no user forgotten", () => {
  const limits = createCallerLimits(movableClock(), { requestsPerSecond: { user: 1 } });
  limits.count(ada);
  limits.count(ada);
  for (let n = 0; n < 100_050; n++) limits.count(accountOfAddress(`10.0.${n >> 8}.${n & 255}`));
  expect(() => limits.count(ada)).toThrow(overloaded);
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
