import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { SessionFacts, SessionKey } from "../../asks/sessions.ts";
import { visibleLine } from "../../facts/visible.ts";

const words: Readonly<Record<SessionFacts["state"]["state"], string>> = {
  idle: "idle",
  catching_up: "answering",
  waiting: "throttled",
  compacting: "compacting",
};

/** What goes on in a session, in a word and a colour. */
export function SessionStateMark({ state: { state } }: { state: SessionFacts["state"] }) {
  return (
    <span className={`status of-${state === "idle" ? "idle" : "claimed"}`}>
      <span className="dot" aria-hidden="true" />
      {words[state] ?? visibleLine(state, 40)}
    </span>
  );
}

/** Leads to a session. Of another tenant than the usual one, the address names it. */
export function SessionLink({
  session: { sessionId, tenant },
  isRow = false,
  children,
}: {
  session: SessionKey;
  isRow?: boolean;
  children?: ReactNode;
}) {
  return (
    <Link
      to="/sessions/$sessionId"
      params={{ sessionId }}
      search={tenant === undefined || tenant === "default" ? {} : { tenant }}
      title={visibleLine(sessionId, 200)}
      {...(isRow && { "data-row-link": "" })}
    >
      {children ?? <code>{visibleLine(sessionId, 60)}</code>}
    </Link>
  );
}
