import { Link, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { originalOf } from "../../protocol/copies.ts";
import { api, type StepPage, type TaskFacts, type TaskWhole } from "../api.ts";
import { possibleActs, remarkOf } from "../facts/remark.ts";
import { counted } from "../facts/spans.ts";
import { redriveIn } from "../facts/tasks/redrive.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay, useNow } from "../live.ts";
import { ActDialog, type PlannedAct } from "../parts/act-dialog.tsx";
import { AuditLink } from "../parts/audit-link.tsx";
import { Block, ErrorBlock, type Fact, FactList } from "../parts/blocks.tsx";
import { PodLink, SessionLink } from "../parts/links.tsx";
import { StatusMark, When } from "../parts/marks.tsx";
import { PageTitle, Ready } from "../parts/states.tsx";
import { LongText, shortId, ShownText } from "../parts/text.tsx";
import { JsonValue } from "../parts/value.tsx";
import { CopyDialog } from "./tasks/copy-dialog.tsx";
import { Dependencies } from "./tasks/dependencies.tsx";
import { Events, StepBlock } from "./tasks/task-events.tsx";
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
  const steps = useLive(["steps", taskId], (signal) => api.steps(taskId, 0, signal), {
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
        {(whole) => <TaskBody whole={whole} steps={steps.data ?? noSteps} />}
      </Ready>
    </>
  );
}

const noSteps: StepPage = { steps: [], next: null };

function TaskBody({ whole, steps }: { whole: TaskWhole; steps: StepPage }) {
  const { task, events } = whole;
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
          <StepBlock key={`steps of ${task.taskId}`} task={task} page={steps} />
          <Events key={`events of ${task.taskId}`} whole={whole} />
        </div>
        <div>
          <Facts task={task} />
          <LinksBlock whole={whole} />
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
    task.status === "claimed" && ["Pod", <PodLink key="pod" podId={task.claimedBy} isWhole />],
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

function LinksBlock({ whole: { task, events, links } }: { whole: TaskWhole }) {
  const { startedBy, started, hasMore, dependents, copies } = links;
  const { waitsFor } = task;
  const original = originalOf(task.key);
  const redriveId = redriveIn(events);
  const many = [started, waitsFor, dependents, copies];
  const isAlone = startedBy === null && many.every((each) => each.length === 0);
  if (isAlone && original === undefined && redriveId === undefined) return null;
  return (
    <Block title="Came from, led to">
      <ul className="lines">
        {original !== undefined && (
          <li>
            A copy of <TaskLink taskId={original} />
          </li>
        )}
        {redriveId !== undefined && (
          <li>
            Started over by{" "}
            <Link to="/failures" search={{ redrive: redriveId }} title={redriveId}>
              the redrive <code>{shortId(visibleLine(redriveId))}</code>
            </Link>
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
        <LinkedTasks says="Copied to" tasks={copies} />
      </ul>
      <Dependencies taskIds={waitsFor} />
      {dependents.length > 0 && (
        <div className="after">
          <p className="soft">
            {dependents.length < maxLinked
              ? `Before ${counted(dependents.length, "task")}:`
              : `Before ${maxLinked} tasks or more, of which these are the first:`}
          </p>
          <ul className="after-list">
            <LinkedTasks tasks={dependents} />
          </ul>
        </div>
      )}
    </Block>
  );
}

// What the server tells of a task at most.
const maxLinked = 100;

function LinkedTasks({ says, tasks }: { says?: string; tasks: TaskWhole["links"]["dependents"] }) {
  return tasks.map(({ taskId, name, status }) => (
    <li key={taskId}>
      {says}{" "}
      <TaskLink taskId={taskId}>
        <ShownText text={visibleLine(name ?? "what is gone", 80)} />
      </TaskLink>{" "}
      {status !== null && <StatusMark status={status} />}
    </li>
  ));
}

function StarterLink({ startedBy }: { startedBy: NonNullable<TaskWhole["links"]["startedBy"]> }) {
  const { what, id } = startedBy;
  const text = <code>{visibleLine(id, 60)}</code>;
  if (what === "session")
    return <SessionLink session={{ sessionId: id, tenant: startedBy.tenant }}>{text}</SessionLink>;
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
