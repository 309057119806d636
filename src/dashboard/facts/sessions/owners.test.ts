import { expect, test } from "vitest";
import { noOwnersSeen, ownersAfter, ownerSince } from "./owners.ts";

const owner = (podId: string | null, term: number) => ({ logId: 3, podId, term });
const seen = (...owners: readonly ReturnType<typeof owner>[]) =>
  owners.reduce((before, each, at) => ownersAfter(before, each, at * 1_000), noOwnersSeen);

test("the first owner that is seen took nothing over", () => {
  expect(seen(owner("a", 4), owner("a", 4)).takeovers).toEqual([]);
});

test("a takeover has both pods, its term and when it was seen", () => {
  expect(seen(owner("a", 4), owner("b", 5), owner("b", 5)).takeovers).toEqual([
    { term: 5, fromPodId: "a", toPodId: "b", atMs: 1_000 },
  ]);
});

test("a log that is free for a moment is taken over from the pod that had it", () => {
  const { takeovers } = seen(owner("a", 4), owner(null, 4), owner("b", 5));
  expect(takeovers).toEqual([{ term: 5, fromPodId: "a", toPodId: "b", atMs: 2_000 }]);
  // A pod that takes its own log again took it over from no other.
  expect(seen(owner("a", 4), owner(null, 4), owner("a", 5)).takeovers).toEqual([]);
});

test("an answer that comes late doesn't bring the owner of before back", () => {
  expect(seen(owner("a", 4), owner("b", 5), owner("a", 4))).toMatchObject({
    lastPodId: "b",
    takeovers: [{ toPodId: "b" }],
  });
});

test("the newest takeovers are kept, and no more than a page shows", () => {
  const many = Array.from({ length: 20 }, (_, at) => owner(`pod-${at}`, at));
  const { takeovers } = seen(...many);
  expect(takeovers.map(({ toPodId }) => toPodId)).toEqual(
    [19, 18, 17, 16, 15].map((n) => `pod-${n}`),
  );
});

test("since when the owner has it is known of a takeover that was seen, and of no other", () => {
  const taken = seen(owner("a", 4), owner("b", 5));
  expect(ownerSince(taken, owner("b", 5))).toBe(1_000);
  expect(ownerSince(taken, owner(null, 5))).toBeUndefined();
  expect(ownerSince(taken, owner("b", 6))).toBeUndefined();
  expect(ownerSince(seen(owner("a", 4)), owner("a", 4))).toBeUndefined();
});
