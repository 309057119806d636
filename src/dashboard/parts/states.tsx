import { type ReactNode, useEffect, useRef } from "react";
import { useLocation } from "@tanstack/react-router";
import { errorSentence } from "../api.ts";
import { serverStateOf } from "../facts/server-state.ts";
import { visibleLine } from "../facts/visible.ts";

// The page that a browser opens has its focus where the browser puts it.
let isFirstPage = true;

/** The heading of a page. It takes the focus when a person comes from another page. */
export function PageTitle({
  children,
  name,
  aside,
}: {
  children: ReactNode;
  /** The name of the page, in the tab of the browser. */
  name: string;
  aside?: ReactNode;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  const { pathname } = useLocation();
  useEffect(() => {
    document.title = `${visibleLine(name, 80)} – Flotilla`;
  }, [name]);
  useEffect(() => {
    if (!isFirstPage) heading.current?.focus();
    isFirstPage = false;
  }, [pathname]);
  return (
    <header className="page-head">
      <h1 ref={heading} tabIndex={-1}>
        {children}
      </h1>
      {aside}
    </header>
  );
}

/** Puts the focus where it isn't lost, after an act that has taken its button away. */
export function focusTitle(): void {
  document.querySelector<HTMLElement>("h1")?.focus();
}

/** What a page shows in place of nothing, with the command that makes something. */
export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children?: ReactNode;
  command?: string | undefined;
}) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children && <p className="soft">{children}</p>}
      {command !== undefined && (
        <pre>
          <code>{command}</code>
        </pre>
      )}
    </div>
  );
}

/** What went wrong, as a sentence, and a way on. */
export function Failed({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  return (
    <div className="failed" role="alert">
      <p>{visibleLine(errorSentence(error), 1_000)}</p>
      <button type="button" className="button" onClick={onRetry}>
        Try again
      </button>
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p className="loading" role="status">
      Loading {what} …
    </p>
  );
}

type Shown<Data> = {
  readonly data: Data | undefined;
  readonly error: unknown;
  refetch(): unknown;
};

/** What was read; else why not. After a success the page stays, with the error that the banner doesn't tell. */
export function Ready<Data>({
  of: { data, error, refetch },
  what,
  children,
}: {
  of: Shown<Data>;
  what: string;
  children: (data: Data) => ReactNode;
}) {
  if (data !== undefined)
    return (
      <>
        {isOfThisAlone(error) && <Outdated error={error} onRetry={() => void refetch()} />}
        {children(data)}
      </>
    );
  if (error) return <Failed error={error} onRetry={() => void refetch()} />;
  return <Loading what={what} />;
}

/** Whether an error concerns this read, and not the server as a whole. */
export function isOfThisAlone(error: unknown): boolean {
  return Boolean(error) && serverStateOf(undefined, [error]).type === "online";
}

/** Says above what was read before that it can't be read any more, as after its deletion. */
export function Outdated({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  return (
    <div className="failed outdated" role="alert">
      <p>{visibleLine(errorSentence(error), 1_000)} What is shown is as it was before.</p>
      <button type="button" className="button" onClick={onRetry}>
        Try again
      </button>
    </div>
  );
}
