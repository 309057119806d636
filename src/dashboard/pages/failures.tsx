import { Link, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, type ErrorGroupFacts, type RedriveFacts } from "../api.ts";
import { counted, exactCount } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay } from "../live.ts";
import { ActDialog, type PlannedAct } from "../parts/act-dialog.tsx";
import { Badge, When, Wide } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { LongText, shortId, ShownText } from "../parts/text.tsx";
import { FailureTrend } from "./plots.tsx";

/** What is broken, and may it be tried again? Failed tasks by their error. */
export function FailuresPage() {
  const { group, name } = useSearch({ from: "/failures" });
  const groups = useLive(["groups", { name }], (signal) => api.errorGroups({ name }, signal));
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
          <Link to="/failures" search={{}}>
            Show all
          </Link>
        </p>
      )}
      <Redrives redrives={redrives.data ?? []} onPlan={setPlan} />
      <Ready of={groups} what="failures">
        {({ groups: found }) =>
          found.length === 0 ? (
            <Empty title="No task has failed.">
              A task fails when its attempts are used up. Then it is kept here, with its error.
            </Empty>
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

type GroupProps = {
  group: ErrorGroupFacts;
  isOpen: boolean;
  onPlan: (plan: PlannedAct) => void;
};

function GroupCard({ group, isOpen, onPlan }: GroupProps) {
  const mayAct = useMay("fleet:operate");
  const mayDiscard = useMay("admin");
  const { name, code, message, tasks, firstAtMs, lastAtMs } = group;
  return (
    <li className={`group ${isOpen ? "is-open" : ""}`}>
      <div className="group-line">
        <span className="group-count">{exactCount(tasks)}</span>
        <div className="group-what">
          <h2>
            <Link
              to="/failures"
              search={isOpen ? {} : { group: group.group }}
              aria-expanded={isOpen}
              resetScroll={false}
            >
              <ShownText text={visibleLine(message, isOpen ? 300 : 160)} />
            </Link>
          </h2>
          <p className="soft">
            <Link to="/tasks" search={{ name, status: "failed" }}>
              <ShownText text={name} />
            </Link>{" "}
            <Badge tone="wrong">{visibleLine(code, 60)}</Badge> last <When atMs={lastAtMs} />, first{" "}
            <When atMs={firstAtMs} />
          </p>
        </div>
        <div className="group-acts">
          {mayAct && (
            <button
              type="button"
              className="button small"
              aria-label={`Redrive ${counted(tasks, "task")} of ${visibleLine(name, 60)}`}
              onClick={() => onPlan(redrivePlan(group))}
            >
              Redrive
            </button>
          )}
          {mayDiscard && (
            <button
              type="button"
              className="button small"
              aria-label={`Discard ${counted(tasks, "task")} of ${visibleLine(name, 60)}`}
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

function GroupTasks({ group: { group, name, message, tasks: count } }: { group: ErrorGroupFacts }) {
  const found = useLive(["failed", group], (signal) => api.failedTasks(group, signal));
  return (
    <div className="group-body">
      <pre tabIndex={0}>
        <LongText text={message} />
      </pre>
      <FailureTrend name={name} />
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

const shownRedrives = 5;

function Redrives({
  redrives,
  onPlan,
}: {
  redrives: readonly RedriveFacts[];
  onPlan: (plan: PlannedAct) => void;
}) {
  const mayAct = useMay("fleet:operate");
  if (redrives.length === 0) return null;
  return (
    <section className="block">
      <h2>Redrives</h2>
      <ul className="lines">
        {redrives.slice(0, shownRedrives).map((redrive) => (
          <li key={redrive.redriveId} className="redrive">
            <Badge tone={toneOf(redrive.state)}>{wordOf(redrive.state)}</Badge>
            <RedriveBar redrive={redrive} />
            <span>
              {exactCount(redrive.succeeded)} succeeded
              {redrive.failed > 0 && <>, {exactCount(redrive.failed)} with the same error</>}
              {redrive.failedOtherwise > 0 && (
                <>, {exactCount(redrive.failedOtherwise)} otherwise</>
              )}
              {redrive.open > 0 && <>, {exactCount(redrive.open)} under way</>}
              {redrive.remaining !== null && redrive.remaining > 0 && (
                <>, {exactCount(redrive.remaining)} left</>
              )}
            </span>
            <span className="soft end">
              <When atMs={redrive.updatedAtMs} />
            </span>
            {mayAct && redrive.state === "running" && (
              <button
                type="button"
                className="button small"
                onClick={() => onPlan(stopPlan(redrive))}
              >
                Stop
              </button>
            )}
            {redrive.reason && (
              <p className="wrong redrive-reason">
                <ShownText text={visibleLine(redrive.reason.message, 300)} />{" "}
                {redrive.reason.taskId !== undefined && (
                  <Link to="/tasks/$taskId" params={{ taskId: redrive.reason.taskId }}>
                    its task
                  </Link>
                )}
              </p>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function RedriveBar({ redrive }: { redrive: RedriveFacts }) {
  const { succeeded, failed, failedOtherwise, gone, open, remaining } = redrive;
  const all = Math.max(1, succeeded + failed + failedOtherwise + gone + open + (remaining ?? 0));
  const part = (count: number, tone: string) =>
    count > 0 && (
      <span className={`part of-${tone}`} style={{ width: `${(count / all) * 100}%` }} />
    );
  return (
    <span className="share" aria-hidden="true">
      {part(succeeded, "good")}
      {part(failed + failedOtherwise, "wrong")}
      {part(open, "open")}
    </span>
  );
}

function toneOf(state: RedriveFacts["state"]): string {
  if (state === "done") return "good";
  return state === "stopped" ? "wrong" : "plain";
}

function wordOf(state: RedriveFacts["state"]): string {
  return state === "stopped" ? "halted" : state;
}

function redrivePlan({ group, name, tasks }: ErrorGroupFacts): PlannedAct {
  return {
    title: `Redrive ${counted(tasks, "task")}?`,
    explanation: (
      <p>
        One failed task of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        starts over first. If it succeeds, two follow, then four, and so on. If the error comes
        back, the redrive halts and the rest stays here.
      </p>
    ),
    verb: "Redrive",
    option: "Forget their stored steps, so that all of them run again",
    async perform({ actId, isChosen }) {
      await api.startRedrive({ group, fromStart: isChosen }, { actId });
      return "The redrive has begun.";
    },
  };
}

function discardPlan({ group, name, tasks }: ErrorGroupFacts): PlannedAct {
  return {
    title: `Discard ${counted(tasks, "task")}?`,
    explanation: (
      <p>
        Failed tasks of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        become cancelled and keep their error. They leave this page, and each can still be retried
        by itself.
      </p>
    ),
    verb: "Discard",
    isHarmful: true,
    async perform({ actId }) {
      const { discarded } = await api.discard({ group }, { actId });
      return `${counted(discarded, "task")} discarded.`;
    },
  };
}

function stopPlan({ redriveId, open }: RedriveFacts): PlannedAct {
  return {
    title: "Stop this redrive?",
    explanation: (
      <p>It starts no more tasks over. {open > 0 && `${counted(open, "task")} under way go on.`}</p>
    ),
    verb: "Stop it",
    async perform({ actId }) {
      await api.cancelRedrive(redriveId, { actId });
      return "The redrive stops.";
    },
  };
}
