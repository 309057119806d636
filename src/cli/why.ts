import { hasCode } from "../base/errors.ts";
import type { Task } from "../tasks/rows.ts";
import { ifAllowed } from "./connect.ts";
import { oneLine, printNotice } from "./output.ts";
import type { Operations } from "./remote.ts";

// More lines wouldn't be read.
const maxNames = 20;

/** Why a pending task or run waits, in sentences; none where the key may not see it. */
export async function whyWaits(
  flotilla: Pick<Operations, "tasks">,
  task: Pick<Task, "taskId" | "status">,
): Promise<string[]> {
  if (task.status !== "pending") return [];
  const reasons = flotilla.tasks.why(task.taskId).then(
    (verdict) => verdict.reasons.map(({ sentence }) => oneLine(sentence, 1_000)),
    (error: unknown) => {
      // It was deleted meanwhile, or the server is of a release that has no such route.
      if (hasCode(error, "not_found")) return [];
      throw error;
    },
  );
  return ifAllowed(reasons, []);
}

/**
 * Warns of names that tasks were stored under and that no live pod has a handler for. Prints nothing
 * where the store fails, because the tasks are stored and the command must succeed.
 */
export async function warnNoWorker(
  flotilla: Pick<Operations, "tasks">,
  names: Iterable<string>,
): Promise<void> {
  const found = await flotilla.tasks.noWorker([...names]).catch(() => []);
  if (found.length === 0) return;
  const { noWorkerWarning } = await import("../tasks/inspect/blocked-by.ts");
  for (const name of found.slice(0, maxNames)) printNotice(noWorkerWarning(name));
}
