import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { sessionAsks } from "../../asks/sessions.ts";
import { counted, durationText } from "../../facts/spans.ts";
import { type PersonWait, waitsOf } from "../../facts/sessions/waits.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useHome, useMay, useNow, useSeesAll } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { LiveMark } from "../../parts/blocks.tsx";
import { FilterText } from "../../parts/filter-text.tsx";
import { SessionLink } from "../../parts/links.tsx";
import { Badge, When } from "../../parts/marks.tsx";
import { useListKeys } from "../../parts/row-keys.ts";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";
import { decidePlan, decidingAs, signalCallPlan, signalWaitPlan } from "./decisions.tsx";
import { usePaged } from "./paged.ts";
import "../../styles/sessions.css";

/** What waits for me? Every call and every signal that a person is to decide on. */
export function ApprovalsPage() {
  const { tenant } = useSearch({ from: "/approvals" });
  const list = usePaged(["approvals", { tenant }], (cursor, signal) =>
    sessionAsks.approvals(tenant, cursor, signal),
  );
  const [plan, setPlan] = useState<PlannedAct>();
  const waits = list.pages && waitsOf(list.pages.flatMap(({ approvals }) => approvals));
  const isWhole = list.pages?.every((page) => page.isWhole) ?? true;
  return (
    <>
      <PageTitle
        name="Approvals"
        aside={
          <div className="page-aside">
            {waits && waits.length > 0 && !list.hasMore && (
              <span className="soft">{counted(waits.length, "decision")} to make</span>
            )}
            <LiveMark isLive={list.isLive} onRead={list.refetch} />
          </div>
        }
      >
        Approvals
      </PageTitle>
      <TenantFilter tenant={tenant} />
      <Ready of={{ data: waits, error: list.error, refetch: list.refetch }} what="approvals">
        {(found) => (
          <>
            {found.length === 0 ? (
              <Empty
                title="Nothing waits for a person."
                command="flotilla runs signal <run> <signal> '{}'"
              >
                Calls of agents that need an approval come here, and runs and tasks that wait for a
                signal. A terminal sends one, too:
              </Empty>
            ) : (
              <WaitList waits={found} onPlan={setPlan} />
            )}
            {!isWhole && (
              <p className="soft">
                So many tasks and runs wait that some that wait for a signal may be missing.
              </p>
            )}
            {list.hasMore && (
              <p className="list-more">
                <button
                  type="button"
                  className="button"
                  disabled={list.isLoading}
                  onClick={list.loadMore}
                >
                  {list.isLoading ? "Loading …" : "Show more"}
                </button>
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
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

function TenantFilter({ tenant }: { tenant: string | undefined }) {
  const navigate = useNavigate();
  const seesAll = useSeesAll();
  const [text, setText] = useState(tenant ?? "");
  useEffect(() => setText(tenant ?? ""), [tenant]);
  if (!seesAll) return null;
  const apply = () => {
    const chosen = text.trim();
    if (chosen === (tenant ?? "")) return;
    void navigate({ to: "/approvals", search: chosen === "" ? {} : { tenant: chosen } });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply();
  };
  return (
    <form className="filter" role="search" aria-label="Filter of approvals" onSubmit={submit}>
      <FilterText label="Tenant" value={text} onChange={setText} onApply={apply} isFirst />
      {tenant !== undefined && (
        <button
          type="button"
          className="inline"
          onClick={() => void navigate({ to: "/approvals", search: {} })}
        >
          Clear
        </button>
      )}
    </form>
  );
}

function WaitList({
  waits,
  onPlan,
}: {
  waits: readonly PersonWait[];
  onPlan: (plan: PlannedAct) => void;
}) {
  const list = useRef<HTMLUListElement>(null);
  useListKeys(list);
  return (
    <ul className="waits" ref={list} aria-label="What waits, the nearest deadline first">
      {waits.map((wait) => (
        <WaitLine key={wait.key} wait={wait} onPlan={onPlan} />
      ))}
    </ul>
  );
}

const kinds = { run: "run", task: "task", session: "session" } as const;

function WaitLine({ wait, onPlan }: { wait: PersonWait; onPlan: (plan: PlannedAct) => void }) {
  const { what, id, tenant, name, tool, signal, sinceMs, untilMs } = wait;
  const seesAll = useSeesAll();
  const asks = visibleLine(tool ?? signal ?? "", 100);
  return (
    <li className="wait">
      <div className="wait-what">
        <p className="wait-title">
          <Badge tone="accent">{tool === undefined ? "signal" : "tool"}</Badge>{" "}
          <strong>
            <ShownText text={asks} />
          </strong>{" "}
          {tool !== undefined && signal !== undefined && (
            <span className="soft">
              waits for the signal <ShownText text={visibleLine(signal, 100)} />
            </span>
          )}
        </p>
        <p className="soft">
          {kinds[what]}{" "}
          {name !== null && (
            <>
              of <ShownText text={visibleLine(name, 80)} />{" "}
            </>
          )}
          {what === "session" ? (
            <SessionLink session={{ sessionId: id, tenant }} isRow>
              <code>{visibleLine(shortId(id), 40)}</code>
            </SessionLink>
          ) : what === "run" ? (
            <Link to="/runs/$runId" params={{ runId: id }} title={id} data-row-link="">
              <code>{visibleLine(shortId(id), 40)}</code>
            </Link>
          ) : (
            <Link to="/tasks/$taskId" params={{ taskId: id }} title={id} data-row-link="">
              <code>{visibleLine(shortId(id), 40)}</code>
            </Link>
          )}
          {seesAll && tenant !== "default" && <> of tenant {visibleLine(tenant, 60)}</>}, asked{" "}
          <When atMs={sinceMs} />
        </p>
      </div>
      <Deadline untilMs={untilMs} />
      <WaitActs wait={wait} onPlan={onPlan} />
    </li>
  );
}

// A person that looks now can still decide within it.
const soonMs = 3_600_000;

function Deadline({ untilMs }: { untilMs: number | undefined }) {
  const nowMs = useNow();
  if (untilMs === undefined) return <span className="soft wait-until">no deadline</span>;
  const leftMs = untilMs - nowMs;
  if (leftMs <= 0) return <span className="wrong wait-until">its time is over</span>;
  return (
    <span className={`wait-until ${leftMs < soonMs ? "warn" : "soft"}`}>
      {durationText(leftMs)} left
      <span className="hidden">
        , until <When atMs={untilMs} />
      </span>
    </span>
  );
}

function WaitActs({ wait, onPlan }: { wait: PersonWait; onPlan: (plan: PlannedAct) => void }) {
  const mayAct = useMay("fleet:operate");
  const author = decidingAs(useHome());
  if (!mayAct) return null;
  const { what, id, tenant, tool, signal, messageId, toolCallId, approvalId } = wait;
  const about = visibleLine(tool ?? signal ?? "", 60);
  if (what !== "session") {
    if (signal === undefined) return null;
    return (
      <div className="wait-acts">
        <button
          type="button"
          className="button small"
          aria-label={`Send ${about} to ${what} ${shortId(id)}`}
          onClick={() => onPlan(signalWaitPlan({ ...wait, what, signal }))}
        >
          Send
        </button>
      </div>
    );
  }
  if (messageId === undefined || toolCallId === undefined) return null;
  const key = { sessionId: id, tenant };
  const call = { messageId, toolCallId, approvalId, signal, tool: tool ?? "" };
  return (
    <div className="wait-acts">
      {signal === undefined ? (
        [true, false].map((approved) => (
          <button
            key={String(approved)}
            type="button"
            className="button small"
            aria-label={`${approved ? "Approve" : "Deny"} ${about} in session ${shortId(id)}`}
            onClick={() => onPlan(decidePlan(key, call, { approved, author }))}
          >
            {approved ? "Approve" : "Deny"}
          </button>
        ))
      ) : (
        <button
          type="button"
          className="button small"
          aria-label={`Send ${visibleLine(signal, 60)} to session ${shortId(id)}`}
          onClick={() => onPlan(signalCallPlan(key, call, author))}
        >
          Send
        </button>
      )}
    </div>
  );
}
