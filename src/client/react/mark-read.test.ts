import { expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import type { SessionSnapshot } from "../session/session.ts";
import { markReadWhileVisible } from "./hooks.ts";

test("what is shown is marked as read once, and again where that was lost", async () => {
  let snapshot = { status: "live", lastSeq: 3 } as SessionSnapshot;
  let changed = () => {};
  let isAway = true;
  const marks: (number | undefined)[] = [];
  const stop = markReadWhileVisible({
    get: () => snapshot,
    subscribe(listener) {
      changed = listener;
      return () => (changed = () => {});
    },
    async read(seq) {
      marks.push(seq);
      if (isAway) throw new Error("the server is away");
    },
  });
  await eventLoopTurns(1);
  snapshot = { ...snapshot, status: "away" } as SessionSnapshot;
  changed();
  isAway = false;
  snapshot = { ...snapshot, status: "live" } as SessionSnapshot;
  changed();
  await eventLoopTurns(1);
  changed();
  expect(marks).toEqual([3, 3]);
  snapshot = { ...snapshot, lastSeq: 4 };
  changed();
  expect(marks).toEqual([3, 3, 4]);
  stop();
});
