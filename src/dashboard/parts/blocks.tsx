import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { visibleLine } from "../facts/visible.ts";
import { Badge } from "./marks.tsx";
import { LongText } from "./text.tsx";

/** A part of a page, with its heading. */
export function Block({ title, children }: { title: ReactNode; children: ReactNode }) {
  return (
    <section className="block">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** What is known of a thing: a name and a value, or nothing where it doesn't apply. */
export type Fact = readonly [string, ReactNode] | false;

export function FactList({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl className="facts">
      {facts.flatMap((fact) =>
        fact === false
          ? []
          : [
              <div key={fact[0]}>
                <dt>{fact[0]}</dt>
                <dd>{fact[1]}</dd>
              </div>,
            ],
      )}
    </dl>
  );
}

type ErrorFacts = {
  readonly code: string;
  readonly message: string;
  readonly stack?: string | undefined;
  /** The task that it is of, where that is another one. */
  readonly taskId?: string | undefined;
};

export function ErrorBlock({ error: { code, message, stack, taskId } }: { error: ErrorFacts }) {
  return (
    <Block title="Error">
      <div className="error-card">
        <p>
          <Badge tone="wrong">{visibleLine(code, 60)}</Badge>{" "}
          <span className="pre">
            <LongText text={message} />
          </span>
        </p>
        {taskId !== undefined && (
          <p>
            of{" "}
            <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
              <code>{visibleLine(taskId, 60)}</code>
            </Link>
          </p>
        )}
        {stack !== undefined && (
          <details>
            <summary>Stack</summary>
            <pre tabIndex={0}>
              <LongText text={stack} maxChars={10_000} />
            </pre>
          </details>
        )}
      </div>
    </Block>
  );
}

/** Says that a list is live, or reads it again where it isn't. */
export function LiveMark({ isLive, onRead }: { isLive: boolean; onRead: () => void }) {
  if (isLive) return <span className="live soft">live</span>;
  return (
    <button type="button" className="button small" onClick={onRead}>
      Read again
    </button>
  );
}
