import { describe, expect, test } from "vitest";
import { hello, opened, start, want } from "../contract/link.ts";
import type { LinkEvent } from "./connection-state.ts";

const unwanted: LinkEvent = { type: "wanted", isWanted: false };
const failed = { type: "failed", error: { message: "away" } };
const refused = { ...failed, error: { code: "unauthorized", message: "no" } };

/** Links that have no connection, each by another way. */
const without = {
  waiting: () => {
    const link = start();
    link.on(want);
    link.heard(failed);
    return link;
  },
  idle: () => {
    const link = opened();
    link.on(unwanted);
    link.heard({ type: "ended", code: 1006 });
    return link;
  },
  offline: () => {
    const link = start();
    link.on({ type: "network", change: "offline" });
    link.on(want);
    return link;
  },
  refused: () => {
    const link = start({ isRenewable: false });
    link.on(want);
    link.heard(refused);
    return link;
  },
};

describe("a link that has no connection", () => {
  test.each(Object.entries(without))("heeds nothing that comes late: %s", (status, make) => {
    const late = [hello, { type: "heard" }, { type: "ended", code: 1006 }, failed, refused];
    for (const event of [...late, { type: "renewed", expiresInMs: 60_000 }]) {
      const link = make();
      link.asked();
      const before = link.now;
      expect(link.state.status).toBe(status);
      link.heard(event);
      expect(link.now).toEqual(before);
      expect(link.asked()).toEqual([]);
    }
  });

  test("finds out once why it couldn't be opened", () => {
    const link = start();
    link.on(want);
    link.heard({ type: "ended", code: 1006 });
    link.heard({ type: "ended", code: 1006 });
    expect(link.asked()).toEqual(["open", "examine"]);
  });

  test("counts its tries from one again when something is wanted anew", () => {
    const link = without.waiting();
    link.on(unwanted);
    expect(link.state).toEqual({ status: "idle" });
    link.on(want);
    expect(link.state).toEqual({ status: "connecting", attempt: 1 });
  });

  test("counts its tries from one again, and tries at once, when the network comes back", () => {
    const link = without.waiting();
    link.asked();
    link.on({ type: "network", change: "online" });
    expect(link.state).toEqual({ status: "connecting", attempt: 1 });
    expect(link.asked()).toEqual(["open"]);
    link.on({ type: "network", change: "online" });
    expect(link.asked()).toEqual([]);
  });

  test("stays refused whatever is wanted and whatever the network does", () => {
    const link = without.refused();
    link.asked();
    for (const event of [unwanted, want]) link.on(event);
    for (const change of ["offline", "online", "awake"] as const) {
      link.on({ type: "network", change });
    }
    expect(link.state.status).toBe("refused");
    expect(link.asked()).toEqual([]);
  });

  test("doesn't try because a page is shown where there is no network, but does when told to", () => {
    const link = without.offline();
    link.pass(20_000);
    link.on({ type: "network", change: "awake" });
    expect(link.state).toEqual({ status: "offline" });
    link.pass(9_999);
    expect(link.asked()).toEqual([]);
    link.pass(1);
    expect(link.asked()).toEqual(["open"]);
    const told = without.offline();
    told.on({ type: "reconnect" });
    expect(told.asked()).toEqual(["open"]);
  });

  test("opens none for another token, or because it is told to, where nothing is wanted", () => {
    const link = opened();
    link.on(unwanted);
    link.heard({ type: "ended", code: 4401 });
    expect(link.state).toEqual({ status: "idle" });
    link.on({ type: "reconnect" });
    expect(link.asked()).toEqual([]);
  });
});

describe("a link that is open", () => {
  test("ends as long after nothing is wanted as if that were said once", () => {
    const link = opened();
    link.on(unwanted);
    link.pass(6_000);
    link.on(unwanted);
    link.pass(4_000);
    expect(link.asked()).toEqual(["drop"]);
  });

  test("stays while the network is said to be away, and is offline when it is lost then", () => {
    const link = opened();
    link.on({ type: "network", change: "offline" });
    link.heard({ type: "heard" });
    expect(link.state.status).toBe("open");
    link.heard({ type: "ended", code: 1006 });
    expect(link.state).toEqual({ status: "offline" });
  });

  test("pings once, however often it looks before the answer is due", () => {
    const link = opened();
    link.pass(15_000);
    link.on({ type: "tick", lateMs: 0 });
    expect(link.asked()).toEqual(["ping"]);
  });

  test("asks for one token at a time, and none that it can't get", () => {
    const link = start();
    link.on(want);
    link.heard({ ...hello, expiresInMs: 12_000 });
    link.pass(9_000);
    link.on({ type: "tick", lateMs: 0 });
    expect(link.asked()).toEqual(["open", "renew"]);
    const fixed = start({ isRenewable: false });
    fixed.on(want);
    fixed.heard({ ...hello, expiresInMs: 12_000 });
    fixed.pass(14_000);
    expect(fixed.asked()).toEqual(["open"]);
  });

  test("renews in a while where the clock of this side says that it has expired", () => {
    const link = start();
    link.on(want);
    link.heard({ ...hello, expiresInMs: -3_600_000 });
    link.asked();
    link.pass(14_000);
    expect(link.asked()).toEqual([]);
    for (let ms = 0; ms < 20_000; ms += 10_000) {
      link.heard({ type: "heard" });
      link.pass(10_000);
    }
    expect(link.asked()).toEqual(["renew"]);
  });

  test("gets another token each time one expires that had been good for a while", () => {
    const link = opened();
    for (let n = 0; n < 3; n++) {
      link.heard({ type: "ended", code: 4401 });
      expect(link.asked()).toEqual(["open fresh"]);
      link.heard(hello);
      link.pass(1_000);
    }
    link.heard({ type: "ended", code: 4401 });
    link.heard(hello);
    link.pass(999);
    link.heard({ type: "ended", code: 4401 });
    expect(link.state.status).toBe("refused");
  });

  test("that was told to connect anew may get another token once more", () => {
    const link = start();
    link.on(want);
    link.heard(refused);
    link.on({ type: "reconnect" });
    link.heard(refused);
    expect(link.asked()).toEqual(["open", "open fresh", "drop", "open", "open fresh"]);
    link.heard(refused);
    expect(link.state.status).toBe("refused");
  });
});
