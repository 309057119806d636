import { ifAllowed } from "./connect.ts";
import type { Operations } from "./remote.ts";
import type { Paused } from "../tasks/claim/pauses.ts";
import type { HeldByThrottle, Task } from "../tasks/rows.ts";
import { allNames, tenantScope } from "../protocol/task-options.ts";
import { printNotice, oneLine } from "./output.ts";

type LimitsReader = Pick<Operations, "tasks">;

// More lines wouldn't be read.
const maxNames = 20;

/** The pauses, limits and throttles that keep a pending task from being claimed, in sentences. */
export async function blockedBy(flotilla: LimitsReader, task: Task): Promise<string[]> {
  if (task.status !== "pending") return [];
  const scopes = [
    ...(task.scope === null ? [] : [task.scope]),
    ...(task.tenant === "default" ? [] : [tenantScope(task.tenant)]),
  ];
  const ofTask = task.paused ? [{ name: task.name, reason: null }] : [];
  const [pauses, limits] = await Promise.all([
    ifAllowed<readonly Pick<Paused, "name" | "reason">[]>(flotilla.tasks.paused(), ofTask),
    ifAllowed(Promise.all(scopes.map((scope) => flotilla.tasks.limits.get(scope))), []),
  ]);
  const paused = pauses.find(({ name }) => name === task.name || name === allNames);
  const full = limits.filter(({ limit, running }) => limit !== null && running >= limit);
  return [
    ...(paused === undefined
      ? []
      : [`${paused.name === allNames ? "everything" : paused.name} is paused${because(paused)}`]),
    ...full.map(
      ({ scope, limit, running }) =>
        `${running} of ${limit} tasks of ${oneLine(scope, 200)} are running`,
    ),
    ...(task.throttledBy === null ? [] : [throttled(task.throttledBy)]),
  ];
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

function throttled(by: HeldByThrottle): string {
  const { name, key, limit, inFlight, waiting, ahead, aboutMs } = by;
  const of = oneLine(key === null || key === "" ? name : `${name} (${key})`, 200);
  const about = aboutMs === null ? "" : `, for about ${Math.max(1, Math.round(aboutMs / 1_000))} s`;
  return (
    `throttled: ${inFlight} of ${limit} calls of ${of} are in flight, ` +
    `${waiting} wait, ${ahead} ahead of it${about}`
  );
}

function because({ reason }: { reason: string | null }): string {
  return reason === null ? "" : `: ${oneLine(reason, 200)}`;
}
