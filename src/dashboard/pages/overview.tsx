import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { hasCode } from "../../base/errors.ts";
import { api, type DepthFacts, type TaskQuery } from "../api.ts";
import { type FleetCounts, fleetAsks, type SeenApproval } from "../asks/fleet.ts";
import { countColumns } from "../facts/queues/rows.ts";
import { countText, durationText, exactCount } from "../facts/spans.ts";
import { type FleetVerdict, maxApprovalsSeen as maxSeen, verdictOf } from "../facts/verdict.ts";
import { useHome, useLive, useNow, useSeesAll } from "../live.ts";
import { CountLink, SessionLink } from "../parts/links.tsx";
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
  const pods = useLive(["pods"], api.fleet, ofAll);
  const counts = useLive(["overview", "counts"], fleetAsks.counts, ofAll);
  const throttles = useLive(["overview", "throttles"], fleetAsks.throttles, ofAll);
  const schedules = useLive(["overview", "schedules"], fleetAsks.schedules, ofAll);
  const open = { state: "open" } as const;
  const groups = useLive(["groups", open], (signal) => api.errorGroups(open, signal));
  const acts = useLive(["overview", "acts"], fleetAsks.acts);
  const approvals = useLive(["overview", "approvals"], fleetAsks.approvals);
  const ofTenant = [groups, acts, approvals];
  const needed = seesAll ? [...ofTenant, depth, pods, counts, throttles, schedules] : ofTenant;
  // What the caller may not see is no part of its verdict.
  const missing = needed.find(
    ({ data, error }) => data === undefined && !hasCode(error, "forbidden"),
  );
  const facts = {
    home,
    counts: counts.data,
    depth: depth.data,
    pods: pods.data?.pods,
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
    <section aria-label="Counts" className="tiles of-ten">
      <Tile name="Running" count={tasks.running} filter={{ status: "claimed" }} />
      <Tile name="Ready" count={tasks.ready} filter={{ state: "ready" }} />
      <Tile name="Delayed" count={tasks.delayed} filter={{ state: "delayed" }} />
      <Tile name="After others" count={tasks.waiting} filter={{ state: "waiting" }} />
      <Tile name="At a limit" count={tasks.blocked} filter={{ state: "blocked" }} />
      <Tile name="Failed" count={tasks.failed} to="/failures" tone="wrong" />
      <Tile name="Runs open" count={openRuns} to="/flows" />
      <Tile name="Sessions" count={sessions.busy} of={sessions.all} to="/sessions" />
      <Tile name="Approvals" count={approvals} isMore={approvals >= maxSeen} to="/approvals" />
      <Tile name="Pods up" count={pods.up} to="/pods" />
    </section>
  );
}

type TileProps = {
  name: string;
  count: number;
  of?: number;
  /** There may be more than were counted. */
  isMore?: boolean;
  to?: "/failures" | "/pods" | "/flows" | "/sessions" | "/approvals";
  /** Of tasks. */
  filter?: TaskQuery;
  tone?: string;
};

function Tile({ name, count, of, isMore = false, to, filter = {}, tone = "plain" }: TileProps) {
  const content: ReactNode = (
    <>
      <span className={`tile-count ${count === 0 ? "is-none" : `of-${tone}`}`}>
        {countText(count)}
        {isMore && "+"}
        {of !== undefined && <span className="soft"> / {countText(of)}</span>}
      </span>
      <span className="tile-name">{name}</span>
    </>
  );
  return to === undefined ? (
    <Link className="tile" to="/tasks" search={filter}>
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
        {nearestFirst(approvals)
          .slice(0, maxWaiting)
          .map((each) => (
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
            ? `All that wait, ${exactCount(approvals.length - maxWaiting)}${approvals.length < maxSeen ? "" : "+"} more`
            : "Approve or deny"}
        </Link>
      </p>
    </section>
  );
}

/** The rows of a topic have no order. */
function nearestFirst(approvals: readonly SeenApproval[]): readonly SeenApproval[] {
  const untilOf = ({ untilMs }: SeenApproval) => untilMs ?? Infinity;
  return approvals.toSorted((a, b) => {
    const [one, other] = [untilOf(a), untilOf(b)];
    return one === other ? a.sinceMs - b.sinceMs : one - other;
  });
}

function SubjectLink({ approval: { what, id, name, tenant } }: { approval: SeenApproval }) {
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
      return <SessionLink session={{ sessionId: id, tenant }}>{text}</SessionLink>;
  }
}

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
              {countColumns.map(([key, title]) => (
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
                {countColumns.map(([key, title]) => (
                  <td key={key} className={`number ${counts[key] === 0 ? "is-none" : ""}`}>
                    {counts[key] === 0 ? (
                      countText(0)
                    ) : (
                      <CountLink name={name} of={key} title={title} count={counts[key]} />
                    )}
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
