import { api, type ShownPod } from "../api.ts";
import { counted } from "../facts/spans.ts";
import { leaderAmong, namesIn } from "../facts/verdict.ts";
import { visibleLine } from "../facts/visible.ts";
import { useLive, useNow } from "../live.ts";
import { Badge, When, Wide } from "../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../parts/states.tsx";
import { shortId, ShownText } from "../parts/text.tsx";

// Pods that stopped longer ago are of no use to a person that looks after those of now.
const goneMs = 3_600_000;
const maxNames = 12;

/** Is the fleet well? Every pod that is up, and those that went down lately. */
export function PodsPage() {
  const pods = useLive(["pods"], api.pods);
  const nowMs = useNow();
  return (
    <>
      <PageTitle name="Pods">Pods</PageTitle>
      <Ready of={pods} what="pods">
        {(all) => {
          const shown = all.filter(
            ({ status, lastHeartbeatMs }) => status === "up" || nowMs - lastHeartbeatMs < goneMs,
          );
          const rest = all.length - shown.length;
          return (
            <>
              {shown.length === 0 ? (
                <Empty title="No pod is up." command="flotilla work">
                  Tasks wait until there is one. This starts one that works on the same store:
                </Empty>
              ) : (
                <PodTable pods={shown} leader={leaderAmong(all)} />
              )}
              {rest > 0 && (
                <p className="soft">
                  {counted(rest, "other pod")} went down more than an hour ago.
                </p>
              )}
            </>
          );
        }}
      </Ready>
    </>
  );
}

function PodTable({ pods, leader }: { pods: readonly ShownPod[]; leader: string | undefined }) {
  const rows = pods.toSorted(
    (a, b) => Number(a.status === "down") - Number(b.status === "down") || a.birthMs - b.birthMs,
  );
  return (
    <Wide label="Pods">
      <table className="pods">
        <thead>
          <tr>
            <th scope="col">Pod</th>
            <th scope="col">State</th>
            <th scope="col" className="number">
              Holds up to
            </th>
            <th scope="col">Claims no more because</th>
            <th scope="col">Has handlers for</th>
            <th scope="col" className="number">
              Started
            </th>
            <th scope="col" className="number">
              Last beat
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((pod) => (
            <PodRow key={pod.podId} pod={pod} isLeader={pod.podId === leader} />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function PodRow({ pod, isLeader }: { pod: ShownPod; isLeader: boolean }) {
  const { podId, status, state, metadata, birthMs, lastHeartbeatMs } = pod;
  const isUp = status === "up";
  return (
    <tr className={isUp ? "" : "is-down"}>
      <th scope="row">
        <code title={podId}>{shortId(podId)}</code> {isLeader && <Badge tone="accent">leads</Badge>}
        <p className="soft">{whereOf(metadata)}</p>
      </th>
      <td>
        <span className={`status ${isUp ? "of-completed" : "of-cancelled"}`}>
          <span className="dot" aria-hidden="true" />
          {isUp ? "up" : "down"}
        </span>
      </td>
      <td className="number">{isUp && state ? state.holds : "–"}</td>
      <td>
        {isUp && !state?.reasons.length && <span className="soft">it takes every task</span>}
        {isUp &&
          state?.reasons.map(({ code, text }) => (
            <Badge key={code} tone={code === "full" ? "plain" : "warn"}>
              <ShownText text={visibleLine(text, 120)} />
            </Badge>
          ))}
      </td>
      <td>
        <NamesOf metadata={metadata} />
      </td>
      <td className="number soft">
        <When atMs={birthMs} />
      </td>
      <td className="number soft">
        <When atMs={lastHeartbeatMs} />
      </td>
    </tr>
  );
}

/** Its tasks and flows, with the versions that they have. */
function NamesOf({ metadata }: { metadata: ShownPod["metadata"] }) {
  const names = namesIn(metadata);
  const versions = { ...recordIn(metadata["versions"]), ...recordIn(metadata["flows"]) };
  return (
    <ul className="names">
      {names.slice(0, maxNames).map((name) => (
        <li key={name}>
          <ShownText text={visibleLine(name, 60)} />
          {Object.hasOwn(versions, name) && (
            <span className="soft"> {visibleLine(`v${String(versions[name])}`, 20)}</span>
          )}
        </li>
      ))}
      {names.length > maxNames && <li className="soft">{names.length - maxNames} more</li>}
    </ul>
  );
}

function recordIn(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function whereOf({ host, pid }: ShownPod["metadata"]): string {
  const shown = (value: unknown) =>
    typeof value === "string" || typeof value === "number" ? visibleLine(String(value), 60) : "?";
  return `${shown(host)}, process ${shown(pid)}`;
}
