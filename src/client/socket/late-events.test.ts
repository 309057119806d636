import { describe, expect, test } from "vitest";
import { hello, openSocketState, startSocketState, wanted } from "../contract/socket-state.ts";
import type { SocketInput } from "./connection-state.ts";

const unwanted: SocketInput = { type: "wanted", isWanted: false };
const failed = { type: "failed", error: { message: "away" } };
const refused = { ...failed, error: { code: "unauthorized", message: "no" } };

/** Links that have no connection, each by another way. */
const without = {
  waiting: () => {
    const link = startSocketState();
    link.on(wanted);
    link.receive(failed);
    return link;
  },
  idle: () => {
    const link = openSocketState();
    link.on(unwanted);
    link.receive({ type: "ended", code: 1006 });
    return link;
  },
  offline: () => {
    const link = startSocketState();
    link.on({ type: "network", change: "offline" });
    link.on(wanted);
    return link;
  },
  refused: () => {
    const link = startSocketState({ isRenewable: false });
    link.on(wanted);
    link.receive(refused);
    return link;
  },
};

describe("a connection that isn't open", () => {
  test.each(Object.entries(without))("ignores what comes late: %s", (status, make) => {
    const late = [hello, { type: "heard" }, { type: "ended", code: 1006 }, failed, refused];
    for (const event of [...late, { type: "renewed", expiresInMs: 60_000 }]) {
      const link = make();
      link.effects();
      const before = link.now;
      expect(link.state.status).toBe(status);
      link.receive(event);
      expect(link.now).toEqual(before);
      expect(link.effects()).toEqual([]);
    }
  });

  test("finds out once why it couldn't be opened", () => {
    const link = startSocketState();
    link.on(wanted);
    link.receive({ type: "ended", code: 1006 });
    link.receive({ type: "ended", code: 1006 });
    expect(link.effects()).toEqual(["open", "examine"]);
  });

  test("counts its tries from one again when something is wanted again", () => {
    const link = without.waiting();
    link.on(unwanted);
    expect(link.state).toEqual({ status: "idle" });
    link.on(wanted);
    expect(link.state).toEqual({ status: "connecting", attempt: 1 });
  });

  test("counts its tries from one again, and tries at once, when the network comes back", () => {
    const link = without.waiting();
    link.effects();
    link.on({ type: "network", change: "online" });
    expect(link.state).toEqual({ status: "connecting", attempt: 1 });
    expect(link.effects()).toEqual(["open"]);
    link.on({ type: "network", change: "online" });
    expect(link.effects()).toEqual([]);
  });

  test("stays refused whatever is wanted and whatever the network does", () => {
    const link = without.refused();
    link.effects();
    for (const event of [unwanted, wanted]) link.on(event);
    for (const change of ["offline", "online", "awake"] as const) {
      link.on({ type: "network", change });
    }
    expect(link.state.status).toBe("refused");
    expect(link.effects()).toEqual([]);
  });

  test("doesn't try because a page is shown where there is no network, but does on connect", () => {
    const link = without.offline();
    link.pass(20_000);
    link.on({ type: "network", change: "awake" });
    expect(link.state).toEqual({ status: "offline" });
    link.pass(9_999);
    expect(link.effects()).toEqual([]);
    link.pass(1);
    expect(link.effects()).toEqual(["open"]);
    const told = without.offline();
    told.on({ type: "reconnect" });
    expect(told.effects()).toEqual(["open"]);
  });

  test("opens none for another token, or on connect, where nothing is wanted", () => {
    const link = openSocketState();
    link.on(unwanted);
    link.receive({ type: "ended", code: 4401 });
    expect(link.state).toEqual({ status: "idle" });
    link.on({ type: "reconnect" });
    expect(link.effects()).toEqual([]);
  });
});

describe("a connection that is open", () => {
  test("ends as long after nothing is wanted as if that were reported once", () => {
    const link = openSocketState();
    link.on(unwanted);
    link.pass(6_000);
    link.on(unwanted);
    link.pass(4_000);
    expect(link.effects()).toEqual(["drop"]);
  });

  test("stays while the browser reports that it is offline, and is offline when it is lost then", () => {
    const link = openSocketState();
    link.on({ type: "network", change: "offline" });
    link.receive({ type: "heard" });
    expect(link.state.status).toBe("open");
    link.receive({ type: "ended", code: 1006 });
    expect(link.state).toEqual({ status: "offline" });
  });

  test("pings once, however often it is checked before the answer is due", () => {
    const link = openSocketState();
    link.pass(15_000);
    link.on({ type: "tick", lateMs: 0 });
    expect(link.effects()).toEqual(["ping"]);
  });

  test("requests one token at a time, and none that it can't get", () => {
    const link = startSocketState();
    link.on(wanted);
    link.receive({ ...hello, expiresInMs: 12_000 });
    link.pass(9_000);
    link.on({ type: "tick", lateMs: 0 });
    expect(link.effects()).toEqual(["open", "renew"]);
    const fixed = startSocketState({ isRenewable: false });
    fixed.on(wanted);
    fixed.receive({ ...hello, expiresInMs: 12_000 });
    fixed.pass(14_000);
    expect(fixed.effects()).toEqual(["open"]);
  });

  test("renews in a while where this side's clock shows the token as expired", () => {
    const link = startSocketState();
    link.on(wanted);
    link.receive({ ...hello, expiresInMs: -3_600_000 });
    link.effects();
    link.pass(14_000);
    expect(link.effects()).toEqual([]);
    for (let ms = 0; ms < 20_000; ms += 10_000) {
      link.receive({ type: "heard" });
      link.pass(10_000);
    }
    expect(link.effects()).toEqual(["renew"]);
  });

  test("gets another token each time one expires that had been good for a while", () => {
    const link = openSocketState();
    for (let n = 0; n < 3; n++) {
      link.receive({ type: "ended", code: 4401 });
      expect(link.effects()).toEqual(["open fresh"]);
      link.receive(hello);
      link.pass(1_000);
    }
    link.receive({ type: "ended", code: 4401 });
    link.receive(hello);
    link.pass(999);
    link.receive({ type: "ended", code: 4401 });
    expect(link.state.status).toBe("refused");
  });

  test("that is connected anew may get another token once more", () => {
    const link = startSocketState();
    link.on(wanted);
    link.receive(refused);
    link.on({ type: "reconnect" });
    link.receive(refused);
    expect(link.effects()).toEqual(["open", "open fresh", "drop", "open", "open fresh"]);
    link.receive(refused);
    expect(link.state.status).toBe("refused");
  });
});
