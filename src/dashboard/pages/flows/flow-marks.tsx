import { Link } from "@tanstack/react-router";
import type { RunFacts, StuckFacts } from "../../asks/flows.ts";
import { counted } from "../../facts/spans.ts";
import { Badge, When } from "../../parts/marks.tsx";
import { ShownText } from "../../parts/text.tsx";

const reasons: Readonly<Record<StuckFacts["why"], string>> = {
  set_aside: "set aside",
  no_worker: "that no pod can run",
  retrying: "failing again and again",
  waiting: "waiting for long",
};
const maxStuckShown = 3;

/** Runs that may need an operator, each kind with its oldest run. */
export function StuckLines({
  stuck,
  isAtState = false,
}: {
  stuck: readonly StuckFacts[];
  /** They stand beside the state that they are at. */
  isAtState?: boolean;
}) {
  const rest = stuck.length - maxStuckShown;
  return (
    <>
      {stuck.slice(0, maxStuckShown).map(({ why, at, version, runs, runId, sinceMs }) => (
        <span key={`${why} ${at} ${version}`} className="stuck">
          <Link to="/runs/$runId" params={{ runId }} className="wrong">
            {counted(runs, "run")} {reasons[why]}
          </Link>{" "}
          <span className="soft">
            {at !== null && !isAtState && (
              <>
                at <ShownText text={at} />{" "}
              </>
            )}
            <When atMs={sinceMs} />
          </span>
        </span>
      ))}
      {rest > 0 && <span className="soft">and {counted(rest, "other kind")}</span>}
    </>
  );
}

export function RunVersionBadge({ version }: { version: number }) {
  return <Badge>{version === 0 ? "not begun" : `v${version}`}</Badge>;
}

/** The status of a run as that of the task that it is. */
export function runStatus({ status, doing }: RunFacts): string {
  if (status !== "open") return status;
  return doing?.type === "running" ? "claimed" : "pending";
}

/** A state as people read it. */
export function placeName(at: string): string {
  return at === "$end" ? "end" : at;
}
