import { isJsonObject } from "../../../base/json.ts";
import type { RedriveFacts, TaskEventFacts } from "../../api.ts";

/** How a task that was tried has ended so far. */
export type TriedTask = "good" | "wrong" | "gone" | "open";

/** The last steps of a redrive, each with its tasks, and how many tasks came before them. */
export type RedriveSteps = {
  readonly steps: readonly (readonly TriedTask[])[];
  readonly hidden: number;
};

type Counts = Pick<
  RedriveFacts,
  "taken" | "succeeded" | "failed" | "failedOtherwise" | "gone" | "open" | "maxStep"
>;

// More can't be told apart by eye.
const maxShown = 63;

/**
 * The tasks that a redrive has tried, by its steps of one, two, four and so on. A step follows when all of
 * the one before have ended, so that what failed or is under way belongs to the last.
 */
export function redriveSteps(counts: Counts): RedriveSteps {
  const { taken, succeeded, failed, failedOtherwise, gone, open, maxStep } = counts;
  const tones: TriedTask[] = [
    ...fill("good", succeeded),
    ...fill("gone", gone),
    ...fill("wrong", failed + failedOtherwise),
    ...fill("open", open),
  ];
  const count = Math.max(taken, succeeded + failed + failedOtherwise + gone + open);
  const sizes: number[] = [];
  for (let left = count, size = 1; left > 0; size = Math.min(size * 2, Math.max(1, maxStep))) {
    sizes.push(Math.min(size, left));
    left -= size;
  }
  const steps: (readonly TriedTask[])[] = [];
  let end = count;
  let shown = 0;
  for (const size of sizes.toReversed()) {
    const fits = Math.min(size, maxShown - shown);
    if (fits <= 0) break;
    // Of a step that is too long the last ones are shown.
    steps.unshift(tonesIn(tones, end - fits, end));
    shown += fits;
    end -= size;
  }
  return { steps, hidden: count - shown };
}

/** The redrive that has started a task over last; undefined if none has. */
export function redriveIn(events: readonly TaskEventFacts[]): string | undefined {
  const detail: unknown = events.findLast(({ type }) => type === "redriven")?.detail;
  const redriveId = isJsonObject(detail) ? detail["redriveId"] : undefined;
  return typeof redriveId === "string" ? redriveId : undefined;
}

/** What the counts don't tell is under way. */
function tonesIn(tones: readonly TriedTask[], from: number, to: number): TriedTask[] {
  return Array.from({ length: to - from }, (_, at) => tones[from + at] ?? "open");
}

function fill(tone: TriedTask, count: number): TriedTask[] {
  return Array.from({ length: Math.max(0, Math.min(count, 1_000_000)) }, () => tone);
}
