import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { SessionKey } from "../asks/sessions.ts";
import { hasAddress } from "../browser.ts";
import type { Counted } from "../facts/queues/rows.ts";
import { countText } from "../facts/spans.ts";
import type { ThrottleAt } from "../facts/throttles/throttle.ts";
import { visibleLine } from "../facts/visible.ts";
import { useSeesAll } from "../live.ts";
import { shortId } from "./text.tsx";

/** Links to things whose address needs more than an id, or that not every caller may see. */

/** Leads to a session. Of another tenant than the usual one, the address names it. */
export function SessionLink({
  session: { sessionId, tenant },
  isRow = false,
  children,
}: {
  session: { readonly sessionId: string; readonly tenant?: SessionKey["tenant"] | null };
  isRow?: boolean;
  children?: ReactNode;
}) {
  const isUsual = tenant === undefined || tenant === null || tenant === "default";
  return (
    <Link
      to="/sessions/$sessionId"
      params={{ sessionId }}
      search={isUsual ? {} : { tenant }}
      title={visibleLine(sessionId, 200)}
      {...(isRow && { "data-row-link": "" })}
    >
      {children ?? <code>{visibleLine(sessionId, 60)}</code>}
    </Link>
  );
}

/** Leads to one key of a throttle, the empty one where it has none. */
export function ThrottleLink({
  throttle: { name, key },
  children,
}: {
  throttle: ThrottleAt;
  children: ReactNode;
}) {
  if (!hasAddress(name))
    return (
      <span title="A browser can't have a page for this name: use `flotilla throttles show`">
        {children}
      </span>
    );
  return (
    <Link to="/throttles/$throttle" params={{ throttle: name }} search={key === "" ? {} : { key }}>
      {children}
    </Link>
  );
}

/** Leads to a pod, for callers that look after the fleet as a whole; for others it is text. */
export function PodLink({ podId, isWhole = false }: { podId: string; isWhole?: boolean }) {
  const seesAll = useSeesAll();
  const text = (
    <code title={visibleLine(podId, 200)}>{visibleLine(isWhole ? podId : shortId(podId), 60)}</code>
  );
  if (!seesAll) return text;
  return (
    <Link to="/pods" search={{ find: podId }}>
      {text}
    </Link>
  );
}

/** A count of tasks of a name leads to the tasks that it counts. */
export function CountLink({
  name,
  of,
  title,
  count,
}: {
  name: string;
  of: Counted;
  title: string;
  count: number;
}) {
  const text = countText(count);
  const label = `${text} ${title}: ${visibleLine(name, 60)}`;
  if (of === "failed")
    return (
      <Link to="/failures" search={{ name }} aria-label={label}>
        {text}
      </Link>
    );
  const search = of === "running" ? ({ name, status: "claimed" } as const) : { name, state: of };
  return (
    <Link to="/tasks" search={search} aria-label={label}>
      {text}
    </Link>
  );
}
