import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, type DepthFacts } from "../api.ts";
import { type FleetCounts, fleetAsks, type SeenApproval } from "../asks/fleet.ts";
import { countText, durationText, exactCount } from "../facts/spans.ts";
import { type FleetVerdict, verdictOf } from "../facts/verdict.ts";
import { useHome, useLive, useNow, useSeesAll } from "../live.ts";
import { Advice, Badge, When, Wide } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import { OverviewPlots } from "./plots.tsx";

/** Is all well? One sentence, then what needs a look, then the counts. */
export function OverviewPage() {
  const home = useHome();
  const seesAll = useSeesAll();
  const nowMs = useNow();
  const ofAll = { isOff: !seesAll };
  const depth = useLive(["depth"], api.depth, ofAll);
  const pods = useLive(["pods"], api.pods, ofAll);
  const counts = useLive(["overview", "counts"], fleetAsks.counts, ofAll);
  const throttles = useLive(["overview", "throttles"], fleetAsks.throttles, ofAll);
  const schedules = useLive(["overview", "schedules"], fleetAsks.schedules, ofAll);
  const groups = useLive(["groups", {}], (signal) => api.errorGroups({}, signal));
  const acts = useLive(["overview", "acts"], fleetAsks.acts);
  const approvals = useLive(["overview", "approvals"], fleetAsks.approvals);
  const needed = seesAll ? [groups, depth, pods, counts] : [groups];
  const missing = needed.find(({ data }) => data === undefined);
  const facts = {
    home,
    counts: counts.data,
    depth: depth.data,
    pods: pods.data,
    groups: groups.data,
    acts: acts.data,
    throttles: throttles.data,
    schedules: schedules.data,
    approvals: approvals.data,
  };
  return (
    <>
      <PageTitle name="Overview">Overview</PageTitle>
      {missing === undefined ? (
        <VerdictCard verdict={verdictOf(facts, nowMs)} />
      ) : (
        <Ready<unknown> of={missing} what="the fleet">
          {() => null}
        </Ready>
      )}
      {counts.data && <Counts counts={counts.data} approvals={approvals.data?.length ?? 0} />}
      {seesAll && <OverviewPlots />}
      {approvals.data && <Waiting approvals={approvals.data} />}
      {seesAll && (
        <Ready of={depth} what="counts">
          {(names) => <ByName names={names} />}
        </Ready>
      )}
    </>
  );
}

function VerdictCard({ verdict: { tone, sentence, needs } }: { verdict: FleetVerdict }) {
  return (
    <section className={`verdict of-${tone}`} aria-label="Verdict">
      <p className="verdict-line" role="status">
        <span className="dot" aria-hidden="true" />
        {sentence}
      </p>
      {needs.length > 0 && (
        <ul className="needs">
          {needs.map(({ key, tone: each, text, advice, to, params = {}, search = {} }) => (
            <li key={key} className={`need of-${each}`}>
              <Link to={to} params={params as never} search={search}>
                <ShownText text={text} />
              </Link>
              <span className="soft">
                <Advice text={advice} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

type CountsProps = { counts: FleetCounts; approvals: number };

/** Each leads to the list behind it. */
function Counts({ counts: { tasks, runs, sessions, pods }, approvals }: CountsProps) {
  const openRuns = Object.values(runs).reduce((sum, count) => sum + count, 0);
  return (
    <section aria-label="Counts" className="tiles">
      <Tile name="Running" count={tasks.running} status="claimed" />
      <Tile name="Ready" count={tasks.ready} status="pending" />
      <Tile name="Delayed" count={tasks.delayed} status="pending" />
      <Tile name="After others" count={tasks.waiting} status="pending" />
      <Tile name="At a limit" count={tasks.blocked} to="/queues" />
      <Tile name="Failed" count={tasks.failed} to="/failures" tone="wrong" />
      <Tile name="Runs open" count={openRuns} to="/flows" />
      <Tile name="Sessions" count={sessions.busy} of={sessions.all} to="/sessions" />
      <Tile name="Approvals" count={approvals} to="/approvals" />
      <Tile name="Pods up" count={pods.up} to="/pods" />
    </section>
  );
}

type TileProps = {
  name: string;
  count: number;
  of?: number;
  to?: "/failures" | "/pods" | "/queues" | "/flows" | "/sessions" | "/approvals";
  status?: "claimed" | "pending";
  tone?: string;
};

function Tile({ name, count, of, to, status, tone = "plain" }: TileProps) {
  const content: ReactNode = (
    <>
      <span className={`tile-count ${count === 0 ? "is-none" : `of-${tone}`}`}>
        {countText(count)}
        {of !== undefined && <span className="soft"> / {countText(of)}</span>}
      </span>
      <span className="tile-name">{name}</span>
    </>
  );
  return to === undefined ? (
    <Link className="tile" to="/tasks" search={status ? { status } : {}}>
      {content}
    </Link>
  ) : (
    <Link className="tile" to={to} search={{}}>
      {content}
    </Link>
  );
}

// The page of approvals has them all.
const maxWaiting = 5;

function Waiting({ approvals }: { approvals: readonly SeenApproval[] }) {
  if (approvals.length === 0) return null;
  return (
    <section className="block">
      <h2>Waits for a person</h2>
      <ul className="lines">
        {approvals.slice(0, maxWaiting).map((each) => (
          <li key={`${each.what} ${each.tenant} ${each.id}`}>
            <SubjectLink approval={each} /> waits for{" "}
            <strong>
              <ShownText text={each.signal ?? each.calls.map(({ tool }) => tool).join(", ")} />
            </strong>
            {each.untilMs !== null && (
              <span className="soft">
                {" "}
                gives up <When atMs={each.untilMs} />
              </span>
            )}
            <code className="end" title={each.id}>
              {shortId(each.id)}
            </code>
          </li>
        ))}
      </ul>
      <p>
        <Link to="/approvals" search={{}}>
          {approvals.length > maxWaiting
            ? `All that wait, ${exactCount(approvals.length - maxWaiting)} more`
            : "Approve or deny"}
        </Link>
      </p>
    </section>
  );
}

function SubjectLink({ approval: { what, id, name } }: { approval: SeenApproval }) {
  const text = <ShownText text={name ?? what} />;
  switch (what) {
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
      return (
        <Link to="/sessions/$sessionId" params={{ sessionId: id }}>
          {text}
        </Link>
      );
  }
}

const columns = [
  ["running", "Running"],
  ["ready", "Ready"],
  ["delayed", "Delayed"],
  ["waiting", "After others"],
  ["blocked", "At a limit"],
  ["alone", "Alone"],
  ["failed", "Failed"],
] as const;
// More names than a person reads. The palette finds each of them.
const maxNames = 200;

function ByName({ names }: { names: DepthFacts }) {
  const rows = Object.entries(names).toSorted(
    ([a, one], [b, other]) =>
      other.running + other.ready - (one.running + one.ready) || (a < b ? -1 : 1),
  );
  if (rows.length === 0)
    return (
      <Empty
        title="Nothing is waiting, running or failed."
        command={`flotilla enqueue mail '{"to":"ada"}'`}
      >
        Completed tasks are in the list of tasks. This stores a new one:
      </Empty>
    );
  return (
    <section className="block">
      <h2>By name</h2>
      <Wide label="Counts by name">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              {columns.map(([key, title]) => (
                <th scope="col" key={key} className="number">
                  {title}
                </th>
              ))}
              <th scope="col" className="number">
                Oldest wait
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, maxNames).map(([name, counts]) => (
              <tr key={name}>
                <th scope="row">
                  <Link to="/tasks" search={{ name }}>
                    <ShownText text={name} />
                  </Link>{" "}
                  {counts.paused && <Badge tone="warn">paused</Badge>}
                </th>
                {columns.map(([key]) => (
                  <td key={key} className={`number ${counts[key] === 0 ? "is-none" : ""}`}>
                    {countText(counts[key])}
                  </td>
                ))}
                <td className={`number ${counts.ready === 0 ? "is-none" : ""}`}>
                  {counts.ready === 0 ? "–" : durationText(counts.oldestMs)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {rows.length > maxNames && (
        <p className="soft">
          {exactCount(rows.length - maxNames)} more names: the palette finds them.
        </p>
      )}
    </section>
  );
}
