import type { ReactNode } from "react";
import type { TaskEventFacts } from "../api.ts";
import { visibleLine } from "../facts/visible.ts";
import { PodLink } from "./links.tsx";
import { When } from "./marks.tsx";
import { JsonValue } from "./value.tsx";

/** One thing that has happened to a task or a run, as lists of events show it. */
export function EventItem({
  event: { atMs, type, attempt, podId, detail },
  children,
}: {
  event: Pick<TaskEventFacts, "atMs" | "attempt" | "podId" | "detail"> & { readonly type: string };
  /** What is said after its type. */
  children?: ReactNode;
}) {
  return (
    <li>
      <p>
        <strong>{visibleLine(type.replaceAll("_", " "), 60)}</strong> {children}{" "}
        {attempt !== null && <span className="soft">attempt {attempt}</span>}{" "}
        {podId !== null && (
          <span className="soft">
            on <PodLink podId={podId} isWhole />
          </span>
        )}{" "}
        <span className="soft">
          <When atMs={atMs} />
        </span>
      </p>
      {detail !== null && <JsonValue value={detail} label="the event" />}
    </li>
  );
}
