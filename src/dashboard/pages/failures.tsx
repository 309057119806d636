import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, type ErrorGroupFacts, type ErrorGroupPage } from "../api.ts";
import { possibleBulks } from "../facts/bulk.ts";
import { counted, exactCount } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay, useNow, useSeesAll } from "../live.ts";
import { ActDialog, type PlannedAct } from "../parts/act-dialog.tsx";
import { BulkDialog, BulkLines } from "../parts/bulk-dialog.tsx";
import { Badge, When, Wide } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { LongText, shortId, ShownText } from "../parts/text.tsx";
import { FailureTrend, GroupTrend } from "./plots.tsx";
import { ChosenRedrive, Redrives } from "./redrives.tsx";
import {
  discardPlan,
  ignorePlan,
  redrivePlan,
  reopenPlan,
  resolvePlan,
} from "./tasks/failure-acts.tsx";
import "../styles/failures.css";

/** What is broken, and may it be tried again? Failed tasks by their error. */
export function FailuresPage() {
  const { group, name, state, redrive } = useSearch({ from: "/failures" });
  const groups = useLive(["groups", { name, state }], (signal) =>
    api.errorGroups({ name, state }, signal),
  );
  const redrives = useLive(["redrives"], api.redrives);
  const [plan, setPlan] = useState<PlannedAct>();
  const chosen = groups.data?.groups.find((each) => each.group === group);
  return (
    <>
      <PageTitle
        name="Failures"
        aside={
          groups.data && (
            <span className="page-aside soft">
              {counted(groups.data.tasks, "task")}, {counted(groups.data.count, "error")}
            </span>
          )
        }
      >
        Failures
      </PageTitle>
      {name !== undefined && (
        <p>
          Of <ShownText text={name} /> alone.{" "}
          <Link to="/failures" search={state === undefined ? {} : { state }}>
            Show all
          </Link>
        </p>
      )}
      <StateFilter name={name} state={state} page={groups.data} />
      {redrive !== undefined && <ChosenRedrive redriveId={redrive} onPlan={setPlan} />}
      <Redrives redrives={redrives.data ?? []} onPlan={setPlan} />
      <BulkLines noun="task" />
      <Ready of={groups} what="failures">
        {({ groups: found }) =>
          found.length === 0 ? (
            <NoGroups state={state} />
          ) : (
            <ul className="groups">
              {found.map((each) => (
                <GroupCard
                  key={each.group}
                  group={each}
                  isOpen={each.group === group}
                  onPlan={setPlan}
                />
              ))}
            </ul>
          )
        }
      </Ready>
      {group !== undefined && groups.data && !chosen && groups.data.groups.length > 0 && (
        <p className="soft">
          The group of this address has no failed tasks any more, or isn&apos;t among the largest.
        </p>
      )}
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

const stateWords = [
  ["", "open and resolved"],
  ["open", "open"],
  ["resolved", "resolved"],
  ["ignored", "ignored"],
] as const;

/** Which groups are shown: those that are ignored are left out unless they are asked for. */
function StateFilter({
  name,
  state,
  page,
}: {
  name: string | undefined;
  state: string | undefined;
  page: ErrorGroupPage | undefined;
}) {
  const navigate = useNavigate();
  const go = (next: string) =>
    void navigate({
      to: "/failures",
      search: { ...(name !== undefined && { name }), ...(next !== "" && { state: next }) },
    });
  const isKnown = stateWords.some(([value]) => value === (state ?? ""));
  return (
    <div className="filter" role="search" aria-label="Filter of failures">
      <select
        aria-label="State"
        data-filter=""
        value={isKnown ? (state ?? "") : "?"}
        onChange={(event) => go(event.target.value)}
      >
        {!isKnown && <option value="?">another state</option>}
        {stateWords.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      {page && state !== "ignored" && page.ignored.groups > 0 && (
        <button type="button" className="inline" onClick={() => go("ignored")}>
          {counted(page.ignored.groups, "error")} ignored, with{" "}
          {counted(page.ignored.tasks, "task")}
        </button>
      )}
    </div>
  );
}

function NoGroups({ state }: { state: string | undefined }) {
  if (state !== undefined)
    return (
      <Empty title={`No error is ${visibleLine(state, 20)}.`}>
        <Link to="/failures" search={{}}>
          Show all that aren&apos;t ignored
        </Link>
      </Empty>
    );
  return (
    <Empty title="No task has failed.">
      A task fails when its attempts are used up. Then it is kept here, with its error.
    </Empty>
  );
}

type GroupProps = {
  group: ErrorGroupFacts;
  isOpen: boolean;
  onPlan: (plan: PlannedAct) => void;
};

function GroupCard({ group, isOpen, onPlan }: GroupProps) {
  const mayAct = useMay("fleet:operate");
  const mayDiscard = useMay("admin");
  // A state is of a group as a whole, which has tasks of all tenants.
  const mayChange = useSeesAll() && mayAct;
  const { state } = useSearch({ from: "/failures" });
  const kept = state === undefined ? {} : { state };
  const { name, code, message, tasks, firstSeenMs, lastAtMs } = group;
  const about = `${counted(tasks, "task")} of ${visibleLine(name, 60)}`;
  return (
    <li className={`group ${isOpen ? "is-open" : ""}`}>
      <div className="group-line">
        <span className="group-count">{exactCount(tasks)}</span>
        <div className="group-what">
          <h2>
            <Link
              to="/failures"
              search={isOpen ? kept : { ...kept, group: group.group }}
              aria-expanded={isOpen}
              resetScroll={false}
            >
              <ShownText text={visibleLine(message, isOpen ? 300 : 160)} />
            </Link>
          </h2>
          <p className="soft">
            <Link to="/tasks" search={{ name, group: group.group }}>
              <ShownText text={name} />
            </Link>{" "}
            <Badge tone="wrong">{visibleLine(code, 60)}</Badge> last <When atMs={lastAtMs} />, first
            seen <When atMs={firstSeenMs} />
          </p>
          <Standing group={group} />
        </div>
        <Sparkline trend={group.trend} />
        <div className="group-acts">
          {mayAct && (
            <button
              type="button"
              className="button small"
              aria-label={`Redrive ${about}`}
              onClick={() => onPlan(redrivePlan(group))}
            >
              Redrive
            </button>
          )}
          {mayChange && group.state === "open" && (
            <button
              type="button"
              className="button small"
              aria-label={`Resolve ${about}`}
              onClick={() => onPlan(resolvePlan(group))}
            >
              Resolve
            </button>
          )}
          {mayChange && group.state === "open" && (
            <button
              type="button"
              className="button small"
              aria-label={`Ignore ${about}`}
              onClick={() => onPlan(ignorePlan(group))}
            >
              Ignore
            </button>
          )}
          {mayChange && group.state !== "open" && (
            <button
              type="button"
              className="button small"
              aria-label={`Reopen ${about}`}
              onClick={() => onPlan(reopenPlan(group))}
            >
              Reopen
            </button>
          )}
          {mayDiscard && (
            <button
              type="button"
              className="button small"
              aria-label={`Discard ${about}`}
              onClick={() => onPlan(discardPlan(group))}
            >
              Discard
            </button>
          )}
        </div>
      </div>
      {isOpen && <GroupTasks group={group} />}
    </li>
  );
}

/** The last day of an error, an hour each. Its group, opened, has the same as a plot with a table. */
function Sparkline({ trend }: { trend: readonly number[] }) {
  const most = Math.max(...trend, 1);
  const [last = 0] = trend.slice(-1);
  const sum = trend.reduce((all, count) => all + count, 0);
  const text = `${exactCount(sum)} failed in the last 24 hours, ${exactCount(last)} in this hour`;
  return (
    <svg
      className="sparkline"
      role="img"
      aria-label={text}
      viewBox={`0 0 ${trend.length * 4} 24`}
      preserveAspectRatio="none"
    >
      <title>{text}</title>
      {trend.map((count, at) => {
        const height = count === 0 ? 1 : Math.max(3, (count / most) * 24);
        const kind = count === 0 ? "is-none" : "";
        return (
          <rect key={at} className={kind} x={at * 4} y={24 - height} width={3} height={height} />
        );
      })}
    </svg>
  );
}

/** What operators have said of an error, where they have. */
function Standing({ group }: { group: ErrorGroupFacts }) {
  const { state, stateAtMs, untilMs, cameBackAtMs } = group;
  if (state === "open")
    return cameBackAtMs === null ? null : (
      <p>
        <Badge tone="warn">came back</Badge>{" "}
        <span className="soft">
          <When atMs={cameBackAtMs} />
        </span>
      </p>
    );
  return (
    <p>
      <Badge tone={state === "resolved" ? "good" : "plain"}>{state}</Badge>{" "}
      <span className="soft">
        {stateAtMs !== null && <When atMs={stateAtMs} />}
        {state === "ignored" && untilMs === null && ", until a task of it fails"}
        {state === "ignored" && untilMs !== null && (
          <>
            , until <When atMs={untilMs} />
          </>
        )}
      </span>
    </p>
  );
}

function GroupTasks({
  group: { group, name, message, tasks: count, trend },
}: {
  group: ErrorGroupFacts;
}) {
  const nowMs = useNow();
  const found = useLive(["failed", group], (signal) => api.failedTasks(group, signal));
  const mayAct = useMay("fleet:operate");
  const [isOnAll, setOnAll] = useState(false);
  return (
    <div className="group-body">
      <pre tabIndex={0}>
        <LongText text={message} />
      </pre>
      {mayAct && (
        <p>
          <button type="button" className="button small" onClick={() => setOnAll(true)}>
            All that match …
          </button>
        </p>
      )}
      {isOnAll && (
        <BulkDialog
          target={{ noun: "task", filter: { name, group }, acts: possibleBulks({ group }) }}
          onClose={() => setOnAll(false)}
        />
      )}
      <div className="plots">
        <GroupTrend trend={trend} nowMs={nowMs} />
        <FailureTrend name={name} />
      </div>
      <Ready of={found} what="its tasks">
        {({ tasks }) => (
          <>
            <Wide label="Tasks of this error">
              <table>
                <thead>
                  <tr>
                    <th scope="col">Task</th>
                    <th scope="col">Tenant</th>
                    <th scope="col">Message</th>
                    <th scope="col" className="number">
                      Attempts
                    </th>
                    <th scope="col" className="number">
                      Failed
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {tasks.map(({ taskId, tenant, message: own, failures, failedAtMs }) => (
                    <tr key={taskId}>
                      <th scope="row">
                        <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
                          <code>{shortId(taskId)}</code>
                        </Link>
                      </th>
                      <td className="soft">
                        <ShownText text={visibleLine(tenant, 60)} />
                      </td>
                      <td className="cut-cell">
                        <ShownText text={visibleLine(own, 120)} />
                      </td>
                      <td className="number">{failures}</td>
                      <td className="number soft">
                        <When atMs={failedAtMs} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Wide>
            {tasks.length < count && (
              <p className="soft">
                The latest {tasks.length} of {exactCount(count)}.
              </p>
            )}
          </>
        )}
      </Ready>
    </div>
  );
}
