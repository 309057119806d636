import { FlotillaError } from "../../base/errors.ts";
import type { Decision } from "./decision.ts";
import { cancelling, done, type Draft, draftOf, failing, goOn, note } from "./draft.ts";
import { finalize } from "./finalize.ts";
import type { Happened, Now } from "./event.ts";
import { firstFinalizer, type Machine, type Part, partAt } from "../machine.ts";
import { atEnd, type Run, type RunError } from "./run.ts";
import { thrownBy, tryAgain } from "./trying.ts";
import { seeChildren, seeSignal, startChildren, startSleep, wake } from "./waits.ts";

/** Decides; never does. What is to become of a run after something has happened to it. */
export function advance(machine: Machine, run: Run, happened: Happened, now: Now): Decision {
  if (run.cursor === null) return { type: "ignore", why: "ended" };
  if (happened.type === "interrupted") return { type: "release" };
  const draft = draftOf(run);
  if (run.intent !== null) return finalize(machine, draft, happened, now);
  if (run.cursor === atEnd) return conclude(machine, draft, happened, now);
  const part = partAt(machine, run.cursor);
  if (!part) throw misplaced(run.cursor, happened);
  return advancePart(machine, draft, part, happened, now);
}

function advancePart(
  machine: Machine,
  draft: Draft,
  part: Part,
  happened: Happened,
  now: Now,
): Decision {
  const cancelled = (reason: string | null) => goOn(cancelling(machine, draft, reason));
  const failed = (error: RunError) => goOn(failing(machine, draft, error, now));

  if (happened.type === "cancel_asked") return cancelled(happened.reason);
  if (happened.type === "unmet") return failed(happened.error);
  const thrown = thrownBy(happened, part.name);
  if (thrown) {
    // Whatever a transition throws that was told to stop, it is because it was told to.
    if (now.cancelRequested) return cancelled(null);
    if (thrown.type === "cancel") return cancelled(thrown.reason);
    const tries = part.kind === "signal" ? machine.tries : part.tries;
    return tryAgain(draft, tries, thrown, now, failed);
  }
  switch (part.kind) {
    case "work":
      if (happened.type === "returned") {
        const { set, output } = happened;
        const intent = output === undefined ? undefined : ({ type: "completed", output } as const);
        return done(machine, draft, { set, ...(intent && { intent }) }, now);
      }
      if (happened.type === "handed_off") {
        const intent = { type: "completed", output: happened.output } as const;
        return done(machine, draft, { set: null, intent }, now);
      }
      break;
    case "sleep":
      if (happened.type === "sleep_asked") return startSleep(machine, draft, happened.ms, now);
      if (happened.type === "woken") return wake(machine, draft, now);
      break;
    case "signal":
      if (happened.type === "signal_seen" || happened.type === "signal_refused") {
        return seeSignal(machine, draft, part, happened, now);
      }
      break;
    case "children":
      if (happened.type === "children_asked") {
        return startChildren(machine, draft, happened.children, now);
      }
      if (happened.type === "children_seen") {
        return seeChildren(machine, draft, part, happened.children, now);
      }
      break;
  }
  throw misplaced(part.name, happened);
}

/** No transition is left, but the ending isn't set: the state has yet to be held to the output. */
function conclude(machine: Machine, draft: Draft, happened: Happened, now: Now): Decision {
  if (happened.type === "cancel_asked") return { type: "ignore", why: "ending" };
  const thrown = thrownBy(happened, atEnd);
  if (thrown) {
    const failed = (error: RunError) => goOn(failing(machine, draft, error, now));
    if (thrown.type === "cancel") return goOn(cancelling(machine, draft, thrown.reason));
    // The state stays what it is, so what the schema has refused it would refuse again.
    const isFinal = thrown.type === "retry" && thrown.error.code === "invalid_output";
    return isFinal ? failed(thrown.error) : tryAgain(draft, machine.tries, thrown, now, failed);
  }
  if (happened.type !== "concluded") throw misplaced(atEnd, happened);
  const { output } = happened;
  return goOn(
    note(draft, {
      type: "complete",
      version: machine.version,
      transition: atEnd,
      attempt: draft.run.failures + 1,
      startedAtMs: now.startedAtMs,
      set: null,
      next: firstFinalizer(machine),
      intent: { type: "completed", ...(output !== undefined && { output }) },
    }),
  );
}

function misplaced(cursor: string, { type }: Happened): FlotillaError {
  return new FlotillaError("internal", `"${type}" can't happen to a run at "${cursor}"`);
}
