import "../../styles/flows.css";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import {
  flowsApi,
  type RunEventFacts,
  type RunFacts,
  type RunHistoryPage,
  type RunWhole,
  type UnusedSignal,
} from "../../asks/flows.ts";
import { runRemark } from "../../facts/flows/run-remark.ts";
import { notRead, notSet, stateChangesOf } from "../../facts/flows/state-changes.ts";
import { counted } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useNow } from "../../live.ts";
import { AuditLink } from "../../parts/audit-link.tsx";
import { Block, ErrorBlock, type Fact, FactList } from "../../parts/blocks.tsx";
import { EventItem } from "../../parts/event-item.tsx";
import { PodLink, SessionLink } from "../../parts/links.tsx";
import { StatusMark, When } from "../../parts/marks.tsx";
import { Failed, Loading, PageTitle, Ready } from "../../parts/states.tsx";
import { LongText, ShownText } from "../../parts/text.tsx";
import { JsonValue } from "../../parts/value.tsx";
import { placeName, runStatus, RunVersionBadge } from "./flow-marks.tsx";
import { RunActs } from "./run-acts.tsx";
import { RunAxisChart } from "./run-axis-chart.tsx";

/** What has one run done, and what may be done about it? */
export function OneRunPage() {
  const { runId } = useParams({ from: "/runs/$runId" });
  const { before } = useSearch({ from: "/runs/$runId" });
  const isEnded = ({ run }: RunWhole) => run.status !== "open";
  const found = useLive(["run", runId], (signal) => flowsApi.run(runId, signal), {
    isSettled: isEnded,
  });
  const whole = found.data;
  const isSettled = () => whole !== undefined && isEnded(whole);
  const history = useLive(
    ["history", runId, before],
    (signal) => flowsApi.history(runId, before, signal),
    { isSettled, isOff: whole === undefined },
  );
  const children = useLive(["children", runId], (signal) => flowsApi.children(runId, signal), {
    isSettled,
    isOff: whole === undefined,
  });
  const signals = useLive(["signals", runId], (signal) => flowsApi.signals(runId, signal), {
    isSettled,
    isOff: whole?.run.status !== "open",
  });
  const flow = whole?.run.flow;
  return (
    <>
      <PageTitle name={flow ?? "Run"} aside={whole && <RunActs key={runId} run={whole.run} />}>
        {flow === undefined ? "Run" : <ShownText text={flow} />}
      </PageTitle>
      <p className="id-line">
        <code>
          <ShownText text={visibleLine(runId, 200)} />
        </code>{" "}
        <AuditLink subject={runId} />
      </p>
      {whole === undefined && found.error ? (
        <>
          <Failed error={found.error} onRetry={() => void found.refetch()} />
          <p>
            <Link to="/flows">To the flows</Link>
          </p>
        </>
      ) : (
        <Ready of={found} what="the run">
          {({ run, links }) => (
            <>
              <Headline run={run} />
              {history.data ? (
                <RunAxisChart run={run} page={history.data} children={children.data ?? []} />
              ) : history.error ? (
                <Failed error={history.error} onRetry={() => void history.refetch()} />
              ) : (
                <Loading what="its events" />
              )}
              <div className="columns">
                <div>
                  {run.error && <ErrorBlock error={run.error} />}
                  {history.data && <Changes page={history.data} />}
                  <Values run={run} />
                  {history.data && <Events history={history.data.history} />}
                </div>
                <div>
                  <Facts run={run} />
                  <LinksBlock run={run} links={links} children={children.data ?? []} />
                  <Signals signals={signals.data ?? []} />
                </div>
              </div>
            </>
          )}
        </Ready>
      )}
    </>
  );
}

function Headline({ run }: { run: RunFacts }) {
  const remark = runRemark(run, useNow());
  const { at, flow } = run;
  return (
    <p className="headline">
      <StatusMark status={runStatus(run)} />
      {at !== null && (
        <span>
          at{" "}
          <Link to="/flows/$flow" params={{ flow }} search={{ at }}>
            <ShownText text={placeName(at)} />
          </Link>
        </span>
      )}
      {remark && (
        <span className={remark.isWrong ? "wrong" : "soft"}>
          <LongText text={remark.text} maxChars={300} />
        </span>
      )}
    </p>
  );
}

/** The state before and after each transition that added to it. */
function Changes({ page }: { page: RunHistoryPage }) {
  const changes = stateChangesOf(page.history, page.previous === null);
  if (changes.length === 0) return null;
  return (
    <Block title="State, before and after">
      <ul className="changes">
        {changes.slice(-maxChanges).map(({ seq, atMs, transition, fields, shape }) => (
          <li key={seq}>
            <p>
              <strong>
                <ShownText text={visibleLine(placeName(transition), 100)} />
              </strong>{" "}
              <span className="soft">
                <When atMs={atMs} />
              </span>
            </p>
            {shape !== undefined && <JsonValue value={shape} label="what it set" />}
            {fields.slice(0, maxFields).map(({ name, before, after }) => (
              <div key={name} className="change">
                <p className="of-name">
                  <ShownText text={visibleLine(name, 100)} />
                </p>
                <div>
                  {before === notSet ? (
                    <p className="soft">not set</p>
                  ) : before === notRead ? (
                    <p className="soft">set by earlier events, or not</p>
                  ) : (
                    <JsonValue value={before} label={`${visibleLine(name, 60)} before`} />
                  )}
                </div>
                <JsonValue value={after} label={`${visibleLine(name, 60)} after`} />
              </div>
            ))}
            {fields.length > maxFields && (
              <p className="soft">and {counted(fields.length - maxFields, "other field")}</p>
            )}
          </li>
        ))}
      </ul>
      {changes.length > maxChanges && (
        <p className="soft">
          The last {maxChanges} of {changes.length} are shown.
        </p>
      )}
    </Block>
  );
}

const maxChanges = 20;
const maxFields = 10;

function Values({ run }: { run: RunFacts }) {
  return (
    <>
      <Block title="State now">
        <JsonValue value={run.state} label="the state" />
      </Block>
      <Block title="Input">
        <JsonValue value={run.input} label="the input" />
      </Block>
      {run.progress !== null && (
        <Block title="Progress">
          <JsonValue value={run.progress} label="the progress" />
        </Block>
      )}
      {run.status === "completed" && (
        <Block title="Result">
          <JsonValue value={run.output} label="the result" />
        </Block>
      )}
    </>
  );
}

function Facts({ run }: { run: RunFacts }) {
  const { runId, flow, version, key, attempt, deaths, status, intent } = run;
  const facts: Fact[] = [
    [
      "Flow",
      <Link key="flow" to="/flows/$flow" params={{ flow }}>
        <ShownText text={flow} />
      </Link>,
    ],
    ["Version", <RunVersionBadge key="version" version={version} />],
    ["Tenant", <ShownText key="tenant" text={run.tenant} />],
    key !== null && ["Key", <LongText key="key" text={key} maxChars={200} />],
    ["Priority", String(run.priority)],
    ["Created", <When key="created" atMs={run.createdAtMs} />],
    ["Changed", <When key="changed" atMs={run.updatedAtMs} />],
    status === "open" && ["Attempt", String(attempt)],
    deaths > 0 && ["Pods died", String(deaths)],
    intent !== null && status === "open" && ["Ends as", intent],
    run.doing?.type === "running" && ["Pod", <PodLink key="pod" podId={run.doing.podId} isWhole />],
    [
      "As a task",
      <Link key="task" to="/tasks/$taskId" params={{ taskId: runId }}>
        its steps, and why it waits
      </Link>,
    ],
  ];
  return (
    <Block title="Facts">
      <FactList facts={facts} />
    </Block>
  );
}

/** What started it, what it waits for, and what it started. */
function LinksBlock({
  run,
  links: { startedBy, started, hasMore },
  children,
}: {
  run: RunFacts;
  links: RunWhole["links"];
  children: readonly RunFacts[];
}) {
  const runs = new Set(children.map(({ runId }) => runId));
  const linked = new Set(started.map(({ taskId }) => taskId));
  const others = run.waitsFor.filter((id) => !runs.has(id) && !linked.has(id));
  const unlisted = children.filter(({ runId }) => !linked.has(runId));
  const isEmpty =
    startedBy === null &&
    run.parentId === null &&
    started.length + others.length + unlisted.length === 0;
  if (isEmpty) return null;
  return (
    <Block title="Came from, led to">
      <ul className="lines">
        {startedBy && <StartedBy by={startedBy} />}
        {startedBy === null && run.parentId !== null && (
          <li>
            Started by run <RunLink runId={run.parentId} />
          </li>
        )}
        {others.slice(0, maxLinks).map((taskId) => (
          <li key={`after ${taskId}`}>
            After{" "}
            <Link to="/tasks/$taskId" params={{ taskId }}>
              <code>{visibleLine(taskId, 60)}</code>
            </Link>
          </li>
        ))}
        {unlisted.map((child) => (
          <li key={child.runId}>
            Started{" "}
            <RunLink runId={child.runId}>
              <ShownText text={visibleLine(child.flow, 80)} />
            </RunLink>{" "}
            <StatusMark status={runStatus(child)} />
          </li>
        ))}
        {started.map(({ taskId, name, status }) => (
          <li key={taskId}>
            Started{" "}
            {runs.has(taskId) ? (
              <RunLink runId={taskId}>
                <ShownText text={visibleLine(name ?? "what is gone", 80)} />
              </RunLink>
            ) : (
              <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
                <ShownText text={visibleLine(name ?? "what is gone", 80)} />
              </Link>
            )}{" "}
            {status !== null && <StatusMark status={status} />}
          </li>
        ))}
        {others.length > maxLinks && (
          <li>
            <Link to="/tasks/$taskId" params={{ taskId: run.runId }}>
              all that it waits for
            </Link>
          </li>
        )}
        {hasMore && (
          <li>
            <Link to="/tasks" search={{ run: run.runId }}>
              all that it has started
            </Link>
          </li>
        )}
      </ul>
    </Block>
  );
}

const maxLinks = 50;

function RunLink({ runId, children }: { runId: string; children?: ReactNode }) {
  return (
    <Link to="/runs/$runId" params={{ runId }} title={runId}>
      {children ?? <code>{visibleLine(runId, 60)}</code>}
    </Link>
  );
}

function StartedBy({
  by: { what, id, tenant },
}: {
  by: NonNullable<RunWhole["links"]["startedBy"]>;
}) {
  const shown = <code>{visibleLine(id, 60)}</code>;
  switch (what) {
    case "run":
      return (
        <li>
          Started by run <RunLink runId={id} />
        </li>
      );
    case "session":
      return (
        <li>
          Started by a turn of session{" "}
          <SessionLink session={{ sessionId: id, tenant }}>{shown}</SessionLink>
        </li>
      );
    case "schedule":
      return (
        <li>
          Started by schedule{" "}
          <Link to="/schedules/$scheduleId" params={{ scheduleId: id }}>
            {shown}
          </Link>
        </li>
      );
    case "task":
    case "follow_up":
      return (
        <li>
          Started by {what === "task" ? "task" : "the failure of task"}{" "}
          <Link to="/tasks/$taskId" params={{ taskId: id }}>
            {shown}
          </Link>
        </li>
      );
  }
}

function Signals({ signals }: { signals: readonly UnusedSignal[] }) {
  if (signals.length === 0) return null;
  return (
    <Block title="Signals that it hasn't used">
      <ul className="lines">
        {signals.map(({ seq, name, signalId, atMs }) => (
          <li key={seq}>
            <ShownText text={visibleLine(name, 100)} />
            <code className="soft">{visibleLine(signalId, 40)}</code>
            <span className="soft end">
              <When atMs={atMs} />
            </span>
          </li>
        ))}
      </ul>
    </Block>
  );
}

function Events({ history }: { history: readonly RunEventFacts[] }) {
  const [isOpen, setOpen] = useState(false);
  if (history.length === 0) return null;
  return (
    <section className="block">
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <h2>{counted(history.length, "event")}</h2>
        </summary>
        <ol className="events">
          {(isOpen ? history : []).map((event) => (
            <EventItem key={event.seq} event={event}>
              {event.transition !== null && <ShownText text={visibleLine(event.transition, 100)} />}
            </EventItem>
          ))}
        </ol>
      </details>
    </section>
  );
}
