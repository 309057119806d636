import { describe, expect, test } from "vitest";
import { hello, openSocketState, startSocketState, wanted } from "../contract/socket-state.ts";

describe("a connection", () => {
  test("connects when something is wanted, and ends a while after nothing is", () => {
    const link = startSocketState();
    expect(link.state).toEqual({ status: "idle" });
    link.on(wanted);
    expect(link.state).toEqual({ status: "connecting", attempt: 1 });
    link.receive({ ...hello, user: "ada" });
    expect(link.state).toEqual({ status: "open", tenant: "default", user: "ada" });
    link.on({ type: "wanted", isWanted: false });
    link.pass(9_000);
    link.on(wanted);
    link.receive({ type: "heard" });
    link.pass(9_000);
    expect(link.state.status).toBe("open");
    link.on({ type: "wanted", isWanted: false });
    link.receive({ type: "heard" });
    link.pass(10_000);
    expect(link.state).toEqual({ status: "idle" });
    expect(link.effects()).toEqual(["open", "drop"]);
  });

  test("waits ever longer between tries, by chance, 20 seconds at most", () => {
    const link = startSocketState();
    link.on(wanted);
    const waits: number[] = [];
    for (let n = 0; n < 9; n++) {
      link.receive({ type: "ended", code: 1006 });
      link.receive({ type: "failed", error: { message: "away" } }, 0.999999);
      const waitMs = link.state.status === "waiting" ? link.state.retryInMs : Number.NaN;
      waits.push(waitMs);
      link.pass(waitMs);
    }
    expect(waits).toEqual([250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000]);
  });

  test("comes back sooner where a connection had held, or was open at all", () => {
    const link = openSocketState();
    const waits: number[] = [];
    for (let n = 0; n < 6; n++) {
      link.receive({ type: "ended", code: 1006 }, 0.999999);
      if (link.state.status === "waiting") waits.push(link.state.retryInMs);
      link.pass(2_000);
      link.receive(hello);
    }
    expect(waits).toEqual([250, 500, 1_000, 2_000, 2_000, 2_000]);
    link.pass(6_000);
    link.receive({ type: "ended", code: 1006 }, 0.999999);
    expect(link.state).toMatchObject({ status: "waiting", retryInMs: 250 });
  });

  test.each([
    [1001, 0.5, 250],
    [4408, 0.5, 125],
    [4429, 0.5, 7_500],
  ])("comes back after %i as the close code demands", (code, chance, retryInMs) => {
    const link = openSocketState();
    link.receive({ type: "ended", code }, chance);
    expect(link.state).toMatchObject({ status: "waiting", retryInMs });
  });

  test("pings a silent server, and gives up one that doesn't answer", () => {
    const link = openSocketState();
    link.pass(15_000);
    expect(link.effects()).toEqual(["ping"]);
    link.receive({ type: "heard" });
    link.pass(15_000);
    expect(link.effects()).toEqual(["ping"]);
    link.pass(10_000);
    expect(link.effects()).toEqual(["drop"]);
    link.pass(250);
    expect(link.effects()).toEqual(["open"]);
  });

  test.each(["late tick", "awake", "offline"])(
    "pings after sleep to learn whether it still lives: %s",
    (how) => {
      const link = openSocketState();
      if (how === "late tick") link.on({ type: "tick", lateMs: 60_000 });
      else link.on({ type: "network", change: how as "awake" });
      expect(link.effects()).toEqual(["ping"]);
      link.pass(3_000);
      expect(link.effects()[0]).toBe("drop");
    },
  );

  test("stops trying where there is no network, but for a try now and then", () => {
    const link = startSocketState();
    link.on(wanted);
    link.on({ type: "network", change: "offline" });
    expect(link.state).toEqual({ status: "offline" });
    link.effects();
    link.pass(29_999);
    expect(link.effects()).toEqual([]);
    link.pass(1);
    expect(link.effects()).toEqual(["open"]);
    link.receive({ type: "failed", error: { message: "away" } });
    expect(link.state).toEqual({ status: "offline" });
    link.on({ type: "network", change: "online" });
    expect(link.effects()).toEqual(["open"]);
  });

  test("gets another token once, and then is refused until a new token is set", () => {
    const link = startSocketState();
    const refused = { type: "failed", error: { code: "unauthorized", message: "no" } };
    link.on(wanted);
    link.receive({ type: "ended", code: 1006 });
    link.receive(refused);
    link.receive({ type: "ended", code: 1006 });
    link.receive(refused);
    expect(link.effects()).toEqual(["open", "examine", "open fresh", "examine"]);
    expect(link.state).toMatchObject({ status: "refused", error: { code: "unauthorized" } });
    link.pass(600_000);
    expect(link.effects()).toEqual([]);
    link.on({ type: "reconnect" });
    expect(link.effects()).toEqual(["open"]);
  });

  /** Something answers, over and over, and it isn't a server of ours. */
  const strayed = (link: ReturnType<typeof startSocketState>, tries: number) => {
    for (let n = 0; n < tries; n++) {
      link.receive({ type: "ended", code: 1006 });
      link.receive({ type: "failed", error: { code: "not_found", message: "/v1 answered 404" } });
      if (link.state.status === "waiting") link.pass(link.state.retryInMs);
    }
  };

  test("gives up where another program answers from the first try on, and reports it", () => {
    const link = startSocketState();
    link.on(wanted);
    strayed(link, 7);
    expect(link.state).toMatchObject({ status: "connecting", attempt: 8 });
    strayed(link, 1);
    const error = { code: "invalid_option", message: "wrong url: /v1 answered 404" };
    expect(link.state).toMatchObject({ status: "refused", error });
    link.effects();
    link.pass(600_000);
    link.on({ type: "network", change: "offline" });
    expect(link.effects()).toEqual([]);
    link.on({ type: "reconnect" });
    expect(link.effects()).toEqual(["open"]);
    link.receive(hello);
    expect(link.state.status).toBe("open");
  });

  test.each(["online", "awake"] as const)(
    "tries as often again where another program answered, once the network or the page is back: %s",
    (change) => {
      const link = startSocketState();
      link.on(wanted);
      strayed(link, 8);
      expect(link.state.status).toBe("refused");
      link.effects();
      link.on({ type: "network", change });
      expect(link.effects()).toEqual(["open"]);
      expect(link.state).toEqual({ status: "connecting", attempt: 1 });
      strayed(link, 7);
      expect(link.state).toMatchObject({ status: "connecting", attempt: 8 });
      strayed(link, 1);
      expect(link.state.status).toBe("refused");
    },
  );

  const unlike: [string, (link: ReturnType<typeof startSocketState>) => void][] = [
    ["away", (link) => link.receive({ type: "failed", error: { message: "away" } })],
    ["silent", (link) => link.pass(10_000)],
    [
      "unauthorized",
      (link) => link.receive({ type: "failed", error: { code: "unauthorized", message: "no" } }),
    ],
    ["told to connect", (link) => link.on({ type: "reconnect" })],
  ];
  test.each(unlike)("gives up only after such answers in a row, not: %s", (_, happen) => {
    const link = startSocketState();
    link.on(wanted);
    strayed(link, 7);
    happen(link);
    if (link.state.status === "waiting") link.pass(link.state.retryInMs);
    strayed(link, 7);
    expect(link.state.status).toBe("connecting");
    strayed(link, 1);
    expect(link.state.status).toBe("refused");
  });

  test("counts no other failures towards giving up", () => {
    const link = startSocketState();
    link.on(wanted);
    for (let n = 0; n < 20; n++) {
      link.receive({ type: "failed", error: { message: "away" } });
      if (link.state.status === "waiting") link.pass(link.state.retryInMs);
    }
    strayed(link, 1);
    expect(link.state.status).toBe("connecting");
  });

  test("never gives up for that reason where its server was once", () => {
    const link = openSocketState();
    link.pass(60_000);
    link.receive({ type: "ended", code: 1006 });
    link.pass(20_000);
    strayed(link, 50);
    expect(link.state).toMatchObject({ status: "connecting" });
  });

  test("is refused at once where there is no other token to be had", () => {
    const link = openSocketState({ isRenewable: false });
    link.receive({ type: "ended", code: 4401 });
    expect(link.state.status).toBe("refused");
  });

  test("renews a token before it expires, and again where that fails", () => {
    const link = startSocketState();
    link.on(wanted);
    link.receive({ ...hello, expiresInMs: 12_000 });
    link.effects();
    link.pass(8_999);
    expect(link.effects()).toEqual([]);
    link.pass(1);
    expect(link.effects()).toEqual(["renew"]);
    link.receive({ type: "renewed" });
    link.pass(5_000);
    expect(link.effects()).toEqual(["renew"]);
    link.receive({ type: "ended", code: 4401 });
    expect(link.effects()).toEqual(["open fresh"]);
  });

  test("ignores events of an older connection", () => {
    const link = openSocketState();
    const old = link.connection;
    link.receive({ type: "ended", code: 1006 });
    link.pass(1_000);
    link.receive(hello);
    link.on({ type: "ended", connection: old, code: 1006 });
    expect(link.state.status).toBe("open");
  });

  test("does nothing any more once it is closed", () => {
    const link = openSocketState();
    link.on({ type: "close" });
    link.on(wanted);
    link.on({ type: "reconnect" });
    link.pass(60_000);
    expect(link.effects()).toEqual(["drop"]);
    expect(link.state).toEqual({ status: "closed" });
  });
});
