import { FlotillaError } from "../../base/errors.ts";
import type { Decision } from "./decision.ts";
import { attemptAt, type Draft, goOn, note } from "./draft.ts";
import type { Happened, Now } from "./event.ts";
import { finalizerAfter, finalizerAt, type Machine } from "../machine.ts";
import { atEnd, type RunError } from "./run.ts";
import { thrownBy, tryAgain } from "./trying.ts";

/**
 * What is to become of a run whose ending is set. Finalizers can't change that ending any more, and
 * nobody can keep them from running: one that is out of attempts is noted, and the next runs.
 */
export function finalize(machine: Machine, draft: Draft, happened: Happened, now: Now): Decision {
  if (happened.type === "cancel_asked") return { type: "ignore", why: "ending" };
  const { cursor } = draft.run;
  if (cursor === atEnd) return goOn(draft);
  const finalizer = finalizerAt(machine, cursor);
  const { version } = machine;
  const thrown = thrownBy(happened, cursor!);
  if (!finalizer || (!thrown && happened.type !== "finalized")) {
    throw new FlotillaError(
      "internal",
      `"${happened.type}" can't happen to a run that ends, at "${cursor}"`,
    );
  }
  const attempt = attemptAt(draft, now);
  const next = finalizerAfter(machine, finalizer.name);
  if (!thrown) return goOn(note(draft, { type: "complete", version, ...attempt, set: null, next }));
  const failed = (error: RunError) =>
    goOn(note(draft, { type: "error", version, ...attempt, error, retryAtMs: null, next }));
  // There is nothing left to cancel: the finalizer has only said that it gives up.
  if (thrown.type === "cancel") return failed({ code: "cancelled", message: thrown.reason });
  return tryAgain(draft, finalizer.tries, thrown, now, failed);
}
