import "../../styles/flows.css";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import {
  type FlowFacts,
  flowsApi,
  type FlowWhole,
  type MachineFacts,
  type RunQuery,
} from "../../asks/flows.ts";
import { possibleRunBulks, runBulkFilter } from "../../facts/bulk.ts";
import { flowVersions, openCounts } from "../../facts/flows/flow-versions.ts";
import { drawnMachine } from "../../facts/flows/machine-rows.ts";
import { countText, counted, durationText, exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useMay, useSeesAll } from "../../live.ts";
import { BulkDialog, BulkLines } from "../../parts/bulk-dialog.tsx";
import { FilterText } from "../../parts/filter-text.tsx";
import { PageTitle, Ready } from "../../parts/states.tsx";
import { Plot } from "../../parts/plot.tsx";
import { ShownText } from "../../parts/text.tsx";
import { placeName } from "./flow-marks.tsx";
import { MachineChart } from "./machine-chart.tsx";
import { RunList } from "./run-list.tsx";

/** Where do the runs of one flow stand? Its machine with the runs on it, and the runs that match. */
export function OneFlowPage() {
  const { flow } = useParams({ from: "/flows/$flow" });
  const filter = useSearch({ from: "/flows/$flow" });
  const seesAll = useSeesAll();
  const found = useLive(["flow states", flow], (signal) => flowsApi.flow(flow, signal), {
    isOff: !seesAll,
  });
  const drawn = useLive(
    ["drawn runs", flow, filter.version],
    (signal) => flowsApi.openRuns(flow, filter.version, signal),
    { isOff: !seesAll || found.data === undefined },
  );
  const machine = useMachine(found.data?.flow, filter.version);
  return (
    <>
      <PageTitle name={flow} aside={found.data && <span className="live soft">live</span>}>
        <ShownText text={visibleLine(flow, 200)} />
      </PageTitle>
      {seesAll ? (
        <Ready of={found} what="the flow">
          {(whole) => (
            <>
              <Versions flow={whole.flow} filter={filter} />
              <Tiles flow={whole.flow} filter={filter} />
              <MachineChart
                whole={{ ...whole, flow: { ...whole.flow, machine } }}
                search={filter}
                runs={drawn.data ?? []}
              />
              {filter.at !== undefined && <StateTrend flow={flow} at={filter.at} />}
              <Runs flow={flow} filter={filter} whole={whole} />
            </>
          )}
        </Ready>
      ) : (
        <Runs flow={flow} filter={filter} />
      )}
    </>
  );
}

/** The machine to draw: the server's own, or of another version that a pod has. */
function useMachine(flow: FlowFacts | undefined, chosen: string | undefined): MachineFacts | null {
  const own = flow?.machine ?? null;
  const version = chosen === undefined || chosen === "0" ? undefined : Number(chosen);
  const isOwn = own !== null && (version === undefined || version === own.version);
  const isServed = flow?.workers.some((each) => version === undefined || each.version === version);
  const asked = useLive(
    ["machine", flow?.flow, version],
    (signal) => flowsApi.machine(flow?.flow ?? "", version, signal),
    { isOff: isOwn || !isServed, isSettled: (told) => told !== null },
  );
  return isOwn ? own : (asked.data ?? own);
}

/** The versions that pods have or runs are at. What is chosen is in the address. */
function Versions({ flow, filter }: { flow: FlowFacts; filter: RunQuery }) {
  const versions = flowVersions(flow);
  if (versions.length === 0)
    return <p className="wrong">No live pod has this flow, so that its runs wait.</p>;
  const toVersion = (version: string | undefined) => ({
    to: "/flows/$flow" as const,
    params: { flow: flow.flow },
    search: { ...filter, version, cursor: undefined },
    resetScroll: false,
    className: filter.version === version ? "version is-here" : "version",
    "aria-current": filter.version === version ? ("true" as const) : undefined,
  });
  return (
    <nav className="versions" aria-label="Versions">
      <Link {...toVersion(undefined)}>All versions</Link>
      {versions.map(({ version, pods, open, isUnserved }) => (
        <Link key={version} {...toVersion(String(version))}>
          {version === 0 ? "Not begun" : `Version ${version}`}{" "}
          <span className={isUnserved ? "wrong" : "soft"}>
            {version === 0 ? "" : pods === 0 ? "no pod" : counted(pods, "pod")}
            {open > 0 && `${version === 0 ? "" : ", "}${counted(open, "open run")}`}
          </span>
        </Link>
      ))}
    </nav>
  );
}

/** How many runs do what. Each leads to them. */
function Tiles({ flow, filter }: { flow: FlowFacts; filter: RunQuery }) {
  const { version } = filter;
  const chosen = version === undefined ? undefined : Number(version);
  const { states, elsewhere } = drawnMachine(flow, [], chosen);
  const places = Object.fromEntries(
    [...states, ...elsewhere].map(({ at, counts }) => [at ?? "start", counts]),
  );
  const open = openCounts({ places });
  const more = flow.atLeast ? "+" : "";
  const tiles: readonly (readonly [string, string, RunQuery["status"], boolean])[] = [
    ["running", countText(open.running), "open", false],
    ["ready", countText(open.ready), "open", false],
    ["retrying", countText(open.retrying), "open", false],
    ["waiting", countText(open.waiting), "open", false],
    ["set aside", countText(open.setAside), "setAside", open.setAside > 0],
    ...(version === undefined
      ? ([
          ["completed", exactCount(flow.completed) + more, "completed", false],
          ["failed", exactCount(flow.failed) + more, "failed", flow.failed > 0],
          ["cancelled", exactCount(flow.cancelled) + more, "cancelled", false],
        ] as const)
      : []),
  ];
  return (
    <nav className="tiles" aria-label="Runs by what they do">
      {tiles.map(([name, count, status, isWrong]) => (
        <Link
          key={name}
          className="tile"
          to="/flows/$flow"
          params={{ flow: flow.flow }}
          search={{ ...(version !== undefined && { version }), status }}
          resetScroll={false}
        >
          <span className={`tile-count ${isWrong ? "of-wrong" : ""}`}>{count}</span>
          <span className="tile-name">{name}</span>
        </Link>
      ))}
    </nav>
  );
}

/** How long a state took, minute by minute. */
function StateTrend({ flow, at }: { flow: string; at: string }) {
  const series = useLive(
    ["state trend", flow, at],
    (signal) => flowsApi.stateSeries(flow, at, signal),
    { isSettled: () => true },
  );
  const points = series.data?.points ?? [];
  if (points.length === 0) return null;
  const ofRun = (name: "p50Ms" | "p95Ms") => points.map(({ run }) => run?.[name] ?? null);
  return (
    <Plot
      title={`Time at ${visibleLine(placeName(at), 60)} in the last hour`}
      timesMs={points.map(({ atMs }) => atMs)}
      lines={[
        { name: "p50", tone: "accent", values: ofRun("p50Ms") },
        { name: "p95", tone: "warn", values: ofRun("p95Ms") },
      ]}
      valueText={durationText}
    />
  );
}

type RunsProps = {
  flow: string;
  filter: RunQuery;
  whole?: FlowWhole | undefined;
};

/** The runs that match, and what may be done to all of them. */
function Runs({ flow, filter, whole }: RunsProps) {
  const mayAct = useMay("fleet:operate");
  const [isOnAll, setOnAll] = useState(false);
  const known = whole ? flowVersions(whole.flow).map(({ version }) => version) : [];
  const versions = known.filter((version) => version > 0);
  return (
    <section className="block" aria-labelledby="runs-title">
      <h2 id="runs-title">
        Runs{" "}
        {filter.at !== undefined && (
          <span className="soft">
            at <ShownText text={visibleLine(placeName(filter.at), 100)} />
          </span>
        )}
      </h2>
      <RunFilterBar flow={flow} filter={filter} whole={whole} />
      {mayAct && (
        <p>
          <button type="button" className="button small" onClick={() => setOnAll(true)}>
            All that match …
          </button>
        </p>
      )}
      <BulkLines noun="run" name={flow} />
      <RunList flow={flow} filter={filter} versions={versions} />
      {isOnAll && (
        <BulkDialog
          target={{
            noun: "run",
            filter: runBulkFilter(flow, filter),
            acts: possibleRunBulks(filter),
            versions,
          }}
          onClose={() => setOnAll(false)}
        />
      )}
    </section>
  );
}

const statuses = [
  ["", "any status"],
  ["open", "open"],
  ["setAside", "set aside"],
  ["completed", "completed"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
] as const;

function RunFilterBar({ flow, filter, whole }: Pick<RunsProps, "flow" | "filter" | "whole">) {
  const navigate = useNavigate();
  const seesAll = useSeesAll();
  const [tenant, setTenant] = useState(filter.tenant ?? "");
  useEffect(() => setTenant(filter.tenant ?? ""), [filter.tenant]);
  const apply = (change: RunQuery) => {
    const search = { ...filter, tenant: tenant.trim() || undefined, ...change, cursor: undefined };
    const isSame = (["at", "status", "version", "tenant"] as const).every(
      (name) => search[name] === filter[name],
    );
    if (!isSame)
      void navigate({ to: "/flows/$flow", params: { flow }, search, resetScroll: false });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply({});
  };
  const states = statesToChoose(whole, filter.at);
  const isFiltered = Object.values(filter).some((each) => each !== undefined);
  return (
    <form className="filter" role="search" aria-label="Filter of runs" onSubmit={submit}>
      <select
        aria-label="Status"
        data-filter=""
        value={filter.status ?? ""}
        onChange={(event) =>
          apply({ status: (event.target.value || undefined) as RunQuery["status"] })
        }
      >
        {statuses.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      {states.length > 0 && (
        <select
          aria-label="State"
          className="state-select"
          value={filter.at ?? ""}
          onChange={(event) => apply({ at: event.target.value || undefined })}
        >
          <option value="">any state</option>
          {states.map((at) => (
            <option key={at} value={at}>
              {visibleLine(placeName(at), 80)}
            </option>
          ))}
        </select>
      )}
      {seesAll && (
        <FilterText label="Tenant" value={tenant} onChange={setTenant} onApply={() => apply({})} />
      )}
      <button type="submit" className="hidden" tabIndex={-1}>
        Filter
      </button>
      {isFiltered && (
        <button
          type="button"
          className="inline"
          onClick={() =>
            void navigate({ to: "/flows/$flow", params: { flow }, search: {}, resetScroll: false })
          }
        >
          Clear
        </button>
      )}
    </form>
  );
}

/** The states to choose from, and the chosen one in any case. */
function statesToChoose(whole: FlowWhole | undefined, chosen: string | undefined): string[] {
  const names = new Set([
    ...(whole?.flow.machine?.parts ?? []).map(({ name }) => name),
    ...Object.keys(whole?.flow.places ?? {}).filter((name) => name !== "start"),
    ...(chosen === undefined ? [] : [chosen]),
  ]);
  return [...names];
}
