import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, type DepthFacts, type HomeFacts } from "../api.ts";
import { countText, durationText, exactCount } from "../facts/spans.ts";
import { type FleetVerdict, verdictOf } from "../facts/verdict.ts";
import { useHome, useLive, useNow, useSeesAll } from "../live.ts";
import { Advice, Badge, Wide } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";
import { OverviewPlots } from "./plots.tsx";

/** Is all well? One sentence, then what needs a look, then the counts. */
export function OverviewPage() {
  const home = useHome();
  const seesAll = useSeesAll();
  const nowMs = useNow();
  const depth = useLive(["depth"], api.depth, { isOff: !seesAll });
  const pods = useLive(["pods"], api.pods, { isOff: !seesAll });
  const groups = useLive(["groups", {}], (signal) => api.errorGroups({}, signal));
  const redrives = useLive(["redrives"], api.redrives);
  const needed = seesAll ? [groups, depth, pods] : [groups];
  const missing = needed.find(({ data }) => data === undefined);
  const facts = {
    home,
    depth: depth.data,
    pods: pods.data,
    groups: groups.data,
    redrives: redrives.data,
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
      {home.overview && <Counts overview={home.overview} />}
      {seesAll && <OverviewPlots />}
      {home.overview && <Signals waiting={home.overview.waiting} />}
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
          {needs.map(({ key, tone: each, text, advice, to, search }) => (
            <li key={key} className={`need of-${each}`}>
              <Link to={to} search={search ?? {}}>
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

type OverviewFacts = NonNullable<HomeFacts["overview"]>;

function Counts({ overview: { tasks, runs, sessions, pods } }: { overview: OverviewFacts }) {
  const openRuns = Object.values(runs).reduce((sum, count) => sum + count, 0);
  return (
    <section aria-label="Counts" className="tiles">
      <Tile name="Running" count={tasks.running} status="claimed" />
      <Tile name="Ready" count={tasks.ready} status="pending" />
      <Tile name="Delayed" count={tasks.delayed} status="pending" />
      <Tile name="After others" count={tasks.waiting} status="pending" />
      <Tile name="At a limit" count={tasks.blocked} status="pending" />
      <Tile name="Failed" count={tasks.failed} to="/failures" tone="wrong" />
      <Tile name="Runs open" count={openRuns} />
      <Tile name="Sessions" count={sessions.busy} of={sessions.all} />
      <Tile name="Pods up" count={pods.up} to="/pods" />
    </section>
  );
}

type TileProps = {
  name: string;
  count: number;
  of?: number;
  to?: "/failures" | "/pods";
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
  if (to !== undefined)
    return (
      <Link className="tile" to={to} search={{}}>
        {content}
      </Link>
    );
  if (status !== undefined)
    return (
      <Link className="tile" to="/tasks" search={{ status }}>
        {content}
      </Link>
    );
  return <div className="tile">{content}</div>;
}

function Signals({ waiting }: { waiting: OverviewFacts["waiting"] }) {
  if (waiting.length === 0) return null;
  return (
    <section className="block">
      <h2>Waits for a signal</h2>
      <ul className="lines">
        {waiting.map(({ runId, flow, signal }) => (
          <li key={runId}>
            <Link to="/tasks/$taskId" params={{ taskId: runId }}>
              <ShownText text={flow} />
            </Link>{" "}
            waits for{" "}
            <strong>
              <ShownText text={signal} />
            </strong>
            <code className="end" title={runId}>
              {shortId(runId)}
            </code>
          </li>
        ))}
      </ul>
      <p className="soft">
        <Advice text="`flotilla runs signal <id> <name>` sends it." />
      </p>
    </section>
  );
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
