import type { ScheduleStanding } from "../../facts/schedules/standing.ts";
import { Badge } from "../../parts/marks.tsx";

/** How a schedule stands. What is as it should be takes no eye from what isn't. */
export function StandingMark({ standing: { word, tone } }: { standing: ScheduleStanding }) {
  if (tone !== "good") return <Badge tone={tone}>{word}</Badge>;
  return (
    <span className="status of-completed">
      <span className="dot" aria-hidden="true" />
      {word}
    </span>
  );
}
