import { checkChoice, checkNumber, checkOptions, type NumberRange } from "../base/options.ts";
import type { AcquireOptions } from "./limiter/limiter-line.ts";
import { priorities } from "./limiter/wait-queue.ts";

const optionNames = [
  "key",
  "signal",
  "priority",
  "estimate",
  "timeoutMs",
  "maxWaitMs",
  "onWaiting",
];
const dayMs = 86_400_000;
const estimateRange = { min: 0, max: 1e9, whole: false };
const timeoutRangeMs = { min: 1, max: dayMs, whole: false };
const waitRangeMs = { min: 0, max: dayMs, whole: false };

/** Refuses what a call can't ask for; a number that is none would spoil the sums of all others. */
export function checkAsked(name: string, asked: AcquireOptions): void {
  for (const option in asked) {
    if (!optionNames.includes(option)) checkOptions(`throttle "${name}"`, asked, optionNames);
  }
  const { priority } = asked;
  if (priority !== undefined && !priorities.includes(priority)) {
    checkChoice(`throttle "${name}": priority`, priority, priorities);
  }
  checkAmount(name, "estimate", asked.estimate, estimateRange);
  checkAmount(name, "timeoutMs", asked.timeoutMs, timeoutRangeMs);
  checkAmount(name, "maxWaitMs", asked.maxWaitMs, waitRangeMs);
}

// Every call comes by here, so texts are made only where something is wrong.
function checkAmount(
  name: string,
  option: string,
  value: number | undefined,
  range: NumberRange,
): void {
  if (value === undefined) return;
  if (typeof value === "number" && value >= range.min && value <= range.max) return;
  checkNumber(`throttle "${name}": ${option}`, value, range);
}
