import type { Goal } from "../goals.ts";
import { emptyListNames, pageNames } from "./pages.ts";

const onBoth = (goal: Omit<Goal, "store">): Goal[] => [
  { ...goal, store: "sqlite" },
  { ...goal, store: "postgres" },
];
const answers = [...pageNames, ...emptyListNames];

export const goals: readonly Goal[] = [
  ...answers.flatMap((name) => onBoth({ metric: `dashboard.answer_p95_ms.${name}`, below: 100 })),
  ...pageNames.flatMap((name) => onBoth({ metric: `dashboard.useful_ms.${name}`, below: 1_000 })),
  ...["long_task", "long_run"].flatMap((name) =>
    onBoth({ metric: `dashboard.useful_ms.${name}`, below: 1_000 }),
  ),
  ...onBoth({ metric: "dashboard.frames.longest_ms", below: 50 }),
  ...onBoth({ metric: "dashboard.frames.heap_growth", below: 1.1 }),
  ...onBoth({ metric: "dashboard.drain", versus: "unwatched", atLeast: 0.98 }),
];
