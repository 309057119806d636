import type { DepthFacts, ErrorGroupPage, HomeFacts, ShownPod, RedriveFacts } from "../api.ts";
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
  readonly to: "/tasks" | "/failures" | "/pods";
  readonly search?: Readonly<Record<string, string>>;
};

export type FleetFacts = {
  readonly home: HomeFacts;
  /** Undefined where the caller may not see it, as one of a single tenant. */
  readonly depth?: DepthFacts | undefined;
  readonly pods?: readonly ShownPod[] | undefined;
  readonly groups?: ErrorGroupPage | undefined;
  readonly redrives?: readonly RedriveFacts[] | undefined;
};

// A due task that waits for longer than this is worth a look, whatever the reason.
const longWaitMs = 5 * 60_000;
// A redrive that halted before is an old story.
const recentMs = 24 * 3_600_000;

export function verdictOf(facts: FleetFacts, nowMs: number): FleetVerdict {
  const needs = [
    ...storeNeeds(facts),
    ...podNeeds(facts),
    ...nameNeeds(facts),
    ...redriveNeeds(facts, nowMs),
    ...runNeeds(facts),
    ...failureNeeds(facts),
  ].toSorted((a, b) => Number(a.tone === "warn") - Number(b.tone === "warn"));
  if (needs.length === 0) return { tone: "good", sentence: wellSentence(facts), needs };
  const tone = needs.some((need) => need.tone === "wrong") ? "wrong" : "warn";
  const things = needs.length === 1 ? "One thing needs" : `${needs.length} things need`;
  return { tone, sentence: `${things} a look.`, needs };
}

function wellSentence({ home, pods }: FleetFacts): string {
  if (home.overview === undefined || pods === undefined) return "Nothing has failed.";
  const { running, ready } = home.overview.tasks;
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
  for (const { podId, state } of up) {
    const stuck = state?.reasons.filter(({ code }) => stuckReasons.includes(code)) ?? [];
    if (stuck.length > 0)
      needs.push({
        key: `pod ${podId}`,
        tone: "warn",
        text: `Pod ${podId} claims no more: ${stuck.map(({ text }) => text).join("; ")}`,
        advice: home.store === "postgres" ? "look at the pod and its database" : "look at the pod",
        to: "/pods",
      });
  }
  return needs;
}

/** Reasons of pods that don't pass when a task ends. */
const stuckReasons: readonly string[] = ["outbox_full", "store_away"];

function nameNeeds({ depth, pods }: FleetFacts): Need[] {
  if (depth === undefined || pods === undefined) return [];
  const up = pods.filter(({ status }) => status === "up");
  const handled = new Set(up.flatMap(({ metadata }) => namesIn(metadata)));
  const needs: Need[] = [];
  for (const [name, { ready, paused, oldestMs }] of Object.entries(depth)) {
    if (ready === 0) continue;
    const seen = {
      key: `name ${name}`,
      to: "/tasks",
      search: { name, status: "pending" },
    } as const;
    if (paused)
      needs.push({
        ...seen,
        tone: "warn",
        text: `${name} is paused with ${boundedText(ready, "task")} ready`,
        advice: `\`flotilla resume ${name}\` lets pods claim it again`,
      });
    else if (up.length > 0 && !handled.has(name))
      needs.push({
        ...seen,
        tone: "wrong",
        text: `No pod has a handler for ${name}, and ${boundedText(ready, "task")} ${ready === 1 ? "waits" : "wait"} for one`,
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

function redriveNeeds({ redrives = [] }: FleetFacts, nowMs: number): Need[] {
  const halted = redrives.filter(
    ({ state, updatedAtMs }) => state === "stopped" && nowMs - updatedAtMs < recentMs,
  );
  return halted.map(({ redriveId, reason, updatedAtMs }) => ({
    key: `redrive ${redriveId}`,
    tone: "warn",
    text: `A redrive halted ${relativeText(updatedAtMs, nowMs)}`,
    advice: reason?.code === "same_error" ? "the error came back" : "its tasks failed otherwise",
    to: "/failures",
  }));
}

function runNeeds({ home: { overview } }: FleetFacts): Need[] {
  const aside = overview?.runs.set_aside ?? 0;
  if (aside === 0) return [];
  return [
    {
      key: "runs set aside",
      tone: "wrong",
      text: `${boundedText(aside, "run")} set aside until resumed`,
      advice: "`flotilla flows` says why",
      to: "/tasks",
      search: { status: "pending" },
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

/** The names that a pod has handlers for. */
export function namesIn(metadata: ShownPod["metadata"]): string[] {
  const { names } = metadata;
  return Array.isArray(names) ? names.filter((each) => typeof each === "string") : [];
}

/** The pod that leads: the oldest that is up. */
export function leaderAmong(pods: readonly ShownPod[]): string | undefined {
  const up = pods.filter(({ status }) => status === "up");
  return up.toSorted((a, b) => a.birthMs - b.birthMs || (a.podId < b.podId ? -1 : 1))[0]?.podId;
}
