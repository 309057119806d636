import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import type { auditSpecs } from "../../server/api/access/audit.schema.ts";
import { type Answered, readAnswer } from "../api.ts";
import { actWords, auditActions, auditSubject } from "../facts/audit/entry.ts";
import {
  auditQuery,
  auditSearchIn,
  type AuditSearch,
  localMinuteText,
  momentOf,
} from "../facts/audit/search.ts";
import { counted } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive } from "../live.ts";
import { useMayAudit } from "../parts/audit-link.tsx";
import { type Fact, FactList } from "../parts/blocks.tsx";
import { PodLink, SessionLink, ThrottleLink } from "../parts/links.tsx";
import { Badge, When } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import { JsonValue } from "../parts/value.tsx";
import "../styles/queues.css";

type AuditShown = Answered<typeof auditSpecs.list>;
type EntryFacts = AuditShown["entries"][number];

const entriesOfPage = 50;

/** Who did what, and when? Every act of an operator or administrator, newest first. */
export function WhoDidWhatPage() {
  const mayAudit = useMayAudit();
  return (
    <>
      <PageTitle name="Audit">Audit</PageTitle>
      {mayAudit ? (
        <Entries />
      ) : (
        <Empty title="The audit is for administrators.">
          It says who did what to the whole fleet. A key with the role <code>admin</code> and
          without a tenant reads it. <Link to="/">To the overview</Link>
        </Empty>
      )}
    </>
  );
}

function Entries() {
  // The router passes on what the address has besides.
  const search = auditSearchIn(useSearch({ from: "/audit" }));
  const { cursor, ...filter } = search;
  const page = useLive(
    ["audit", search],
    (signal) =>
      readAnswer<AuditShown>("v1/audit", { ...auditQuery(search), limit: entriesOfPage }, signal),
    { isSettled: () => cursor !== undefined },
  );
  return (
    <>
      <AuditFilter search={search} />
      <Ready of={page} what="the audit">
        {({ entries, next }) => (
          <>
            {entries.length === 0 ? (
              <NoEntries search={search} />
            ) : (
              <ol className="entries" aria-label="Acts, newest first">
                {entries.map((entry) => (
                  <Entry key={entry.id} entry={entry} />
                ))}
              </ol>
            )}
            {next !== null && (
              <p className="pager">
                <Link to="/audit" search={{ ...filter, cursor: next }}>
                  Older
                </Link>
              </p>
            )}
          </>
        )}
      </Ready>
      {cursor !== undefined && (
        <p className="pager">
          <Link to="/audit" search={filter}>
            Newest
          </Link>
        </p>
      )}
    </>
  );
}

function NoEntries({ search }: { search: AuditSearch }) {
  if (Object.keys(search).length > 0)
    return (
      <Empty title="No act matches the filter.">
        <Link to="/audit" search={{}}>
          Show all acts
        </Link>
      </Empty>
    );
  return (
    <Empty title="Nothing was done by hand yet." command="flotilla pause mail">
      Retries, cancels, pauses and other acts of people and keys are kept here. This is one:
    </Empty>
  );
}

type FieldName = "actor" | "action" | "subject" | "since" | "until";

function AuditFilter({ search }: { search: AuditSearch }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState(typedOf(search));
  const address = JSON.stringify(search);
  useEffect(() => setTyped(typedOf(JSON.parse(address) as AuditSearch)), [address]);

  const apply = (change: Partial<Record<FieldName, string>>) => {
    const before = typedOf(search);
    const wanted = { ...typed, ...change };
    const names = Object.keys(wanted) as FieldName[];
    if (names.every((name) => wanted[name].trim() === before[name])) return;
    const given = names.flatMap((name) => {
      const text = wanted[name].trim();
      // A time that wasn't changed keeps its seconds.
      if (text === before[name]) return search[name] === undefined ? [] : [[name, search[name]]];
      const value = name === "since" || name === "until" ? isoOf(text) : text;
      return value === "" ? [] : [[name, value]];
    });
    void navigate({ to: "/audit", search: Object.fromEntries(given) as AuditSearch });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply({});
  };
  const field = (name: FieldName) => ({
    value: typed[name],
    onChange: (event: { target: { value: string } }) =>
      setTyped({ ...typed, [name]: event.target.value }),
    onBlur: () => apply({}),
  });
  const actions = auditActions.includes(typed.action)
    ? auditActions
    : [typed.action, ...auditActions].filter((each) => each !== "");

  return (
    <form className="filter" role="search" aria-label="Filter of acts" onSubmit={submit}>
      <input
        type="text"
        data-filter=""
        aria-label="Actor"
        placeholder="Actor, such as key/ops"
        autoComplete="off"
        spellCheck={false}
        maxLength={1_000}
        {...field("actor")}
      />
      <select
        aria-label="Action"
        value={typed.action}
        onChange={(event) => apply({ action: event.target.value })}
      >
        <option value="">any action</option>
        {actions.map((action) => (
          <option key={action} value={action}>
            {visibleLine(action, 60)}
          </option>
        ))}
      </select>
      <input
        type="text"
        aria-label="Subject"
        placeholder="Subject: an id or name"
        autoComplete="off"
        spellCheck={false}
        maxLength={1_000}
        {...field("subject")}
      />
      <span className="span">
        <label>
          from <input type="datetime-local" className="moment" {...field("since")} />
        </label>
        <label>
          to <input type="datetime-local" className="moment" {...field("until")} />
        </label>
      </span>
      <button type="submit" className="hidden" tabIndex={-1}>
        Filter
      </button>
      {Object.keys(search).length > 0 && (
        <button
          type="button"
          className="inline"
          onClick={() => void navigate({ to: "/audit", search: {} })}
        >
          Clear
        </button>
      )}
    </form>
  );
}

/** The filter as its fields show it. */
function typedOf({ actor = "", action = "", subject = "", since, until }: AuditSearch) {
  const times = { since: localMinuteText(since), until: localMinuteText(until) };
  return { actor, action, subject, ...times };
}

function isoOf(local: string): string {
  const atMs = momentOf(local);
  return atMs === undefined ? "" : new Date(atMs).toISOString();
}

function Entry({ entry }: { entry: EntryFacts }) {
  const { atMs, actor, action, count, outcome, reason } = entry;
  return (
    <li className="entry">
      <span className="soft entry-when">
        <When atMs={atMs} />
      </span>
      <div className="entry-what">
        <p>
          <Link to="/audit" search={{ actor }} className="entry-actor">
            <ShownText text={visibleLine(actor, 100)} />
          </Link>{" "}
          <ShownText text={visibleLine(actWords(action), 100)} /> <SubjectLink entry={entry} />{" "}
          {count !== null && count !== 1 && <Badge>{counted(count, "change")}</Badge>}{" "}
          {outcome === "begun" && <Badge tone="warn">begun, not ended</Badge>}
          {outcome === "full" && <Badge tone="wrong">still full</Badge>}
        </p>
        {reason !== null && (
          <p className="soft">
            <ShownText text={visibleLine(reason, 500)} />
          </p>
        )}
        <EntryDetails entry={entry} />
      </div>
    </li>
  );
}

function EntryDetails({ entry }: { entry: EntryFacts }) {
  const [isOpen, setOpen] = useState(false);
  const { id, action, subject, tenant, keyName, user, role, address, actId } = entry;
  const facts: Fact[] = [
    [
      "Action",
      <Link key="action" to="/audit" search={{ action }}>
        <code>{visibleLine(action, 60)}</code>
      </Link>,
    ],
    subject !== null && [
      "Subject",
      <Link key="subject" to="/audit" search={{ subject }}>
        all acts on <ShownText text={visibleLine(subject, 200)} />
      </Link>,
    ],
    keyName !== null && ["Key", <ShownText key="key" text={visibleLine(keyName, 200)} />],
    user !== null && ["User", <ShownText key="user" text={visibleLine(user, 200)} />],
    role !== null && ["Role", visibleLine(role, 40)],
    ["Tenant", <ShownText key="tenant" text={visibleLine(tenant, 200)} />],
    address !== null && ["From", <ShownText key="from" text={visibleLine(address, 200)} />],
    actId !== null && ["Id of the act", <code key="act">{visibleLine(actId, 200)}</code>],
    ["Id of the entry", <code key="id">{visibleLine(id, 200)}</code>],
  ];
  const values = (
    [
      ["Selected", entry.filter],
      ["Before", entry.before],
      ["After", entry.after],
    ] as const
  ).filter(([, value]) => value !== null);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="soft">details</summary>
      {isOpen && (
        <div className="entry-details">
          {values.map(([title, value]) => (
            <section key={title} className="block">
              <h2>{title}</h2>
              <JsonValue value={value} label={title.toLowerCase()} />
            </section>
          ))}
          <FactList facts={facts} />
        </div>
      )}
    </details>
  );
}

/** Leads from an entry to what it was about. */
function SubjectLink({ entry }: { entry: EntryFacts }) {
  const subject = auditSubject(entry);
  if (subject === undefined) return null;
  if (subject.kind === "everything") return <Link to="/queues">everything</Link>;
  const { kind, id } = subject;
  const isId = kind === "task" || kind === "run" || kind === "session" || kind === "pod";
  const text = isId ? (
    <code title={id}>{visibleLine(shortId(id), 60)}</code>
  ) : (
    <ShownText text={visibleLine(entry.subject ?? id, 200)} />
  );
  switch (subject.kind) {
    case "task":
      return (
        <Link to="/tasks/$taskId" params={{ taskId: id }}>
          {text}
        </Link>
      );
    case "run":
      return (
        <Link to="/runs/$runId" params={{ runId: id }}>
          {text}
        </Link>
      );
    case "session":
      return <SessionLink session={{ sessionId: id, tenant: subject.tenant }}>{text}</SessionLink>;
    case "schedule":
      return (
        <Link to="/schedules/$scheduleId" params={{ scheduleId: id }}>
          {text}
        </Link>
      );
    case "throttle":
      return <ThrottleLink throttle={{ name: id, key: subject.key }}>{text}</ThrottleLink>;
    case "pod":
      return <PodLink podId={id} />;
    case "name":
      return (
        <Link to="/queues" search={{ name: id }}>
          {text}
        </Link>
      );
    case "limit":
      return (
        <Link to="/queues" search={{ scope: id }}>
          {text}
        </Link>
      );
    case "failures":
      return (
        <Link to="/failures" search={{ group: id }}>
          {text}
        </Link>
      );
    case "other":
      return (
        <Link to="/audit" search={{ subject: id }}>
          {text}
        </Link>
      );
  }
}
