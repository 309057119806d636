import type { Concluding, Conclusion, OnConcluded } from "./finish.ts";
import type { Driven } from "../run/drive.ts";
import type { Progress } from "../run/progress.ts";
import type { Reporting } from "../run/events.ts";
import type { Running } from "../run/attempt.ts";
import type { Ending } from "./outcome.ts";

export type EndingsParts = {
  concluding: Concluding;
  progress: Pick<Progress, "concluded" | "leave">;
  report: Pick<Reporting, "ended" | "notStored">;
  /** Where what can't be stored is left, for people. */
  leftTo: string;
  /** Told when a task is there to be claimed again, now or when it is due. */
  onPending: () => void;
  /** Told of tasks and runs that have ended for good. */
  onEnded: (taskId: string) => void;
  /** Told once of each, when it is stored or never will be from here. */
  onSettled: (run: Running) => void;
};

/** Stores how attempts ended, and says what became of that. */
export function createEndings(
  parts: EndingsParts,
): (run: Running, ending: Ending | Driven) => void {
  const { concluding, progress, report, onSettled } = parts;

  const on: OnConcluded = {
    concluded(run, conclusion) {
      try {
        tell(run, conclusion);
      } catch (error) {
        report.notStored(run, error, parts.leftTo);
      } finally {
        onSettled(run);
      }
    },
    failed(run, error) {
      report.notStored(run, error, parts.leftTo);
      onSettled(run);
    },
  };

  const tell = (run: Running, conclusion: Conclusion) => {
    progress.concluded(run, conclusion);
    report.ended(run, conclusion);
    goOn(conclusion);
  };

  const goOn = ({ finish: { status, taskId } }: Conclusion) => {
    // A run that was to go on, but whose pod was taken for dead, is there for everybody again.
    if (status === "pending" || status === "claimed") parts.onPending();
    else parts.onEnded(taskId);
  };

  const store = async (run: Running, ending: Ending): Promise<void> => {
    let conclusion: Conclusion;
    try {
      if (ending.type !== "returned") await progress.leave(run);
      conclusion = await concluding.conclude(run, ending);
    } catch (error) {
      return on.failed(run, error);
    }
    on.concluded(run, conclusion);
  };

  /** Whoever drives a run has stored all of it, and told of it. */
  const driven = (run: Running, ending: Driven) => {
    if (ending.type === "not_stored") {
      // The outbox is for tasks.
      report.notStored(run, ending.error, "left to recovery");
      return onSettled(run);
    }
    progress.concluded(run, ending);
    // Nothing that is held is claimed by the same pod, so it is let go before that looks.
    onSettled(run);
    goOn(ending);
  };

  return (run, ending) => {
    if (ending.type === "driven" || ending.type === "not_stored") return driven(run, ending);
    if (!concluding.complete(run, ending, on)) void store(run, ending);
  };
}
