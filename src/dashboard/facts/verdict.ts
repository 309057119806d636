import type { DepthFacts, ErrorGroupPage, HomeFacts } from "../api.ts";
import type {
  FleetCounts,
  SeenActs,
  SeenApproval,
  ListedSchedule,
  SeenThrottle,
} from "../asks/fleet.ts";
import type { ShownPod } from "./fleet/fleet.ts";
import { boundedText, counted, countText, durationText, relativeText } from "./spans.ts";

/** The state of the fleet in one sentence, and what a person has to look at. */
export type FleetVerdict = {
  readonly tone: Tone;
  readonly sentence: string;
  readonly needs: readonly Need[];
};

export type Tone = "good" | "warn" | "wrong";

/** Something that doesn't mend itself. */
export type Need = {
  readonly key: string;
  readonly tone: Exclude<Tone, "good">;
  readonly text: string;
  /** What to do, or what is behind it. */
  readonly advice: string;
} & NeedPlace;

/** Where it is looked at. */
export type NeedPlace = {
  readonly to:
    | "/tasks"
    | "/queues"
    | "/failures"
    | "/pods"
    | "/flows"
    | "/throttles"
    | "/throttles/$throttle"
    | "/schedules"
    | "/schedules/$scheduleId"
    | "/approvals";
  readonly params?: Readonly<Record<string, string>>;
  readonly search?: Readonly<Record<string, string>>;
};

export type FleetFacts = {
  readonly home: HomeFacts;
  /** Undefined where the caller may not see it, as one of a single tenant, and while it isn't read. */
  readonly counts?: FleetCounts | undefined;
  readonly depth?: DepthFacts | undefined;
  readonly pods?: readonly ShownPod[] | undefined;
  readonly groups?: ErrorGroupPage | undefined;
  readonly acts?: SeenActs | undefined;
  readonly throttles?: readonly SeenThrottle[] | undefined;
  readonly schedules?: readonly ListedSchedule[] | undefined;
  readonly approvals?: readonly SeenApproval[] | undefined;
};

// A due task that waits for longer than this is worth a look, whatever the reason.
const longWaitMs = 5 * 60_000;
// A redrive that halted before is an old story.
const recentMs = 24 * 3_600_000;
// Leaders fire within a second or two of the time, and another pod leads within seconds.
const missedMs = 60_000;
// Time enough for a person to decide.
const soonMs = 15 * 60_000;
/** As many approvals as the topic and the overview read: those with the nearest deadlines. */
export const maxApprovalsSeen = 100;
// The leader writes how far a bulk has come after every 500.
const stillMs = 5 * 60_000;
// More of a kind than a person reads.
const maxOfKind = 5;

export function verdictOf(facts: FleetFacts, browserNowMs: number): FleetVerdict {
  const nowMs = storeNowMs(facts.pods, browserNowMs);
  const needs = [
    ...storeNeeds(facts),
    ...atMost(podNeeds(facts), "pods", { to: "/pods" }),
    ...atMost(nameNeeds(facts), "names", { to: "/queues" }),
    ...atMost(throttleNeeds(facts), "throttles", { to: "/throttles" }),
    ...atMost(scheduleNeeds(facts, nowMs), "schedules", { to: "/schedules" }),
    ...approvalNeeds(facts, nowMs),
    ...atMost(actNeeds(facts, nowMs), "acts", { to: "/failures" }),
    ...runNeeds(facts),
    ...failureNeeds(facts),
  ].toSorted((a, b) => Number(a.tone === "warn") - Number(b.tone === "warn"));
  if (needs.length === 0) return { tone: "good", sentence: wellSentence(facts), needs };
  const tone = needs.some((need) => need.tone === "wrong") ? "wrong" : "warn";
  const things = needs.length === 1 ? "One thing needs" : `${needs.length} things need`;
  return { tone, sentence: `${things} a look.`, needs };
}

/** The time of the store, as the last heartbeat tells: the clock of a browser may be wrong. */
function storeNowMs(pods: FleetFacts["pods"], browserNowMs: number): number {
  const up = pods?.filter(({ status }) => status === "up") ?? [];
  if (up.length === 0) return browserNowMs;
  return up.reduce((latest, { lastHeartbeatMs }) => Math.max(latest, lastHeartbeatMs), 0);
}

/** The worst of a kind, and how many there are besides. */
function atMost(needs: readonly Need[], things: string, place: NeedPlace): readonly Need[] {
  if (needs.length <= maxOfKind) return needs;
  const sorted = needs.toSorted((a, b) => Number(a.tone === "warn") - Number(b.tone === "warn"));
  const rest = sorted.slice(maxOfKind - 1);
  return [
    ...sorted.slice(0, maxOfKind - 1),
    {
      key: `more ${things}`,
      tone: rest[0]!.tone,
      text: `${countText(rest.length)} more ${things} need a look`,
      advice: "the page has them all",
      ...place,
    },
  ];
}

function wellSentence({ counts, pods }: FleetFacts): string {
  if (counts === undefined || pods === undefined) return "Nothing has failed.";
  const { running, ready } = counts.tasks;
  const up = pods.filter(({ status }) => status === "up").length;
  if (up === 0) return "All is quiet: no pod is up, and nothing waits.";
  const work = running === 0 ? "nothing runs" : `${boundedText(running, "task")} running`;
  const waits = ready === 0 ? "none waiting for a slot" : `${countText(ready)} ready to run`;
  return `All is well: ${counted(up, "pod")} up, ${work}, ${waits}.`;
}

function storeNeeds({ home }: FleetFacts): Need[] {
  if (home.trouble === undefined) return [];
  return [
    {
      key: "store",
      tone: "wrong",
      text: `The store can't be read: ${home.trouble}`,
      advice: "`flotilla doctor` says what is wrong with it",
      to: "/pods",
    },
  ];
}

function podNeeds({ pods, depth, home }: FleetFacts): Need[] {
  if (pods === undefined) return [];
  const up = pods.filter(({ status }) => status === "up");
  const waiting = Object.values(depth ?? {}).reduce((sum, { ready }) => sum + ready, 0);
  const needs: Need[] = [];
  if (up.length === 0 && waiting > 0)
    needs.push({
      key: "no pods",
      tone: "wrong",
      text: `No pod is up, and ${boundedText(waiting, "task")} could run`,
      advice: "start one with `flotilla work` or `flotilla serve`",
      to: "/pods",
    });
  for (const { podId, state, drain } of up) {
    const reasonsOf = (codes: readonly string[]) =>
      (state?.reasons ?? []).filter(({ code }) => codes.includes(code)).map(({ text }) => text);
    const [stuck, strained] = [reasonsOf(stuckReasons), reasonsOf(strainedReasons)];
    const seen = {
      key: `pod ${podId}`,
      tone: "warn",
      to: "/pods",
      search: { find: podId },
    } as const;
    if (stuck.length > 0)
      needs.push({
        ...seen,
        text: `Pod ${podId} claims no more: ${stuck.join("; ")}`,
        advice: home.store === "postgres" ? "look at the pod and its database" : "look at the pod",
      });
    else if (strained.length > 0)
      needs.push({
        ...seen,
        text: `Pod ${podId} is strained and takes fewer tasks: ${strained.join("; ")}`,
        advice: "more pods, fewer slots, or handlers that leave the event loop alone",
      });
    else if (drain === "drained")
      needs.push({
        ...seen,
        text: `Pod ${podId} is drained and takes no work`,
        advice: "stop it, or undrain it",
      });
  }
  return needs;
}

/** Reasons of pods that don't pass when a task ends. */
const stuckReasons: readonly string[] = ["outbox_full", "store_away"];
const strainedReasons: readonly string[] = ["event_loop", "memory"];

function nameNeeds({ depth, pods }: FleetFacts): Need[] {
  if (depth === undefined || pods === undefined) return [];
  const up = pods.filter(({ status, drain }) => status === "up" && drain !== "drained");
  const sets = new Set(up.map(({ handlers }) => handlers));
  const handled = new Set([...sets].flatMap((set) => set?.names.map(({ name }) => name) ?? []));
  // A pod that doesn't tell all its names may have a handler for any.
  const areKnown = [...sets].every((set) => set?.more === 0);
  const needs: Need[] = [];
  for (const [name, { ready, paused, oldestMs }] of Object.entries(depth)) {
    if (ready === 0) continue;
    const seen = {
      key: `name ${name}`,
      to: "/tasks",
      search: { name, state: "ready" },
    } as const;
    if (paused)
      needs.push({
        ...seen,
        to: "/queues",
        search: { name },
        tone: "warn",
        text: `${name} is paused with ${boundedText(ready, "task")} ready`,
        advice: `\`flotilla resume ${name}\` lets pods claim it again`,
      });
    else if (up.length > 0 && areKnown && !handled.has(name))
      needs.push({
        ...seen,
        tone: "wrong",
        text: `No pod that takes work has a handler for ${name}, and ${boundedText(ready, "task")} ${ready === 1 ? "waits" : "wait"} for one`,
        advice: "deploy a pod that has it in `use`",
      });
    else if (up.length > 0 && oldestMs >= longWaitMs)
      needs.push({
        ...seen,
        tone: "warn",
        text: `The oldest task of ${name} has waited for ${durationText(oldestMs)}`,
        advice: "more pods or slots, or a limit that is too low",
      });
  }
  return needs;
}

function throttleNeeds({ throttles = [] }: FleetFacts): Need[] {
  return throttles.flatMap(({ name, key, breaker, bound, pinned, waiting }): Need[] => {
    const called = key === "" ? name : `${name} (${key})`;
    const seen = {
      key: `throttle ${JSON.stringify([name, key])}`,
      to: "/throttles/$throttle",
      params: { throttle: name },
      ...(key !== "" && { search: { key } }),
    } as const;
    const calls = `${boundedText(waiting, "call")} ${waiting === 1 ? "waits" : "wait"}`;
    if (breaker === "open")
      return [
        {
          ...seen,
          tone: "wrong",
          text: `The breaker of ${called} is open: no call gets through`,
          advice: "what it calls fails; a probe closes it again once that is mended",
        },
      ];
    if (waiting === 0 || bound > 1) return [];
    if (pinned !== undefined)
      return [
        {
          ...seen,
          tone: "warn",
          text: `${called} is pinned to ${pinned}, and ${calls}`,
          advice: `\`flotilla throttles unpin ${name}${key === "" ? "" : ` --key ${key}`}\` lets it learn again`,
        },
      ];
    return [
      {
        ...seen,
        tone: "warn",
        text: `${called} lets ${bound === 0 ? "no call" : "one call at a time"} through, and ${calls}`,
        advice: "what it calls refuses more: its page says why",
      },
    ];
  });
}

function scheduleNeeds({ schedules = [] }: FleetFacts, nowMs: number): Need[] {
  return schedules.flatMap(({ scheduleId, state, nextAtMs, error }): Need[] => {
    const seen = {
      key: `schedule ${scheduleId}`,
      tone: "wrong",
      to: "/schedules/$scheduleId",
      params: { scheduleId },
    } as const;
    if (state === "broken")
      return [
        {
          ...seen,
          text: `The schedule ${scheduleId} is broken${error === null ? "" : `: ${error}`}`,
          advice: "put it again with a pattern that can be read",
        },
      ];
    if (state !== "active" || nextAtMs === null || nowMs - nextAtMs < missedMs) return [];
    return [
      {
        ...seen,
        text: `The schedule ${scheduleId} was due ${relativeText(nextAtMs, nowMs)} and hasn't fired`,
        advice: "a pod that leads fires it: is one up?",
      },
    ];
  });
}

/** One line for all: the page has them in order. */
function approvalNeeds({ approvals = [] }: FleetFacts, nowMs: number): Need[] {
  const soon = approvals
    .filter(({ untilMs }) => untilMs !== null && untilMs - nowMs < soonMs)
    .toSorted((a, b) => a.untilMs! - b.untilMs!);
  const [first] = soon;
  if (!first) return [];
  const leftMs = first.untilMs! - nowMs;
  const left = leftMs <= 0 ? "now" : `in ${durationText(leftMs)}`;
  const what = first.name ?? first.what;
  const many =
    soon.length < maxApprovalsSeen
      ? counted(soon.length, "approval")
      : `${maxApprovalsSeen}+ approvals`;
  return [
    {
      key: "approvals",
      tone: "warn",
      text:
        soon.length === 1
          ? `${what} waits for a person, and gives up ${left}`
          : `${many} wait for a person, and the first gives up ${left}`,
      advice: "approve or deny",
      to: "/approvals",
    },
  ];
}

function actNeeds({ acts }: FleetFacts, nowMs: number): Need[] {
  const { redrives = [], bulks = [] } = acts ?? {};
  const isRecent = ({ updatedAtMs }: { updatedAtMs: number }) => nowMs - updatedAtMs < recentMs;
  return [
    ...redrives
      .filter((each) => each.state === "stopped" && isRecent(each))
      .map(({ redriveId, reason, updatedAtMs }): Need => {
        return {
          key: `redrive ${redriveId}`,
          tone: "warn",
          text: `A redrive halted ${relativeText(updatedAtMs, nowMs)}`,
          advice:
            reason?.code === "same_error" ? "the error came back" : "its tasks failed otherwise",
          to: "/failures",
          search: { redrive: redriveId },
        };
      }),
    ...bulks.flatMap(({ bulkId, action, state, done, updatedAtMs }): Need[] => {
      // One that was stopped is as its operator wants it.
      if (state !== "running" || nowMs - updatedAtMs < stillMs) return [];
      return [
        {
          key: `bulk ${bulkId}`,
          tone: "warn",
          to: "/tasks",
          text: `A bulk ${action} makes no progress after ${counted(done, "task")}`,
          advice: "a pod that leads goes on with it: is one up?",
        },
      ];
    }),
  ];
}

function runNeeds({ counts }: FleetFacts): Need[] {
  const aside = counts?.runs.set_aside ?? 0;
  if (aside === 0) return [];
  return [
    {
      key: "runs set aside",
      tone: "wrong",
      text: `${boundedText(aside, "run")} set aside until resumed`,
      advice: "`flotilla flows` says why; deploy what can read them, and resume them",
      to: "/flows",
    },
  ];
}

function failureNeeds({ groups }: FleetFacts): Need[] {
  if (groups === undefined || groups.tasks === 0) return [];
  const kinds = counted(groups.count, "error");
  return [
    {
      key: "failures",
      tone: "warn",
      text: `${counted(groups.tasks, "task")} failed, of ${kinds}`,
      advice: "redrive what is mended, discard what isn't worth it",
      to: "/failures",
    },
  ];
}
