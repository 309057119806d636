import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, errorSentence } from "../../api.ts";
import { counted } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive } from "../../live.ts";
import { StatusMark } from "../../parts/marks.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";

// A person opens no more at once, and each is a read.
const shownAtOnce = 10;
// Deeper ones are looked at from their own page.
const maxDepth = 8;

/** The tasks that a task comes after, and those that they come after, as a list that is opened by hand. */
export function Dependencies({
  taskIds,
  depth = 0,
}: {
  taskIds: readonly string[];
  depth?: number;
}) {
  const [shown, setShown] = useState(shownAtOnce);
  if (taskIds.length === 0) return null;
  return (
    <div className="after">
      {depth === 0 && <p className="soft">After {counted(taskIds.length, "task")}:</p>}
      <ul className="after-list">
        {taskIds.slice(0, shown).map((taskId) => (
          <Dependency key={taskId} taskId={taskId} depth={depth} />
        ))}
      </ul>
      {taskIds.length > shown && (
        <button type="button" className="inline" onClick={() => setShown(shown + shownAtOnce)}>
          {counted(taskIds.length - shown, "more task")}
        </button>
      )}
    </div>
  );
}

function Dependency({ taskId, depth }: { taskId: string; depth: number }) {
  const [isOpen, setOpen] = useState(false);
  const found = useLive(["task", taskId], (signal) => api.task(taskId, signal), {
    isSettled: () => true,
  });
  const task = found.data?.task;
  const before = task?.waitsFor ?? [];
  const name = task ? visibleLine(task.name, 60) : shortId(taskId);
  return (
    <li>
      <p className="after-line">
        <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
          <ShownText text={name} />
        </Link>{" "}
        {task && <StatusMark status={task.status} />}
        {found.error && !task && (
          <span className="soft">{visibleLine(errorSentence(found.error), 80)}</span>
        )}
        {before.length > 0 && depth < maxDepth && (
          <button
            type="button"
            className="inline"
            aria-expanded={isOpen}
            aria-label={`${name} comes after ${counted(before.length, "task")}`}
            onClick={() => setOpen(!isOpen)}
          >
            after {before.length}
          </button>
        )}
      </p>
      {isOpen && <Dependencies taskIds={before} depth={depth + 1} />}
    </li>
  );
}
