import { Link, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { api, type StepFacts, type TaskFacts, type TaskWhole } from "../api.ts";
import { possibleActs, remarkOf } from "../facts/remark.ts";
import { bytesText, counted, durationText } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay, useNow } from "../live.ts";
import { ActDialog, type PlannedAct } from "../parts/act-dialog.tsx";
import { AuditLink } from "../parts/audit-link.tsx";
import { Block, ErrorBlock, type Fact, FactList } from "../parts/blocks.tsx";
import { Badge, StatusMark, When, Wide } from "../parts/marks.tsx";
import { PageTitle, Ready } from "../parts/states.tsx";
import { LongText, ShownText } from "../parts/text.tsx";
import { JsonValue } from "../parts/value.tsx";
import { originalOf } from "../facts/tasks/copy.ts";
import { CopyDialog } from "./tasks/copy-dialog.tsx";
import { Dependencies } from "./tasks/dependencies.tsx";
import { Why } from "./tasks/why.tsx";
import { WaterfallChart } from "./waterfall-chart.tsx";
import "../styles/tasks.css";

/** What happened to one task, and what may be done about it. */
export function OneTaskPage() {
  const { taskId } = useParams({ from: "/tasks/$taskId" });
  const isEnded = ({ task: { status } }: TaskWhole) => status !== "pending" && status !== "claimed";
  const found = useLive(["task", taskId], (signal) => api.task(taskId, signal), {
    isSettled: isEnded,
  });
  const steps = useLive(["steps", taskId], (signal) => api.steps(taskId, signal), {
    isSettled: () => found.data !== undefined && isEnded(found.data),
  });
  const name = found.data?.task.name;
  return (
    <>
      <PageTitle
        name={name ?? "Task"}
        aside={found.data && <TaskActs key={taskId} task={found.data.task} />}
      >
        {name === undefined ? "Task" : <ShownText text={name} />}
      </PageTitle>
      <p className="id-line">
        <code>
          <ShownText text={visibleLine(taskId, 200)} />
        </code>{" "}
        <AuditLink subject={taskId} />
      </p>
      <Ready of={found} what="the task">
        {(whole) => <TaskBody whole={whole} steps={steps.data?.steps ?? []} />}
      </Ready>
    </>
  );
}

function TaskBody({ whole, steps }: { whole: TaskWhole; steps: readonly StepFacts[] }) {
  const { task, events, links } = whole;
  const remark = remarkOf(task, useNow());
  return (
    <>
      <p className="headline">
        <StatusMark status={task.status} />
        {remark && (
          <span className={remark.isWrong ? "wrong" : "soft"}>
            <LongText text={remark.text} maxChars={300} />
          </span>
        )}
      </p>
      {task.flowVersion !== null && (
        <p>
          It is a run:{" "}
          <Link to="/runs/$runId" params={{ runId: task.taskId }}>
            its machine, signals and state
          </Link>
        </p>
      )}
      {task.status === "pending" && <Why taskId={task.taskId} />}
      <WaterfallChart task={task} events={events} isCut={whole.next !== null} />
      <div className="columns">
        <div>
          {"error" in task && task.error && <ErrorBlock error={task.error} />}
          <Block title="Payload">
            <JsonValue value={task.payload} label="the payload" />
          </Block>
          {task.progress !== null && (
            <Block title="Progress">
              <JsonValue value={task.progress} label="the progress" />
            </Block>
          )}
          {task.status === "completed" && (
            <Block title="Result">
              <JsonValue value={task.result} label="the result" />
            </Block>
          )}
          <Steps steps={steps} />
          <Events whole={whole} />
        </div>
        <div>
          <Facts task={task} />
          <LinksBlock task={task} links={links} />
        </div>
      </div>
    </>
  );
}

function TaskLink({ taskId, children }: { taskId: string; children?: ReactNode }) {
  return (
    <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
      {children ?? <code>{visibleLine(taskId, 60)}</code>}
    </Link>
  );
}

function Facts({ task }: { task: TaskFacts }) {
  const { failures, maxAttempts, deaths, snoozes, key, scope, scheduledAtMs } = task;
  const attempts = maxAttempts === null ? String(failures) : `${failures} of ${maxAttempts}`;
  const facts: Fact[] = [
    ["Tenant", <ShownText key="tenant" text={task.tenant} />],
    key !== null && ["Key", <LongText key="key" text={key} maxChars={200} />],
    ["Priority", String(task.priority)],
    ["Created", <When key="created" atMs={task.createdAtMs} />],
    ["Changed", <When key="changed" atMs={task.updatedAtMs} />],
    task.status === "pending" && ["Due", <When key="due" atMs={task.runAtMs} />],
    scheduledAtMs !== null && ["Scheduled for", <When key="at" atMs={scheduledAtMs} />],
    task.status === "claimed" && ["Pod", <code key="pod">{visibleLine(task.claimedBy, 60)}</code>],
    task.startedAtMs !== null && ["Handler began", <When key="began" atMs={task.startedAtMs} />],
    ["Failed attempts", attempts],
    snoozes > 0 && ["Snoozes", String(snoozes)],
    deaths > 0 && ["Pods died", String(deaths)],
    scope !== null && ["Limit", <LongText key="scope" text={scope} maxChars={200} />],
    task.version !== null && ["Version", String(task.version)],
    task.flowVersion !== null && ["Flow's version", String(task.flowVersion)],
    ["Claims", String(task.claimToken)],
  ];
  return (
    <Block title="Facts">
      <FactList facts={facts} />
    </Block>
  );
}

const starters: Readonly<Record<string, string>> = {
  session: "a turn of session",
  run: "run",
  task: "task",
  follow_up: "the failure of task",
  schedule: "schedule",
};

function LinksBlock({ task, links }: { task: TaskFacts; links: TaskWhole["links"] }) {
  const { startedBy, started, hasMore } = links;
  const { waitsFor } = task;
  const original = originalOf(task.key);
  const isAlone = startedBy === null && started.length === 0 && waitsFor.length === 0;
  if (isAlone && original === undefined) return null;
  return (
    <Block title="Came from, led to">
      <ul className="lines">
        {original !== undefined && (
          <li>
            A copy of <TaskLink taskId={original} />
          </li>
        )}
        {startedBy && (
          <li>
            Started by {starters[startedBy.what] ?? visibleLine(startedBy.what, 40)}{" "}
            <StarterLink startedBy={startedBy} />
          </li>
        )}
        {started.map(({ taskId, name, status }) => (
          <li key={taskId}>
            Started{" "}
            <TaskLink taskId={taskId}>
              <ShownText text={visibleLine(name ?? "what is gone", 80)} />
            </TaskLink>{" "}
            {status !== null && <StatusMark status={status} />}
          </li>
        ))}
        {hasMore && (
          <li>
            <Link to="/tasks" search={{ run: task.taskId }}>
              all that it has started
            </Link>
          </li>
        )}
      </ul>
      <Dependencies taskIds={waitsFor} />
    </Block>
  );
}

function StarterLink({ startedBy }: { startedBy: NonNullable<TaskWhole["links"]["startedBy"]> }) {
  const { what, id } = startedBy;
  const text = <code>{visibleLine(id, 60)}</code>;
  if (what === "session")
    return (
      <Link to="/sessions/$sessionId" params={{ sessionId: id }}>
        {text}
      </Link>
    );
  if (what === "schedule")
    return (
      <Link to="/schedules/$scheduleId" params={{ scheduleId: id }}>
        {text}
      </Link>
    );
  if (what === "run")
    return (
      <Link to="/runs/$runId" params={{ runId: id }}>
        {text}
      </Link>
    );
  return <TaskLink taskId={id} />;
}

function Steps({ steps }: { steps: readonly StepFacts[] }) {
  if (steps.length === 0) return null;
  return (
    <Block title="Steps">
      <Wide label="Steps">
        <table>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Kind</th>
              <th scope="col" className="number">
                Took
              </th>
              <th scope="col" className="number">
                Size
              </th>
              <th scope="col" className="number">
                Stored
              </th>
            </tr>
          </thead>
          <tbody>
            {steps.map(({ seq, transition, key, kind, startedAtMs, atMs, bytes, requested }) => (
              <tr key={seq}>
                <th scope="row">
                  <LongText
                    text={transition === null ? key : `${transition} / ${key}`}
                    maxChars={200}
                  />{" "}
                  {!requested && <Badge>not asked for any more</Badge>}
                </th>
                <td>
                  <Badge tone={kind === "failed" ? "wrong" : "plain"}>{kind}</Badge>
                </td>
                <td className="number">{durationText(atMs - startedAtMs)}</td>
                <td className="number">{bytesText(bytes)}</td>
                <td className="number soft">
                  <When atMs={atMs} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Block>
  );
}

// Drawn when they are opened, since a task may have a thousand, each with its detail.
const eventsAtOnce = 50;

function Events({ whole: { events, next } }: { whole: TaskWhole }) {
  const [isOpen, setOpen] = useState(false);
  const [shown, setShown] = useState(eventsAtOnce);
  if (events.length === 0) return null;
  return (
    <section className="block">
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <h2>{counted(events.length, "event")}</h2>
        </summary>
        <ol className="events">
          {events
            .slice(0, isOpen ? shown : 0)
            .map(({ seq, atMs, type, attempt, podId, detail }) => (
              <li key={seq}>
                <p>
                  <strong>{visibleLine(type.replaceAll("_", " "), 60)}</strong>{" "}
                  {attempt !== null && <span className="soft">attempt {attempt}</span>}{" "}
                  {podId !== null && (
                    <span className="soft">
                      on <code>{visibleLine(podId, 60)}</code>
                    </span>
                  )}{" "}
                  <span className="soft">
                    <When atMs={atMs} />
                  </span>
                </p>
                {detail !== null && <JsonValue value={detail} label="the event" />}
              </li>
            ))}
        </ol>
        {events.length > shown && (
          <button
            type="button"
            className="inline"
            onClick={() => setShown(shown + eventsAtOnce * 4)}
          >
            {counted(events.length - shown, "more event")}
          </button>
        )}
        {next !== null && (
          <p className="soft">
            These are the first {counted(events.length, "event")}; the command line has the rest.
          </p>
        )}
      </details>
    </section>
  );
}

function TaskActs({ task }: { task: TaskFacts }) {
  const mayAct = useMay("fleet:operate");
  const mayEnqueue = useMay("admin");
  const seesPayload = useMay("payloads:read");
  const [plan, setPlan] = useState<PlannedAct>();
  const [isCopying, setCopying] = useState(false);
  if (!mayAct) return null;
  const possible = possibleActs(task);
  return (
    <div className="page-aside">
      {mayEnqueue && seesPayload && task.flowVersion === null && (
        <button type="button" className="button" onClick={() => setCopying(true)}>
          Run a copy
        </button>
      )}
      {isCopying && <CopyDialog task={task} onClose={() => setCopying(false)} />}
      {possible.resume && (
        <button type="button" className="button primary" onClick={() => setPlan(resumePlan(task))}>
          Resume
        </button>
      )}
      {possible.retry && (
        <button type="button" className="button primary" onClick={() => setPlan(retryPlan(task))}>
          Retry
        </button>
      )}
      {possible.cancel && (
        <button type="button" className="button" onClick={() => setPlan(cancelPlan(task))}>
          Cancel
        </button>
      )}
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </div>
  );
}

function retryPlan({ taskId, name }: TaskFacts): PlannedAct {
  return {
    title: "Retry this task?",
    explanation: (
      <p>
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        starts over with the same payload and all of its attempts.
      </p>
    ),
    verb: "Retry",
    option: "Forget its stored steps, so that all of them run again",
    async perform({ actId, isChosen }) {
      const { forgottenSteps } = await api.retryTask(taskId, { actId, fromStart: isChosen });
      const forgot = forgottenSteps === 0 ? "" : `, ${counted(forgottenSteps, "step")} forgotten`;
      return `The task waits to run again${forgot}.`;
    },
  };
}

function cancelPlan({ taskId, name, status }: TaskFacts): PlannedAct {
  return {
    title: "Cancel this task?",
    explanation: (
      <p>
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        {status === "claimed"
          ? "is running: its handler is asked to stop, and what it has done by then stays."
          : "never runs, and tasks that depend on it fail."}
      </p>
    ),
    verb: "Cancel it",
    isHarmful: true,
    async perform({ actId }) {
      const answer = await api.cancelTask(taskId, { actId });
      return answer.status === "cancelled"
        ? "The task is cancelled."
        : "The task is asked to stop, and is cancelled once it has.";
    },
  };
}

function resumePlan({ taskId, name }: TaskFacts): PlannedAct {
  return {
    title: "Resume this task?",
    explanation: (
      <p>
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        was set aside. It goes on where it stopped, and is set aside again if nothing has changed.
      </p>
    ),
    verb: "Resume",
    async perform({ actId }) {
      await api.resumeTask(taskId, { actId });
      return "The task goes on.";
    },
  };
}
