import { describe, expect, test } from "vitest";
import {
  type Link,
  type LinkEvent,
  nextLink,
  noLink,
  topicsToWatch,
  viewsAfter,
} from "./stream.ts";

const after = (link: Link, ...events: readonly LinkEvent[]) =>
  events.reduce<ReturnType<typeof nextLink>>((last, event) => nextLink(last.link, event, 1), {
    link,
  });
const wanted = (...topics: string[]): LinkEvent => ({ type: "wanted", topics });
const lost: LinkEvent = { type: "lost", cause: "away" };
const due: LinkEvent = { type: "due" };

describe("the stream of topics", () => {
  test("is opened when something is in sight, and closed when nothing is", () => {
    const opening = after(noLink, wanted("pods"));
    expect(opening).toEqual({
      link: { phase: "opening", topics: ["pods"], failures: 0 },
      act: { type: "open", topics: ["pods"] },
    });
    const open = after(opening.link, { type: "opened" });
    expect(open).toEqual({ link: { phase: "open", topics: ["pods"], failures: 0 } });
    expect(after(open.link, wanted("pods"))).toEqual({ link: open.link });
    expect(after(open.link, wanted())).toEqual({ link: noLink, act: { type: "close" } });
    expect(after(noLink, wanted())).toEqual({ link: noLink });
  });

  test("is opened anew for other topics, also while it waits for its next try", () => {
    const open = after(noLink, wanted("pods"), { type: "opened" }).link;
    expect(after(open, wanted("flows", "pods")).act).toEqual({
      type: "open",
      topics: ["flows", "pods"],
    });
    const waiting = after(open, lost).link;
    expect(after(waiting, wanted("flows")).act).toEqual({ type: "open", topics: ["flows"] });
    expect(after(waiting, wanted("pods")).act).toBeUndefined();
  });

  test("is tried again, later after each failure, and at once less often after a refusal", () => {
    let { link } = after(noLink, wanted("pods"), { type: "opened" });
    const waits: number[] = [];
    for (let times = 0; times < 8; times++) {
      const next = after(link, lost);
      if (next.act?.type === "wait") waits.push(next.act.ms);
      const again = after(next.link, due);
      expect(again.act).toEqual({ type: "open", topics: ["pods"] });
      ({ link } = again);
    }
    expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
    const refused = after(link, { type: "lost", cause: "refused" });
    expect(refused.act).toEqual({ type: "wait", ms: 30_000 });
    // Only what is heard is a success: a proxy may open a stream and cut it.
    expect(after(link, { type: "opened" }, lost).act).toEqual({ type: "wait", ms: 10_000 });
    expect(after(link, { type: "opened" }, { type: "heard" }, lost).act).toEqual({
      type: "wait",
      ms: 500,
    });
  });

  test("isn't tried by all tabs at the same time", () => {
    const { link } = after(noLink, wanted("pods"));
    const waits = [0, 0.5, 1].map((chance) => nextLink(link, lost, chance).act);
    expect(waits).toEqual([250, 375, 500].map((ms) => ({ type: "wait", ms })));
  });

  test("stays closed when a late loss or a late timer comes", () => {
    expect(after(noLink, lost)).toEqual({ link: noLink });
    expect(after(noLink, due)).toEqual({ link: noLink });
    const open = after(noLink, wanted("pods"), { type: "opened" }).link;
    expect(after(open, due)).toEqual({ link: open });
  });

  test("has each topic once, and no more than a server allows", () => {
    expect(topicsToWatch(["pods", "flows", "pods"])).toEqual(["flows", "pods"]);
    const many = Array.from({ length: 40 }, (_, at) => `task:${at}`);
    expect(topicsToWatch(["pods", ...many])).toHaveLength(16);
    expect(topicsToWatch(["pods", ...many])).toContain("pods");
  });
});

describe("what is known of topics", () => {
  const snapshot = {
    type: "snapshot",
    topic: "pods",
    atMs: 1,
    data: { pods: { a: { beat: 1 }, b: { beat: 1 } } },
  } as const;

  test("is a snapshot with its patches, and the rest is as it was", () => {
    const first = viewsAfter(new Map(), snapshot);
    const patch = { in: { pods: { in: { a: { set: { beat: 2 } } } } } };
    const second = viewsAfter(first, { type: "patch", topic: "pods", atMs: 2, patch });
    expect(second.get("pods")).toEqual({ data: { pods: { a: { beat: 2 }, b: { beat: 1 } } } });
    expect(first.get("pods")).toEqual({ data: snapshot.data });
  });

  test("keeps the last data in trouble, until the next snapshot", () => {
    const first = viewsAfter(new Map(), snapshot);
    const trouble = { code: "store_unavailable", message: "the store is away" };
    const second = viewsAfter(first, { type: "trouble", topic: "pods", atMs: 2, ...trouble });
    expect(second.get("pods")).toEqual({ data: snapshot.data, trouble });
    expect(viewsAfter(second, snapshot).get("pods")).toEqual({ data: snapshot.data });
    const never = viewsAfter(new Map(), { type: "trouble", topic: "x", atMs: 2, ...trouble });
    expect(never.get("x")).toEqual({ trouble });
  });
});
