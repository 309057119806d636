import type { ReactNode } from "react";
import type { TaskFacts } from "../api.ts";
import { exactText, relativeText } from "../facts/spans.ts";
import { useNow } from "../live.ts";

/** A time as far as it is from now, with the exact one on hover and for screen readers. */
export function When({ atMs }: { atMs: number }) {
  const nowMs = useNow();
  const exact = exactText(atMs);
  return (
    <time dateTime={isoOf(atMs)} title={exact} className="when">
      {relativeText(atMs, nowMs)}
    </time>
  );
}

function isoOf(atMs: number): string | undefined {
  const date = new Date(atMs);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

const words: Readonly<Record<TaskFacts["status"], string>> = {
  pending: "waiting",
  claimed: "running",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
};

/** The status of a task, in a word and a colour. */
export function StatusMark({ status }: { status: string }) {
  const word = words[status as TaskFacts["status"]] ?? status;
  return (
    <span className={`status of-${status}`}>
      <span className="dot" aria-hidden="true" />
      {word}
    </span>
  );
}

export function Badge({ tone = "plain", children }: { tone?: string; children: ReactNode }) {
  return <span className={`badge of-${tone}`}>{children}</span>;
}

/** A table that may be wider than the page, which keys can scroll as well. */
export function Wide({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="wide" role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

/** Text with commands in backticks, as advice has them. */
export function Advice({ text }: { text: string }) {
  return (
    <>
      {text
        .split("`")
        .map((piece, at) =>
          at % 2 === 1 ? <code key={at}>{piece}</code> : <span key={at}>{piece}</span>,
        )}
    </>
  );
}
