import type { TaskEvent } from "../tasks/tasks.ts";
import type { Task } from "../tasks/rows.ts";

/** `retried`: an attempt has failed and there is another. `snoozed`: it has asked to be run later. */
export type ReachedState = "claimed" | "retried" | "snoozed" | "completed" | "failed" | "cancelled";

/** Whether a task is or has been in a state. The row says some of it, its events the rest. */
export function hasReached(task: Task, events: readonly TaskEvent[], state: ReachedState): boolean {
  const happened = (type: string) => events.some((event) => event.type === type);
  switch (state) {
    case "claimed":
      return task.claimToken > 0;
    case "retried":
      return happened("retry");
    case "snoozed":
      return task.snoozes > 0;
    case "completed":
    case "failed":
    case "cancelled":
      // A task that was started over has its earlier end among its events.
      return task.status === state || happened(state);
  }
}
