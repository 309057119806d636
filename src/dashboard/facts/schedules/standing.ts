import type { FiringFacts, ScheduleFacts } from "../../asks/schedules.ts";
import { counted, durationText, exactText } from "../spans.ts";

/** How a schedule stands, in a word and a colour, and why where that isn't plain. */
export type ScheduleStanding = {
  readonly word: string;
  readonly tone: "good" | "warn" | "wrong" | "plain";
  readonly why?: string;
};

// A leader that dies is replaced by then; also as the leader counts a time as missed.
const graceMs = 60_000;

type StandingFacts = Pick<
  ScheduleFacts,
  "state" | "nextAtMs" | "error" | "noWorker" | "name" | "missed"
>;

export function scheduleStanding(schedule: StandingFacts, nowMs: number): ScheduleStanding {
  const { state, nextAtMs, error, noWorker, name } = schedule;
  switch (state) {
    case "broken":
      return { word: "broken", tone: "wrong", why: error ?? "it can't be fired" };
    case "paused":
      return { word: "paused", tone: "warn" };
    case "ended":
      return { word: "ended", tone: "plain", why: "its pattern has no more times" };
    case "active":
      if (nextAtMs !== null && nowMs - nextAtMs > graceMs) {
        const why = `its time came ${durationText(nowMs - nextAtMs)} ago, and no pod has fired it: is one up?`;
        return { word: "overdue", tone: "wrong", why };
      }
      if (noWorker)
        return { word: "no worker", tone: "warn", why: `no live pod has a handler for ${name}` };
      return { word: "active", tone: "good" };
  }
}

const missedWords: Readonly<Record<ScheduleFacts["missed"], string>> = {
  once: "make one task for all of them",
  skip: "make none",
  all: "make one each, at most the oldest hundred",
};

/** What becomes of times that came while no pod fired. */
export function missedPolicy(missed: ScheduleFacts["missed"]): string {
  return missedWords[missed] ?? missed;
}

/** What is to be said of a past firing: how late it was, and what was missed before it. */
export function firingRemark({
  lagMs,
  skipped,
}: Pick<FiringFacts, "lagMs" | "skipped">): string | undefined {
  const parts = [
    lagMs !== null && lagMs > graceMs && `${durationText(lagMs)} late`,
    skipped !== null && skipped > 0 && `${counted(skipped, "time")} before it had no task`,
  ].filter((each) => each !== false);
  return parts.length === 0 ? undefined : parts.join(", ");
}

/** A time as clocks in a zone show it. What isn't a zone is shown in that of the browser. */
export function timeInZone(atMs: number, zone: string | null): string {
  try {
    const format = new Intl.DateTimeFormat("en-GB", {
      ...(zone !== null && { timeZone: zone }),
      weekday: "short",
      year: "numeric",
      month: "short",
      day: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      timeZoneName: "short",
    });
    return format.format(new Date(atMs));
  } catch {
    return exactText(atMs);
  }
}
