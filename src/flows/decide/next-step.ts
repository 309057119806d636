import type { Json } from "../../base/json.ts";
import { deathLimit } from "../../base/death-limit.ts";
import { advanceRun } from "./advance.ts";
import type { Outcome } from "../drive/attempt.ts";
import type { RunDecision, Now } from "./event.ts";
import {
  type CallablePart,
  type ChildrenPart,
  finalizerAt,
  type Machine,
  partAt,
  type SignalPart,
} from "../machine.ts";
import { atEnd, outputOf, type Run } from "./run.ts";

/** The next step of a claimed run. */
export type NextStep =
  /** Call the part's function. Finalizers get the outcome of the run. */
  | {
      readonly type: "call";
      readonly part: CallablePart;
      readonly attempt: number;
      readonly outcome: Outcome<Json> | null;
    }
  /** Find a signal of this name. */
  | { readonly type: "see_signal"; readonly part: SignalPart }
  /** Read the states of its children. */
  | { readonly type: "see_children"; readonly part: ChildrenPart }
  /** Check the state against the output's schema. */
  | { readonly type: "conclude" }
  /** There is nothing to execute. */
  | { readonly type: "decided"; readonly decision: RunDecision };

/** Decides what the driver does next with a claimed run. */
export function findNextStep(machine: Machine, run: Run, now: Now): NextStep {
  const decided = (type: "woken" | "poisoned" | "finalized"): NextStep => ({
    type: "decided",
    decision: advanceRun(machine, run, { type }, now),
  });
  const { cursor, intent } = run;
  if (cursor === null) return decided("woken");
  const attempt = run.failures + 1;
  if (intent !== null) {
    const finalizer = finalizerAt(machine, cursor);
    if (!finalizer) return decided("finalized");
    if (run.deaths >= deathLimit) return decided("poisoned");
    const outcome: Outcome<Json> =
      intent.type === "completed"
        ? { type: "completed", output: outputOf(intent, run.state) }
        : intent;
    return { type: "call", part: finalizer, attempt, outcome };
  }
  // All transitions are done: a cancel comes too late.
  if (cursor === atEnd) {
    return run.deaths >= deathLimit ? decided("poisoned") : { type: "conclude" };
  }
  if (now.cancelRequested) {
    const event = { type: "cancel_requested", reason: null } as const;
    return { type: "decided", decision: advanceRun(machine, run, event, now) };
  }
  if (run.deaths >= deathLimit) return decided("poisoned");
  const part = partAt(machine, cursor)!;
  switch (part.kind) {
    case "signal":
      return { type: "see_signal", part };
    case "sleep":
      if (run.waiting?.for === "sleep") return decided("woken");
      break;
    case "children":
      if (run.waiting?.for === "children") return { type: "see_children", part };
      break;
    case "work":
      break;
  }
  return { type: "call", part, attempt, outcome: null };
}
