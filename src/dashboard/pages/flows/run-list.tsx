import { Link } from "@tanstack/react-router";
import { flowsApi, type RunFacts, type RunListPage, type RunQuery } from "../../asks/flows.ts";
import { runRemark } from "../../facts/flows/run-remark.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useNow, useSeesAll } from "../../live.ts";
import { StatusMark, When, Wide } from "../../parts/marks.tsx";
import { Empty, Failed, Loading } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";
import { placeName, RunVersionBadge, runStatus } from "./flow-marks.tsx";

/** A page of the runs that match, newest first. Without a flow: of all flows, its first page alone. */
export function RunList({ flow, filter }: { flow: string | undefined; filter: RunQuery }) {
  const list = useLive(["runs", flow, filter], (signal) => flowsApi.runs(flow, filter, signal));
  const { data } = list;
  if (data === undefined) {
    if (!list.error) return <Loading what="runs" />;
    return (
      <>
        <Failed error={list.error} onRetry={() => void list.refetch()} />
        {flow !== undefined && (
          <p>
            <Link to="/flows/$flow" params={{ flow }} search={{}}>
              Show all runs
            </Link>
          </p>
        )}
      </>
    );
  }
  return (
    <>
      {data.runs.length === 0 ? (
        <NoRuns page={data} flow={flow} filter={filter} />
      ) : (
        <RunTable runs={data.runs} isOfOneFlow={flow !== undefined} />
      )}
      {flow !== undefined && <Pages page={data} flow={flow} filter={filter} />}
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
  if (isFiltered && flow !== undefined)
    return (
      <Empty title="No run matches the filter.">
        <Link to="/flows/$flow" params={{ flow }} search={{}} resetScroll={false}>
          Show all runs
        </Link>
      </Empty>
    );
  const name = flow !== undefined && /^[\w.:/-]+$/.test(flow) ? flow : "order";
  return (
    <Empty title="There are no runs yet." command={`flotilla runs start ${name} '{}'`}>
      This starts one:
    </Empty>
  );
}

function RunTable({ runs, isOfOneFlow }: { runs: readonly RunFacts[]; isOfOneFlow: boolean }) {
  const seesAll = useSeesAll();
  return (
    <Wide label="Runs, newest first">
      <table className="run-table">
        <thead>
          <tr>
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
            <RunRow key={run.runId} run={run} isOfOneFlow={isOfOneFlow} seesAll={seesAll} />
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
}: {
  run: RunFacts;
  isOfOneFlow: boolean;
  seesAll: boolean;
}) {
  const { runId, at, version, tenant, updatedAtMs } = run;
  const remark = runRemark(run, useNow());
  return (
    <tr>
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
function Pages({ page, flow, filter }: { page: RunListPage; flow: string; filter: RunQuery }) {
  const { next } = page;
  if (next === null && filter.cursor === undefined) return null;
  return (
    <nav className="pages" aria-label="Pages of runs">
      {filter.cursor !== undefined && (
        <Link
          to="/flows/$flow"
          params={{ flow }}
          search={{ ...filter, cursor: undefined }}
          resetScroll={false}
        >
          Newest runs
        </Link>
      )}
      {next !== null && (
        <Link
          to="/flows/$flow"
          params={{ flow }}
          search={{ ...filter, cursor: next }}
          resetScroll={false}
        >
          {page.runs.length === 0 ? "Look further back" : "Older runs"}
        </Link>
      )}
    </nav>
  );
}
