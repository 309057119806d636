import { describe, expect, test } from "vitest";
import type { WatchData, WatchEvent } from "../protocol/watch.ts";
import { createWatching, type StreamSink } from "./watch.ts";

type Opened = { readonly topics: readonly string[]; readonly to: StreamSink; isEnded: boolean };

/** Watching with streams and a clock that the test has in its hands. */
function openWatching() {
  const streams: Opened[] = [];
  const timers = new Set<() => void>();
  const noted: string[] = [];
  const watching = createWatching({
    open(topics, to) {
      const stream: Opened = { topics, to, isEnded: false };
      streams.push(stream);
      return () => (stream.isEnded = true);
    },
    after(_, callback) {
      timers.add(callback);
      return () => timers.delete(callback);
    },
    chance: () => 0.5,
    onData: (topic) => noted.push(topic),
    onLost: () => noted.push("lost"),
    onBack: () => noted.push("back"),
  });
  return {
    watching,
    streams,
    noted,
    timers,
    pass() {
      const due = [...timers];
      timers.clear();
      for (const callback of due) callback();
    },
  };
}

const snapshot = (topic: string, data: WatchData): WatchEvent => ({
  type: "snapshot",
  topic,
  atMs: 1,
  data,
});

describe("a tab that watches topics", () => {
  test("changes to other topics without a moment in which nothing is live", () => {
    const { watching, streams, noted } = openWatching();
    watching.want(["pods"]);
    streams[0]!.to.opened();
    streams[0]!.to.take(snapshot("pods", { beat: 1 }));
    watching.want(["flows", "pods"]);
    expect(streams[0]!.isEnded).toBe(false);
    streams[0]!.to.take(snapshot("pods", { beat: 2 }));
    expect(watching.dataOf("pods")).toEqual({ beat: 2 });
    streams[1]!.to.opened();
    expect(streams[0]!.isEnded).toBe(true);
    expect(watching.dataOf("pods")).toEqual({ beat: 2 });
    // What is left of the one before counts no more.
    streams[0]!.to.take(snapshot("pods", { beat: 1 }));
    streams[1]!.to.take(snapshot("flows", {}));
    streams[1]!.to.take(snapshot("pods", { beat: 3 }));
    expect(watching.dataOf("pods")).toEqual({ beat: 3 });
    watching.want(["flows"]);
    streams[2]!.to.opened();
    expect(watching.dataOf("pods")).toBeUndefined();
    expect(noted).toEqual(["pods", "pods", "flows", "pods"]);
  });

  test("says once that nothing is live any more, tries again, and says when it is", () => {
    const { watching, streams, noted, pass } = openWatching();
    watching.want(["pods"]);
    streams[0]!.to.opened();
    streams[0]!.to.take(snapshot("pods", {}));
    streams[0]!.to.lost("away");
    expect(watching.dataOf("pods")).toBeUndefined();
    pass();
    streams[1]!.to.lost("away");
    pass();
    expect(noted).toEqual(["pods", "lost"]);
    streams[2]!.to.opened();
    expect(noted).toEqual(["pods", "lost", "back"]);
    expect(streams).toHaveLength(3);
  });

  test("says that it is back also where the stream was lost while the next one opened", () => {
    const { watching, streams, noted } = openWatching();
    watching.want(["pods"]);
    streams[0]!.to.opened();
    watching.want(["flows", "pods"]);
    streams[0]!.to.lost("away");
    expect(noted).toEqual([]);
    streams[1]!.to.opened();
    expect(noted).toEqual(["back"]);
  });

  test("keeps what is live where more is refused", () => {
    const { watching, streams, noted, pass } = openWatching();
    watching.want(["pods"]);
    streams[0]!.to.opened();
    streams[0]!.to.take(snapshot("pods", { beat: 1 }));
    watching.want(["audit", "pods"]);
    streams[1]!.to.lost("refused");
    expect(watching.dataOf("pods")).toEqual({ beat: 1 });
    expect(noted).toEqual(["pods"]);
    pass();
    expect(streams[2]!.topics).toEqual(["audit", "pods"]);
  });

  test("ends its streams and its timers when nothing is in sight", () => {
    const { watching, streams, timers, noted } = openWatching();
    watching.want(["pods"]);
    streams[0]!.to.opened();
    watching.want(["flows", "pods"]);
    watching.want([]);
    expect(streams.map(({ isEnded }) => isEnded)).toEqual([true, true]);
    streams[0]!.to.lost("away");
    watching.want(["pods"]);
    streams[2]!.to.lost("away");
    watching.want([]);
    expect(timers.size).toBe(0);
    expect(noted).toEqual(["lost"]);
  });

  test("has no data of a topic in trouble, and tells of the trouble", () => {
    const { watching, streams, noted } = openWatching();
    watching.want(["pods"]);
    streams[0]!.to.opened();
    streams[0]!.to.take(snapshot("pods", {}));
    const trouble = { code: "store_unavailable", message: "the store is away" };
    streams[0]!.to.take({ type: "trouble", topic: "pods", atMs: 2, ...trouble });
    expect(watching.dataOf("pods")).toBeUndefined();
    expect(watching.troubles()).toEqual([trouble]);
    streams[0]!.to.take(snapshot("pods", { beat: 2 }));
    expect(watching.troubles()).toEqual([]);
    expect(noted).toEqual(["pods", "pods"]);
  });
});
