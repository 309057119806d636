import { seededRandom } from "../../base/random.ts";
import { advanceRun } from "../decide/advance.ts";
import type { RunDecision, RunEvent, Now } from "../decide/event.ts";
import type { HistoryEvent, Run } from "../decide/run.ts";
import type { CallablePart, Machine } from "../machine.ts";
import { openRun, type RunColumns, toColumns } from "../drive/load.ts";
import { type NextStep, findNextStep } from "../decide/next-step.ts";
import type { Thrown } from "../decide/thrown.ts";

/** What chance does to a run, one after another. When they are used up, everything goes well. */
export type Chance = number;

export type Played = {
  /** Everything that was stored, in order, as it comes from the store. */
  readonly events: readonly HistoryEvent[];
  /** The row as it is in the end. */
  readonly row: RunColumns;
  readonly decisions: readonly { readonly before: Run; readonly decision: RunDecision }[];
  /** The functions that were called, in order. */
  readonly calls: readonly string[];
};

export type PlayOptions = {
  readonly row?: RunColumns;
  readonly events?: readonly HistoryEvent[];
  /** Stops, as a pod does that dies, after so many decisions. */
  readonly maxDecisions?: number;
};

export const freshRow: RunColumns = {
  version: null,
  cursor: null,
  state: null,
  intent: null,
  waiting: null,
  stoppedAt: null,
  failures: 0,
  deaths: 0,
};

/** A store with one row, and pods that do what steps say: everything a runner does, but for real. */
export function play(
  machine: Machine,
  chances: readonly Chance[],
  { row = freshRow, events: before = [], maxDecisions = 2_000 }: PlayOptions = {},
): Played {
  const left = [...chances];
  const events = [...before];
  const decisions: { before: Run; decision: RunDecision }[] = [];
  const calls: string[] = [];
  const random = seededRandom(chances.length);
  let nowMs = 1_000_000;
  let cancelRequested = false;
  let current = row;
  let made = 0;
  const opened = () => {
    const found = openRun(machine, current);
    if (found.type !== "open") throw new Error(`the run is ${found.type}`);
    return found.run;
  };
  let run = opened();
  while (run.cursor !== null && decisions.length < maxDecisions) {
    const chance = left.shift() ?? calm;
    nowMs += chance % 5_000;
    if (chance % 23 === 1) cancelRequested = true;
    if (chance % 7 === 2) {
      // The pod dies, whatever it was doing, and another one reads the row.
      current = { ...current, deaths: current.deaths + 1 };
      events.push({ type: "pod_died" });
      run = opened();
      continue;
    }
    const now: Now = { nowMs, startedAtMs: nowMs, random, cancelRequested };
    const step = findNextStep(machine, run, now);
    if (step.type === "call") calls.push(step.part.name);
    const decision = step.type === "decided" ? step.decision : decide(step, run, chance, now);
    decisions.push({ before: run, decision });
    if ("run" in decision) {
      events.push(...(JSON.parse(JSON.stringify(decision.events)) as HistoryEvent[]));
      current = toColumns(decision.run);
    }
    if (decision.type === "park" || decision.type === "retry") {
      nowMs = Math.max(nowMs, decision.untilMs ?? 0);
    }
    // A run that was given back is read by another pod, and sometimes one that wasn't.
    const isKept = decision.type === "commit" && chance % 2 === 0;
    run = isKept ? decision.run : opened();
  }
  return { events, row: current, decisions, calls };

  function decide(step: Exclude<NextStep, { type: "decided" }>, at: Run, chance: Chance, now: Now) {
    return advanceRun(machine, at, happenedBy(step, chance), now);
  }

  function happenedBy(step: Exclude<NextStep, { type: "decided" }>, chance: Chance): RunEvent {
    if (chance % 11 === 3) return { type: "interrupted" };
    switch (step.type) {
      case "conclude":
        return machine.output ? { type: "concluded", output: "checked" } : { type: "concluded" };
      case "see_signal":
        if (chance % 5 === 1) return { type: "signal_seen", signal: null };
        if (chance % 5 === 2) return { type: "signal_refused", signalId: "s", message: "no" };
        return { type: "signal_seen", signal: { signalId: "s", payload: chance } };
      case "see_children": {
        const child = { taskId: "c", name: "child" };
        if (chance % 5 === 1)
          return {
            type: "children_seen",
            startedBy: "kids",
            children: [{ ...child, status: "open" }],
          };
        if (chance % 19 === 2) {
          return {
            type: "children_seen",
            startedBy: "kids",
            children: [{ ...child, status: "cancelled" }],
          };
        }
        return {
          type: "children_seen",
          startedBy: "kids",
          children: [{ ...child, status: "completed", result: chance }],
        };
      }
      case "call":
        return called(step.part, chance);
    }
  }

  function called(part: CallablePart, chance: Chance): RunEvent {
    if (chance % 3 === 1) return { type: "threw", thrown: thrownBy(chance) };
    if (chance % 13 === 5) return { type: "timed_out", timeoutMs: 5 };
    switch (part.kind) {
      case "sleep":
        return { type: "sleep_requested", ms: chance % 100 };
      case "children": {
        const child = { flow: { name: "child" }, input: 1, options: {} };
        return { type: "children_requested", children: chance % 2 === 0 ? [child] : [] };
      }
      case "finally":
        return { type: "finalized" };
      case "work":
        if (chance % 17 === 6) return { type: "handed_off", output: chance };
        return { type: "returned", set: chance % 4 === 0 ? null : { [`k${chance % 6}`]: ++made } };
    }
  }
}

// With this, nothing goes wrong.
const calm = 0;

function thrownBy(chance: Chance): Thrown {
  const error = { code: "handler_failed", message: `${chance}` };
  if (chance % 10 === 0) return { type: "fail", error };
  if (chance % 29 === 0) return { type: "cancel", reason: "no" };
  if (chance % 8 === 0) return { type: "snooze", delayMs: chance, message: "later" };
  return { type: "retry", error, retryAfterMs: chance % 50 };
}
