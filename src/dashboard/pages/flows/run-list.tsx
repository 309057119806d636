import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { flowsApi, type RunFacts, type RunListPage, type RunQuery } from "../../asks/flows.ts";
import type { TickedRow } from "../../facts/bulk.ts";
import { runRemark } from "../../facts/flows/run-remark.ts";
import { counted } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useMay, useNow, useSeesAll } from "../../live.ts";
import { StatusMark, When, Wide } from "../../parts/marks.tsx";
import { Empty, Failed, Loading } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";
import { TickedBar, type Ticks, useTicks } from "../../parts/ticked-bar.tsx";
import { placeName, RunVersionBadge, runStatus } from "./flow-marks.tsx";

/** A page of the runs that match, newest first. Without a flow: of all flows. */
export function RunList({
  flow,
  filter,
  versions,
}: {
  flow: string | undefined;
  filter: RunQuery;
  /** The versions of the flow, which ticked runs may be handed to. */
  versions?: readonly number[];
}) {
  const list = useLive(["runs", flow, filter], (signal) => flowsApi.runs(flow, filter, signal));
  const { data } = list;
  const ticks = useTicks(JSON.stringify([flow, filter]));
  if (data === undefined) {
    if (!list.error) return <Loading what="runs" />;
    return (
      <>
        <Failed error={list.error} onRetry={() => void list.refetch()} />
        <p>
          <ToRuns flow={flow} search={{}}>
            Show all runs
          </ToRuns>
        </p>
      </>
    );
  }
  return (
    <>
      {data.runs.length === 0 ? (
        <NoRuns page={data} flow={flow} filter={filter} />
      ) : (
        <RunTable runs={data.runs} isOfOneFlow={flow !== undefined} ticks={ticks} />
      )}
      {flow !== undefined && (
        <TickedBar
          noun="run"
          rows={data.runs.map(tickedRow)}
          ticks={ticks}
          flow={flow}
          {...(versions && { versions })}
        />
      )}
      <Pages page={data} flow={flow} filter={filter} />
    </>
  );
}

function NoRuns({
  page,
  flow,
  filter,
}: {
  page: RunListPage;
  flow: string | undefined;
  filter: RunQuery;
}) {
  const isFiltered = Object.values(filter).some((each) => each !== undefined);
  if (page.next !== null)
    return (
      <Empty title="No run matches so far.">
        {page.lookedBackTo !== null && (
          <>
            Searched back to <When atMs={page.lookedBackTo} />.
          </>
        )}
      </Empty>
    );
  if (isFiltered)
    return (
      <Empty title="No run matches the filter.">
        <ToRuns flow={flow} search={{}}>
          Show all runs
        </ToRuns>
      </Empty>
    );
  const name = flow !== undefined && /^[\w.:/-]+$/.test(flow) ? flow : "order";
  return (
    <Empty title="There are no runs yet." command={`flotilla runs start ${name} '{}'`}>
      This starts one:
    </Empty>
  );
}

function tickedRow({ runId, status, doing }: RunFacts): TickedRow {
  const isSetAside = doing?.type === "set_aside";
  return { id: runId, status: status === "open" ? "pending" : status, isSetAside };
}

type RunTableProps = { runs: readonly RunFacts[]; isOfOneFlow: boolean; ticks: Ticks };

function RunTable({ runs, isOfOneFlow, ticks }: RunTableProps) {
  const seesAll = useSeesAll();
  const mayTick = useMay("fleet:operate") && isOfOneFlow;
  const isAllTicked = runs.every(({ runId }) => ticks.has(runId));
  return (
    <Wide label="Runs, newest first">
      <table className="run-table">
        <thead>
          <tr>
            {mayTick && (
              <th scope="col">
                <input
                  type="checkbox"
                  aria-label={`Tick all ${counted(runs.length, "run")} of this page`}
                  checked={isAllTicked}
                  onChange={() => ticks.set(isAllTicked ? [] : runs.map(({ runId }) => runId))}
                />
              </th>
            )}
            <th scope="col">Run</th>
            {!isOfOneFlow && <th scope="col">Flow</th>}
            <th scope="col">Status</th>
            <th scope="col">At</th>
            <th scope="col">Remark</th>
            <th scope="col">Version</th>
            {seesAll && <th scope="col">Tenant</th>}
            <th scope="col" className="number">
              Changed
            </th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <RunRow
              key={run.runId}
              run={run}
              isOfOneFlow={isOfOneFlow}
              seesAll={seesAll}
              ticks={mayTick ? ticks : undefined}
            />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function RunRow({
  run,
  isOfOneFlow,
  seesAll,
  ticks,
}: {
  run: RunFacts;
  isOfOneFlow: boolean;
  seesAll: boolean;
  ticks: Ticks | undefined;
}) {
  const { runId, at, version, tenant, updatedAtMs } = run;
  const remark = runRemark(run, useNow());
  return (
    <tr>
      {ticks && (
        <td>
          <input
            type="checkbox"
            aria-label={`Tick run ${shortId(visibleLine(runId))}`}
            checked={ticks.has(runId)}
            onChange={() => ticks.toggle(runId)}
          />
        </td>
      )}
      <th scope="row" className="run-id">
        <Link to="/runs/$runId" params={{ runId }} title={runId}>
          <code>{shortId(visibleLine(runId))}</code>
        </Link>
      </th>
      {!isOfOneFlow && (
        <td>
          <ShownText text={run.flow} />
        </td>
      )}
      <td>
        <StatusMark status={runStatus(run)} />
      </td>
      <td className="cut-cell">{at !== null && <ShownText text={placeName(at)} />}</td>
      <td className={`cut-cell ${remark?.isWrong ? "wrong" : "soft"}`}>
        {remark && <ShownText text={visibleLine(remark.text, 200)} />}
      </td>
      <td>
        <RunVersionBadge version={version} />
      </td>
      {seesAll && (
        <td className="soft cut-cell">
          <ShownText text={visibleLine(tenant, 100)} />
        </td>
      )}
      <td className="number soft">
        <When atMs={updatedAtMs} />
      </td>
    </tr>
  );
}

/** Where the list goes on. Its place is in the address, so that back leads to the page before. */
function Pages({
  page,
  flow,
  filter,
}: {
  page: RunListPage;
  flow: string | undefined;
  filter: RunQuery;
}) {
  const { next } = page;
  if (next === null && filter.cursor === undefined) return null;
  return (
    <nav className="pages" aria-label="Pages of runs">
      {filter.cursor !== undefined && (
        <ToRuns flow={flow} search={{ ...filter, cursor: undefined }}>
          Newest runs
        </ToRuns>
      )}
      {next !== null && (
        <ToRuns flow={flow} search={{ ...filter, cursor: next }}>
          {page.runs.length === 0 ? "Look further back" : "Older runs"}
        </ToRuns>
      )}
    </nav>
  );
}

/** Leads to a list of runs: of a flow, or of all. */
function ToRuns({
  flow,
  search,
  children,
}: {
  flow: string | undefined;
  search: RunQuery;
  children: ReactNode;
}) {
  const { cursor } = search;
  if (flow === undefined)
    return (
      <Link to="/flows" search={cursor === undefined ? {} : { cursor }} resetScroll={false}>
        {children}
      </Link>
    );
  return (
    <Link to="/flows/$flow" params={{ flow }} search={search} resetScroll={false}>
      {children}
    </Link>
  );
}
