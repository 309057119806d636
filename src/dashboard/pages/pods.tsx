import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import { api } from "../api.ts";
import { fleetAsks } from "../asks/fleet.ts";
import type { ShownFleet, ShownPod } from "../facts/fleet/fleet.ts";
import {
  backlogText,
  drainText,
  holdsOf,
  type LogBehind,
  logsBehind,
  podsToShow,
  podStanding,
  totalsOf,
} from "../facts/fleet/pods.ts";
import { bytesText, counted, durationText, exactCount } from "../facts/spans.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useMay, useNow } from "../live.ts";
import { ActDialog, type PlannedAct } from "../parts/act-dialog.tsx";
import { ThrottleLink } from "../parts/links.tsx";
import { Advice, Badge, When, Wide } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import "../styles/pods.css";

// More are shown when a person opens them.
const maxNames = 3;
// As many as a person reads; the filter finds the others.
const podsAtOnce = 50;
const filterFrom = 10;

/** Is the fleet well? Every pod that is up, and those that went down lately. */
export function PodsPage() {
  const pods = useLive(["pods"], api.fleet);
  const { find } = useSearch({ from: "/pods" });
  const [plan, setPlan] = useState<PlannedAct>();
  return (
    <>
      <PageTitle name="Pods">Pods</PageTitle>
      <Ready of={pods} what="pods">
        {(fleet) => (
          <>
            {(fleet.pods.length > filterFrom || find !== undefined) && <Find find={find ?? ""} />}
            <PodList fleet={fleet} find={find} onPlan={setPlan} />
            <SessionLogs pods={fleet.pods} />
          </>
        )}
      </Ready>
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

function Find({ find }: { find: string }) {
  const navigate = useNavigate();
  const [text, setText] = useState(find);
  useEffect(() => setText(find), [find]);
  const apply = (next: string) => {
    if (next !== find) void navigate({ to: "/pods", search: next === "" ? {} : { find: next } });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply(text.trim());
  };
  return (
    <form className="filter" role="search" aria-label="Filter of pods" onSubmit={submit}>
      <input
        type="text"
        data-filter=""
        aria-label="Id, host or task"
        placeholder="Id, host or task"
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onBlur={() => apply(text.trim())}
      />
      {find !== "" && (
        <button type="button" className="button small" onClick={() => apply("")}>
          Clear
        </button>
      )}
    </form>
  );
}

type PodListProps = {
  fleet: ShownFleet;
  find: string | undefined;
  onPlan: (plan: PlannedAct) => void;
};

function PodList({ fleet, find, onPlan }: PodListProps) {
  const [limit, setLimit] = useState(podsAtOnce);
  const { shown, ...lately } = podsToShow(fleet.pods, { find, nowMs: useNow() });
  const gone = fleet.gone + lately.gone;
  const rest = shown.length - limit;
  if (shown.length === 0 && find !== undefined)
    return (
      <Empty title="No pod matches the filter.">
        <Link to="/pods" search={{}}>
          Show all pods
        </Link>
      </Empty>
    );
  if (shown.length === 0)
    return (
      <Empty title="No pod is up." command="flotilla work">
        Tasks wait until there is one. This starts one that works on the same store:
      </Empty>
    );
  return (
    <>
      <Totals pods={shown} />
      <PodTable pods={shown.slice(0, limit)} onPlan={onPlan} />
      {rest > 0 && (
        <p>
          <button
            type="button"
            className="button small"
            onClick={() => setLimit(limit + podsAtOnce)}
          >
            Show {exactCount(Math.min(rest, podsAtOnce))} more of {exactCount(rest)}
          </button>
        </p>
      )}
      {fleet.more > 0 && (
        <p className="soft">
          <Advice
            text={`${counted(fleet.more, "other pod")} left out: \`flotilla pods\` lists all.`}
          />
        </p>
      )}
      {gone > 0 && (
        <p className="soft">{counted(gone, "other pod")} went down more than an hour ago.</p>
      )}
    </>
  );
}

/** All together, which for one pod its row says. */
function Totals({ pods }: { pods: readonly ShownPod[] }) {
  const { up, held, holds, lagMs, memoryBytes } = totalsOf(pods);
  if (up < 2) return null;
  return (
    <p className="soft">
      {counted(up, "pod")} up, {exactCount(held)} of {exactCount(holds)} tasks held, event loops at
      most {durationText(lagMs)} late, {bytesText(memoryBytes)} of memory.
    </p>
  );
}

type PodTableProps = {
  pods: readonly ShownPod[];
  onPlan: (plan: PlannedAct) => void;
};

function PodTable({ pods, onPlan }: PodTableProps) {
  const mayAct = useMay("fleet:operate");
  return (
    <Wide label="Pods">
      <table className="pods">
        <thead>
          <tr>
            <th scope="col">Pod</th>
            <th scope="col">State</th>
            <th scope="col">Holds</th>
            <th scope="col" className="number">
              Lag
            </th>
            <th scope="col" className="number">
              Memory
            </th>
            <th scope="col">In flight</th>
            <th scope="col">Handlers</th>
            {mayAct && (
              <th scope="col">
                <span className="hidden">Act</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {pods.map((pod) => (
            <PodRow key={pod.podId} pod={pod} onPlan={mayAct ? onPlan : undefined} />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

type PodRowProps = {
  pod: ShownPod;
  onPlan: ((plan: PlannedAct) => void) | undefined;
};

function PodRow({ pod, onPlan }: PodRowProps) {
  const { podId, status, pulse, leads, birthMs, lastHeartbeatMs, drain } = pod;
  const isUp = status === "up";
  const { word, tone } = podStanding(pod);
  const left = isUp ? drainText(pod) : undefined;
  return (
    <tr className={isUp ? "" : "is-down"}>
      <th scope="row">
        <code title={podId}>{shortId(podId)}</code> {leads && <Badge tone="accent">leads</Badge>}
        <p className="soft">{whereOf(pod)}</p>
        <p className="soft">
          started <When atMs={birthMs} />
        </p>
      </th>
      <td className="pod-state">
        <span className={`status of-${tone}`}>
          <span className="dot" aria-hidden="true" />
          {word}
        </span>
        {left !== undefined && <p className="soft">{left}</p>}
        {isUp ? (
          <Reasons pod={pod} />
        ) : (
          <p className="soft">
            last beat <When atMs={lastHeartbeatMs} />
          </p>
        )}
      </td>
      <td className="pod-load">{isUp && <Load pod={pod} />}</td>
      <td className="number">{isUp && pulse ? durationText(pulse.lagMs) : "–"}</td>
      <td className="number">
        {isUp && pulse && pulse.memoryBytes !== null ? bytesText(pulse.memoryBytes) : "–"}
      </td>
      <td>{isUp && pulse && <InFlight throttles={pulse.throttles} />}</td>
      <td>
        <NamesOf handlers={pod.handlers} />
      </td>
      {onPlan && (
        <td className="pod-act">
          {isUp && (
            <button
              type="button"
              className="button small"
              aria-label={`${drain === null ? "Drain" : "Undrain"} pod ${shortId(podId)}`}
              onClick={() => onPlan(drain === null ? drainPlan(podId) : undrainPlan(podId))}
            >
              {drain === null ? "Drain" : "Undrain"}
            </button>
          )}
        </td>
      )}
    </tr>
  );
}

function drainPlan(podId: string): PlannedAct {
  return {
    title: `Drain pod ${shortId(podId)}?`,
    explanation: (
      <p>
        It takes no more work. What it has begun goes on, and its logs of sessions are handed on.
        Then it can be stopped, or undrained.
      </p>
    ),
    verb: "Drain",
    async perform(act) {
      await fleetAsks.drain(podId, act);
      return `Pod ${shortId(podId)} takes no more work.`;
    },
  };
}

function undrainPlan(podId: string): PlannedAct {
  return {
    title: `Undrain pod ${shortId(podId)}?`,
    explanation: <p>It takes work again.</p>,
    verb: "Undrain",
    async perform(act) {
      await fleetAsks.undrain(podId, act);
      return `Pod ${shortId(podId)} takes work again.`;
    },
  };
}

/** Why it takes no more, or not every task. */
function Reasons({ pod: { state, drain } }: { pod: ShownPod }) {
  // That it drains is said already.
  const reasons = state?.reasons.filter(({ code }) => code !== "drained") ?? [];
  if (reasons.length === 0)
    return drain === null ? <p className="soft">it takes every task</p> : null;
  return reasons.map(({ code, text }) => (
    <p key={code}>
      <Badge tone={code === "full" ? "plain" : "warn"}>
        <ShownText text={visibleLine(text, 120)} />
      </Badge>
    </p>
  ));
}

/** How many tasks it holds of those that it may, and which of them runs for longest. */
function Load({ pod }: { pod: ShownPod }) {
  const { pulse } = pod;
  const holds = holdsOf(pod);
  if (!pulse) return <>{holds === undefined ? "–" : `up to ${exactCount(holds)}`}</>;
  const [longest] = pulse.running;
  const part = holds ? Math.min(1, pulse.held / holds) : 0;
  return (
    <>
      {exactCount(pulse.held)}
      {holds !== undefined && (
        <>
          <span className="soft"> of {exactCount(holds)}</span>
          <span className="load" aria-hidden="true">
            <span style={{ width: `${part * 100}%` }} />
          </span>
        </>
      )}
      {longest && (
        <p className="soft">
          <Link to="/tasks/$taskId" params={{ taskId: longest.taskId }}>
            {shortId(longest.taskId)}
          </Link>{" "}
          began <When atMs={longest.startedAtMs} />
        </p>
      )}
    </>
  );
}

type Pulse = NonNullable<ShownPod["pulse"]>;

/** Its calls under way, of the throttles that have the most. */
function InFlight({ throttles }: { throttles: Pulse["throttles"] }) {
  if (throttles.length === 0) return <span className="soft">none</span>;
  return (
    <ul className="names">
      {throttles.map(({ name, key, inFlight }) => (
        <li key={JSON.stringify([name, key])}>
          <ThrottleLink throttle={{ name, key }}>
            <ShownText text={visibleLine(key === "" ? name : `${name} (${key})`, 60)} />
          </ThrottleLink>{" "}
          {exactCount(inFlight)}
        </li>
      ))}
    </ul>
  );
}

/** Its tasks and flows, with the versions that they have. */
function NamesOf({ handlers }: { handlers: ShownPod["handlers"] }) {
  const { names, more } = handlers ?? { names: [], more: 0 };
  const [isOpen, setOpen] = useState(false);
  const isFew = names.length <= maxNames;
  const list = (
    <ul className="names">
      {names.map(({ name, version }) => (
        <li key={name}>
          <ShownText text={visibleLine(name, 60)} />
          {version !== null && <span className="soft"> {visibleLine(`v${version}`, 20)}</span>}
        </li>
      ))}
      {more > 0 && <li className="soft">{exactCount(more)} more</li>}
    </ul>
  );
  if (isFew) return list;
  return (
    <details className="pod-names" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{counted(names.length + more, "name")}</summary>
      {isOpen && list}
    </details>
  );
}

/** Which pod owns which of the logs that sessions are spread over, and how far the database is behind them. */
function SessionLogs({ pods }: { pods: readonly ShownPod[] }) {
  const owners = pods.filter(({ logs }) => logs.length > 0);
  if (owners.length === 0) return null;
  const behind = logsBehind(owners);
  return (
    <section className="block">
      <h2>Session logs</h2>
      <ul className="lines">
        {owners.slice(0, podsAtOnce).map(({ podId, status, logs }) => (
          <li key={podId}>
            <code title={podId}>{shortId(podId)}</code>
            <span className="soft">
              {counted(logs.length, "log")}
              {status === "down" && ", until another pod takes them over"}
            </span>
            <span className="log-grid" aria-hidden="true">
              {logs.map((logId) => (
                <LogCell key={logId} logId={logId} behind={behind.get(logId)} />
              ))}
            </span>
          </li>
        ))}
      </ul>
      {behind.size > 0 && <LogsBehind logs={[...behind.values()]} />}
    </section>
  );
}

type LogCellProps = { logId: number; behind: LogBehind | undefined };

function LogCell({ logId, behind }: LogCellProps) {
  const title = behind ? `log ${logId}: ${backlogText(behind)}` : `log ${logId}`;
  return (
    <span title={title} className={behind?.isLate ? "is-late" : ""}>
      {logId}
    </span>
  );
}

/** The logs that the database hasn't followed to their ends, as their pods said with their last heartbeats. */
function LogsBehind({ logs }: { logs: readonly LogBehind[] }) {
  return (
    <Wide label="Logs that the database is behind">
      <table>
        <thead>
          <tr>
            <th scope="col">Log</th>
            <th scope="col">Owner</th>
            <th scope="col" className="number">
              Not in the database
            </th>
            <th scope="col" className="number">
              For
            </th>
          </tr>
        </thead>
        <tbody>
          {logs.map(({ logId, podId, bytes, lagMs, isLate }) => (
            <tr key={logId}>
              <th scope="row">{logId}</th>
              <td>
                <code title={podId}>{shortId(podId)}</code>
              </td>
              <td className="number">{bytesText(bytes)}</td>
              <td className="number">
                {isLate ? <Badge tone="warn">{durationText(lagMs)}</Badge> : durationText(lagMs)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function whereOf({ host, pid }: ShownPod): string {
  return `${host === null ? "?" : visibleLine(host, 60)}, process ${pid ?? "?"}`;
}
