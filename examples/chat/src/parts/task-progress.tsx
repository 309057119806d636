import type { Json, TaskView } from "flotilla/client";
import { useTask } from "flotilla/react";

/** How far a task is that an answer started, as it goes on. */
export function TaskProgress({ taskId }: { taskId: string }) {
  const { status, value } = useTask(taskId);
  if (status === "gone") return <p className="data">This task is forgotten by now.</p>;
  const share = value ? shareOf(value) : undefined;
  const words = value ? wordsOf(value) : "Looking…";
  return (
    <div className="task" data-status={value?.status}>
      <progress aria-label="Task progress" max={1} value={share} />
      <span>{words}</span>
    </div>
  );
}

function shareOf(task: TaskView): number | undefined {
  if (task.status === "completed") return 1;
  const known = stepsOf(task.progress);
  if (known) return known.done / known.of;
  // Nothing is known of a task that runs but says nothing; one that waits has done nothing.
  return task.status === "claimed" ? undefined : 0;
}

function wordsOf(task: TaskView): string {
  const known = stepsOf(task.progress);
  const steps = known ? `${known.done} of ${known.of}` : "";
  switch (task.status) {
    case "pending":
      return steps === "" ? "Waiting for a worker" : `${steps}, waiting`;
    case "claimed":
      return steps === "" ? "Running" : steps;
    case "completed":
      return "Done";
    case "failed":
      return `Failed: ${task.error.message}`;
    case "cancelled":
      return "Cancelled";
  }
}

/** Tasks say how far they are in words of their own: here, so many `of` so many. */
function stepsOf(progress: Json): { done: number; of: number } | undefined {
  if (typeof progress !== "object" || progress === null || Array.isArray(progress))
    return undefined;
  const { of, ...rest } = progress as { readonly [name: string]: Json };
  const done = Object.values(rest).find((value) => typeof value === "number");
  return typeof of === "number" && of > 0 && done !== undefined ? { done, of } : undefined;
}
