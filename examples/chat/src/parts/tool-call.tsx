import { use } from "react";
import { type Call, timeZoneTool } from "../lib/calls.ts";
import { DecidingContext } from "./deciding.ts";
import { TaskProgress } from "./task-progress.tsx";

/** A call of a tool: what it is given, what came of it, and where it needs somebody's word, a way to say it. */
export function ToolCall({ call }: { call: Call }) {
  const { name, state, input, output, errorText } = call;
  const taskId = taskOf(output);
  return (
    <section className="tool" aria-label={`Tool ${name}`} data-state={state}>
      <header>
        <code>{name}</code>
        <span className="mark">{taskId === undefined ? stateWords(call) : "started"}</span>
      </header>
      {input !== undefined && <Data value={input} />}
      {state === "approval-requested" && <Asked call={call} />}
      {name === timeZoneTool && state === "input-available" && <Here call={call} />}
      {taskId !== undefined ? (
        <TaskProgress taskId={taskId} />
      ) : (
        state === "output-available" && <Data value={output} />
      )}
      {errorText !== undefined && <p className="wrong">{errorText}</p>}
    </section>
  );
}

function Asked({ call }: { call: Call }) {
  const { approve } = use(DecidingContext);
  const { approval, name } = call;
  if (!approval) return null;
  return (
    <div className="choice">
      <p>May it do that?</p>
      <button
        className="main"
        aria-label={`Approve ${name}`}
        onClick={() => approve(approval.id, true)}
      >
        Approve
      </button>
      <button aria-label={`Deny ${name}`} onClick={() => approve(approval.id, false)}>
        Deny
      </button>
    </div>
  );
}

/** A tool that runs in the browser, and only when its user says so. */
function Here({ call: { name, toolCallId } }: { call: Call }) {
  const { answer } = use(DecidingContext);
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const time = new Date().toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  return (
    <div className="choice">
      <p>Tell it your time zone?</p>
      <button className="main" onClick={() => answer(name, toolCallId, { timeZone, time })}>
        Share {timeZone}
      </button>
      <button onClick={() => answer(name, toolCallId, { refused: true })}>Don’t share</button>
    </div>
  );
}

function Data({ value }: { value: unknown }) {
  if (value === null || typeof value !== "object") return <p className="data">{String(value)}</p>;
  return (
    <dl className="data">
      {Object.entries(value).map(([key, field]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{typeof field === "string" ? field : JSON.stringify(field)}</dd>
        </div>
      ))}
    </dl>
  );
}

function stateWords({ state, approval }: Call): string {
  switch (state) {
    case "input-streaming":
      return "being written";
    case "input-available":
      return "called";
    case "approval-requested":
      return "needs your word";
    case "approval-responded":
      return approval?.approved ? "approved" : "denied";
    case "output-available":
      return "done";
    case "output-error":
      return "failed";
    case "output-denied":
      return "denied";
    default:
      return state;
  }
}

function taskOf(output: unknown): string | undefined {
  if (typeof output !== "object" || output === null || !("taskId" in output)) return undefined;
  return typeof output.taskId === "string" ? output.taskId : undefined;
}
