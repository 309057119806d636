import "../../styles/flows.css";
import { Link, useSearch } from "@tanstack/react-router";
import { type FlowFacts, flowsApi } from "../../asks/flows.ts";
import { flowVersions, openCounts } from "../../facts/flows/flow-versions.ts";
import { countText, counted, exactCount } from "../../facts/spans.ts";
import { useLive, useSeesAll } from "../../live.ts";
import { Badge, Wide } from "../../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { ShownText } from "../../parts/text.tsx";
import { StuckLines } from "./flow-marks.tsx";
import { RunList } from "./run-list.tsx";

/** Where do runs stand? Every flow with its versions and how many of its runs do what. */
export function FlowsPage() {
  const seesAll = useSeesAll();
  const { cursor } = useSearch({ from: "/flows" });
  const flows = useLive(["flows"], flowsApi.flows, { isOff: !seesAll });
  return (
    <>
      <PageTitle name="Flows">Flows</PageTitle>
      {seesAll ? (
        <Ready of={flows} what="flows">
          {(all) => (all.length === 0 ? <NoFlows /> : <FlowTable flows={all} />)}
        </Ready>
      ) : (
        <>
          <p className="soft">These are the runs of your tenant. Counts are of all tenants.</p>
          <RunList flow={undefined} filter={{ cursor }} />
        </>
      )}
    </>
  );
}

function NoFlows() {
  return (
    <Empty title="There are no flows yet." command="flotilla runs start order '{}'">
      A flow is in the <code>use</code> of a pod&apos;s config. This starts a run of one:
    </Empty>
  );
}

// The server counts no more flows than this.
const maxFlows = 100;

function FlowTable({ flows }: { flows: readonly FlowFacts[] }) {
  return (
    <>
      <Wide label="Flows">
        <table className="flow-table">
          <thead>
            <tr>
              <th scope="col">Flow</th>
              <th scope="col">Versions</th>
              {["Running", "Ready", "Retrying", "Waiting", "Set aside", "Completed", "Failed"].map(
                (name) => (
                  <th key={name} scope="col" className="number">
                    {name}
                  </th>
                ),
              )}
              <th scope="col">Needs a look</th>
            </tr>
          </thead>
          <tbody>
            {flows.map((flow) => (
              <FlowRow key={flow.flow} flow={flow} />
            ))}
          </tbody>
        </table>
      </Wide>
      <p className="soft">
        Open runs are counted to 10,000, ended ones among the newest.
        {flows.length >= maxFlows && ` Of more than ${maxFlows} flows, the first are counted.`}
      </p>
    </>
  );
}

function FlowRow({ flow }: { flow: FlowFacts }) {
  const counts = openCounts(flow);
  const ofOpen = [
    ["running", counts.running],
    ["ready", counts.ready],
    ["retrying", counts.retrying],
    ["waiting", counts.waiting],
  ] as const;
  const more = flow.atLeast ? "+" : "";
  const to = { to: "/flows/$flow", params: { flow: flow.flow } } as const;
  return (
    <tr>
      <th scope="row">
        <Link {...to}>
          <ShownText text={flow.flow} />
        </Link>
      </th>
      <td>
        <VersionBadges flow={flow} />
      </td>
      {ofOpen.map(([what, count]) => (
        <td key={what} className={`number ${count === 0 ? "is-none" : ""}`}>
          {countText(count)}
        </td>
      ))}
      <td className={`number ${counts.setAside === 0 ? "is-none" : "wrong"}`}>
        {counts.setAside === 0 ? (
          "0"
        ) : (
          <Link {...to} search={{ status: "setAside" }}>
            {countText(counts.setAside)}
          </Link>
        )}
      </td>
      <td className={`number ${flow.completed === 0 ? "is-none" : ""}`}>
        {exactCount(flow.completed)}
        {flow.completed > 0 && more}
      </td>
      <td className={`number ${flow.failed === 0 ? "is-none" : ""}`}>
        {flow.failed === 0 ? (
          "0"
        ) : (
          <Link {...to} search={{ status: "failed" }}>
            {exactCount(flow.failed) + more}
          </Link>
        )}
      </td>
      <td>
        <StuckLines stuck={flow.stuck} />
      </td>
    </tr>
  );
}

function VersionBadges({ flow }: { flow: FlowFacts }) {
  const versions = flowVersions(flow);
  if (versions.length === 0) return <Badge tone="wrong">no pod</Badge>;
  return (
    <span className="names">
      {versions.map(({ version, pods, open, isUnserved }) => (
        <Link
          key={version}
          to="/flows/$flow"
          params={{ flow: flow.flow }}
          search={{ version: String(version) }}
        >
          <Badge tone={isUnserved ? "wrong" : "plain"}>
            {version === 0 ? "not begun" : `v${version}`}
            {pods > 0 && ` · ${counted(pods, "pod")}`}
            {pods === 0 && isUnserved && ` · no pod, ${counted(open, "run")}`}
          </Badge>
        </Link>
      ))}
    </span>
  );
}
