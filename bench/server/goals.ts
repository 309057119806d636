import type { Goal } from "../goals.ts";

const onBoth = (goal: Omit<Goal, "store">): Goal[] => [
  { ...goal, store: "sqlite" },
  { ...goal, store: "postgres" },
];

export const goals: readonly Goal[] = [
  ...onBoth({ metric: "server.requests", versus: "plain", atLeast: 0.9 }),
  ...onBoth({ metric: "server.bulk", versus: "plain", atLeast: 0.9 }),
  ...["", ".last", ".actor", ".subject", ".rare"].flatMap((page) =>
    onBoth({ metric: `server.audit_page_ms${page}`, below: 100 }),
  ),
];
