import { expect, test } from "vitest";
import { frontierOf } from "./claim.ts";

test("a claim has ended at the youngest of the lowest priority that it took", () => {
  const claimed = [
    { priority: 0, created_at: 5 },
    { priority: 3, created_at: 9 },
    { priority: 0, created_at: 7 },
    { priority: 0, created_at: 6 },
    { priority: 1, created_at: 8 },
  ];
  expect(frontierOf(claimed)).toEqual({ priority: 0, createdAt: 7 });
  expect(frontierOf(claimed.slice(1, 2))).toEqual({ priority: 3, createdAt: 9 });
});
