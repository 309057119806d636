import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { sessionAsks, type SessionFacts, type SessionQuery } from "../../asks/sessions.ts";
import { metadataIn, metadataText, parseMetadata } from "../../facts/sessions/filter.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useHome, useLive, useMay, useNow, useSeesAll } from "../../live.ts";
import { LiveMark } from "../../parts/blocks.tsx";
import { FilterText } from "../../parts/filter-text.tsx";
import { SessionLink } from "../../parts/links.tsx";
import { Badge, When } from "../../parts/marks.tsx";
import { useListKeys } from "../../parts/row-keys.ts";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";
import { usePaged } from "./paged.ts";
import { SessionStateMark } from "./session-marks.tsx";
import "../../styles/sessions.css";

/** Which conversations are there, and what goes on in them? The most recently active first. */
export function SessionsPage() {
  const filter = useSearch({ from: "/sessions" });
  const seesAll = useSeesAll();
  const list = usePaged(["sessions", filter], (cursor, signal) =>
    sessionAsks.list(filter, cursor, signal),
  );
  const waiting = useWaiting(filter.tenant);
  const found = list.pages?.flatMap(({ sessions }) => sessions);
  const last = list.pages?.at(-1);
  return (
    <>
      <PageTitle
        name="Sessions"
        aside={
          <div className="page-aside">
            {waiting.size > 0 && (
              <Link to="/approvals" search={ofTenant(filter.tenant)}>
                {waiting.size === 1 ? "1 waits" : `${waiting.size} wait`} for a person
              </Link>
            )}
            <LiveMark isLive={list.isLive} onRead={list.refetch} />
          </div>
        }
      >
        Sessions
      </PageTitle>
      <SessionFilter filter={filter} />
      {seesAll && filter.tenant === undefined && (
        <p className="soft">Of the tenant default. The filter finds those of another.</p>
      )}
      <Ready of={{ data: found, error: list.error, refetch: list.refetch }} what="sessions">
        {(sessions) => (
          <>
            <AsOf atMs={list.pages?.[0]?.asOf} />
            {sessions.length === 0 ? (
              <NoSessions filter={filter} hasMore={list.hasMore} />
            ) : (
              <SessionList sessions={sessions} waiting={waiting} />
            )}
            {list.hasMore && (
              <p className="list-more">
                <button
                  type="button"
                  className="button"
                  disabled={list.isLoading}
                  onClick={list.loadMore}
                >
                  {list.isLoading
                    ? "Looking …"
                    : sessions.length === 0
                      ? "Look further back"
                      : "Show more"}
                </button>
                {last?.lookedBackTo != null && (
                  <span className="soft">
                    Looked back to what was active <When atMs={last.lookedBackTo} />.
                  </span>
                )}
                {list.trouble !== undefined && (
                  <span className="wrong" role="alert">
                    {visibleLine(list.trouble, 500)}
                  </span>
                )}
              </p>
            )}
          </>
        )}
      </Ready>
    </>
  );
}

/** The sessions with calls that wait for a person, as far as they are among those that wait longest. */
function useWaiting(tenant: string | undefined): ReadonlySet<string> {
  const maySee = useMay("fleet:read");
  const found = useLive(
    ["approvals", { tenant }],
    (signal) => sessionAsks.approvals(tenant, undefined, signal),
    { isOff: !maySee },
  );
  const approvals = found.data?.approvals ?? [];
  return new Set(
    approvals.flatMap(({ what, id, tenant: of }) => (what === "session" ? [`${of} ${id}`] : [])),
  );
}

function ofTenant(tenant: string | undefined): { tenant?: string } {
  return tenant === undefined ? {} : { tenant };
}

const states = [
  ["", "any state"],
  ["idle", "idle"],
  ["catching_up", "answering"],
  ["waiting", "throttled"],
  ["compacting", "compacting"],
] as const;

const statuses = [
  ["", "archived or not"],
  ["active", "not archived"],
  ["archived", "archived"],
] as const;

/** What the list shows. Every choice is in the address, so that back and reload keep it. */
function SessionFilter({ filter }: { filter: SessionQuery }) {
  const navigate = useNavigate();
  const seesAll = useSeesAll();
  const [user, setUser] = useState(filter.user ?? "");
  const [agent, setAgent] = useState(filter.agent ?? "");
  const [tenant, setTenant] = useState(filter.tenant ?? "");
  const seesContent = useMay("payloads:read");
  const kept = metadataText(filter);
  const [metadata, setMetadata] = useState(kept);
  const [trouble, setTrouble] = useState<string>();
  useEffect(() => setUser(filter.user ?? ""), [filter.user]);
  useEffect(() => setAgent(filter.agent ?? ""), [filter.agent]);
  useEffect(() => setTenant(filter.tenant ?? ""), [filter.tenant]);
  useEffect(() => setMetadata(kept), [kept]);

  const apply = (change: SessionQuery) => {
    const written = parseMetadata(metadata);
    setTrouble(typeof written === "string" ? written : undefined);
    const typed = { user: user.trim(), agent: agent.trim(), tenant: tenant.trim() };
    const next = { ...typed, state: filter.state, status: filter.status, ...change };
    const search: SessionQuery = {
      ...(next.user && { user: next.user }),
      ...(next.agent && { agent: next.agent }),
      ...(next.state && { state: next.state }),
      ...(next.status && { status: next.status }),
      ...(next.tenant && { tenant: next.tenant }),
      ...(typeof written === "string" ? metadataIn(filter) : written),
    };
    if (JSON.stringify(search) !== JSON.stringify(filter))
      void navigate({ to: "/sessions", search });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply({});
  };
  const onApply = () => apply({});
  return (
    <form className="filter" role="search" aria-label="Filter of sessions" onSubmit={submit}>
      <FilterText label="User" value={user} onChange={setUser} onApply={onApply} isFirst />
      <FilterText label="Agent" value={agent} onChange={setAgent} onApply={onApply} />
      <select
        aria-label="State"
        value={filter.state ?? ""}
        onChange={(event) =>
          apply({ state: (event.target.value || undefined) as SessionQuery["state"] })
        }
      >
        {states.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      <select
        aria-label="Status"
        value={filter.status ?? ""}
        onChange={(event) =>
          apply({ status: (event.target.value || undefined) as SessionQuery["status"] })
        }
      >
        {statuses.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      {seesAll && (
        <FilterText label="Tenant" value={tenant} onChange={setTenant} onApply={onApply} />
      )}
      {seesContent && (
        <FilterText
          label="Metadata, such as ticket.id:7"
          value={metadata}
          onChange={setMetadata}
          onApply={onApply}
        />
      )}
      <button type="submit" className="hidden" tabIndex={-1}>
        Filter
      </button>
      {Object.keys(filter).length > 0 && (
        <button
          type="button"
          className="inline"
          onClick={() => void navigate({ to: "/sessions", search: {} })}
        >
          Clear
        </button>
      )}
      {trouble !== undefined && (
        <p className="wrong" role="alert">
          {visibleLine(trouble, 300)}
        </p>
      )}
    </form>
  );
}

function NoSessions({ filter, hasMore }: { filter: SessionQuery; hasMore: boolean }) {
  const { tenant, ...others } = filter;
  const seesAll = useSeesAll();
  if (hasMore) return <Empty title="No session matches the filter so far." />;
  if (Object.keys(others).length > 0)
    return (
      <Empty title="No session matches the filter.">
        <Link to="/sessions" search={ofTenant(tenant)}>
          Show all sessions
        </Link>
      </Empty>
    );
  return (
    <Empty
      title={
        tenant === undefined
          ? "There are no sessions yet."
          : `The tenant ${visibleLine(tenant, 80)} has no sessions.`
      }
      command={tenant === undefined ? "flotilla chat --agent helper" : undefined}
    >
      {seesAll && tenant === undefined
        ? "These would be the sessions of the tenant default. This begins one:"
        : tenant === undefined && "This begins one:"}
    </Empty>
  );
}

function SessionList({
  sessions,
  waiting,
}: {
  sessions: readonly SessionFacts[];
  waiting: ReadonlySet<string>;
}) {
  const list = useRef<HTMLUListElement>(null);
  useListKeys(list);
  return (
    <ul className="sessions" ref={list} aria-label="Sessions, the most recently active first">
      {sessions.map((session) => (
        <SessionRow
          key={session.sessionId}
          session={session}
          isWaiting={waiting.has(`${session.tenant} ${session.sessionId}`)}
        />
      ))}
    </ul>
  );
}

function SessionRow({ session, isWaiting }: { session: SessionFacts; isWaiting: boolean }) {
  const { sessionId, tenant, agents, users, preview, previewAuthor, activeAtMs, lastSeq } = session;
  const { caller } = useHome();
  return (
    <li className="session-row">
      <span className="session-state">
        <SessionStateMark state={session.state} />
        {isWaiting && <Badge tone="warn">waits for a person</Badge>}
        {session.status === "archived" && <Badge>archived</Badge>}
      </span>
      <span className="session-what">
        <SessionLink session={{ sessionId, tenant }} isRow>
          {preview === "" ? (
            <span className="soft">{lastSeq === 0 ? "nothing written yet" : "no text"}</span>
          ) : (
            <>
              {previewAuthor !== "" && (
                <span className="soft session-author">
                  <ShownText text={visibleLine(previewAuthor, 60)} />:{" "}
                </span>
              )}
              <ShownText text={visibleLine(preview, 200)} />
            </>
          )}
        </SessionLink>
        <span className="soft session-who">
          {agents.length > 0 && (
            <>
              with <ShownText text={visibleLine(agents.join(", "), 100)} />
            </>
          )}
          {users.length > 0 && (
            <>
              {" "}
              for{" "}
              <ShownText
                text={visibleLine(
                  users.length > 3
                    ? `${users.slice(0, 3).join(", ")} and ${users.length - 3} more`
                    : users.join(", "),
                  120,
                )}
              />
            </>
          )}
        </span>
      </span>
      <span className="soft session-id" title={sessionId}>
        <code>{visibleLine(shortId(sessionId), 40)}</code>
        {caller?.tenant === undefined && tenant !== "default" && (
          <span> {visibleLine(tenant, 40)}</span>
        )}
      </span>
      <span className="soft number session-when">
        <When atMs={activeAtMs} />
      </span>
    </li>
  );
}

/** How old a list is that says nothing of it. */
const noticeableMs = 5_000;

/** A list that the database is behind with says so. */
function AsOf({ atMs }: { atMs: number | undefined }) {
  const nowMs = useNow();
  if (atMs === undefined || nowMs - atMs < noticeableMs) return null;
  return (
    <p className="soft">
      As of <When atMs={atMs} />: the database is behind.
    </p>
  );
}
