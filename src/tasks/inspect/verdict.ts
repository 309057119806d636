import { aloneAfterDeaths } from "../../base/death-limit.ts";
import { allNames } from "../../protocol/task-options.ts";
import type { HeldByThrottle } from "../rows.ts";
import type { Reason, ReasonCode } from "../run/pod-status.ts";
import { parked } from "../sql/task-state.ts";
import type {
  CapablePod,
  DependencyFacts,
  EndedFacts,
  Lateness,
  LimitFacts,
  NotDueCause,
  NoWorkerFacts,
  PauseFacts,
  QueuedFacts,
  SignalFacts,
  Standing,
  Verdict,
  WhyKnown,
  WhyReason,
} from "./evidence.ts";

const maxNamed = 3;
// What keeps a pod from taking any task. The others are about some names, or only lower how many it takes.
const stopsAll: readonly ReasonCode[] = [
  "stopping",
  "outbox_full",
  "store_away",
  "alone",
  "draining",
  "full",
];

/** Pure: the facts, to the ordered reasons. */
export function decideVerdict(known: WhyKnown): Verdict {
  const { standing } = known;
  const { taskId, name, tenant, isRun, status, nowMs: atMs } = standing;
  return { taskId, name, tenant, isRun, status, atMs, reasons: reasonsFor(known) };
}

function reasonsFor(known: WhyKnown): WhyReason[] {
  const { standing } = known;
  const { status, claim } = standing;
  if (status !== "pending" && status !== "claimed") return [ended(standing, status)];
  if (status === "claimed" && claim) return [running(known, claim)];
  const parkedFor = parkedReasons(known);
  const lasting = [
    ...known.pauses.map((pause) => paused(pause)),
    ...(known.noWorker ? [noWorker(standing, known.noWorker)] : []),
  ];
  // What passes by the minute says nothing of a task that is to be claimed much later.
  if (parkedFor.length > 0) return [...parkedFor, ...lasting];
  const passing = [
    ...known.limits.map((limit) => limitReached(limit)),
    ...(known.throttledBy ? [throttled(known.throttledBy)] : []),
    ...(standing.deaths >= aloneAfterDeaths ? [mustRunAlone(standing)] : []),
    ...(known.noWorker ? [] : busyReasons(known)),
  ];
  const found = [...lasting, ...passing];
  return [...found, ...(known.queued ? [queued(standing, known.queued, found.length > 0)] : [])];
}

/** What the row itself waits for, before any pod may claim it. */
function parkedReasons({ standing, lateness, dependencies }: WhyKnown): WhyReason[] {
  switch (standing.parked) {
    case parked.setAside:
      return [setAside(standing)];
    case parked.forDependencies:
      return [waitsForTasks(dependencies)];
    case parked.untilSignal:
    case parked.untilDue: {
      const untilMs = standing.parked === parked.untilDue ? standing.runAtMs : null;
      if (standing.signal) return [waitsForSignal(standing, { ...standing.signal, untilMs })];
      if (standing.waitsForChildren) return [waitsForTasks(dependencies)];
      if (untilMs !== null) return [notDue(standing, untilMs, lateness)];
      // A row that was changed by hand names no signal.
      return [waitsForSignal(standing, { signal: "", sinceMs: standing.updatedAtMs, untilMs })];
    }
    default:
      return [];
  }
}

function ended({ taskId, isRun, updatedAtMs }: Standing, status: EndedFacts["status"]): WhyReason {
  const became = { completed: "has completed", failed: "has failed", cancelled: "was cancelled" };
  const retry = isRun ? "runs resume" : "tasks retry";
  return {
    code: "ended",
    evidence: { status, endedAtMs: updatedAtMs },
    sentence: `it ${became[status]}, at ${time(updatedAtMs)}`,
    links: [],
    advice: status === "completed" ? null : "Look at its error and its events, then start it over.",
    command: status === "completed" ? null : `flotilla ${retry} ${shell(taskId)}`,
  };
}

function running(
  { standing, isPodUp }: WhyKnown,
  { podId, sinceMs }: NonNullable<Standing["claim"]>,
): WhyReason {
  const { taskId, failures, waitsForSlot, cancelRequested } = standing;
  const attempt = failures + 1;
  const doing = waitsForSlot ? "waits for a slot" : "runs";
  const asked = cancelRequested ? "; it was asked to cancel" : "";
  const gone = isPodUp ? "" : ", which has left or fallen silent";
  return {
    code: "running",
    evidence: { podId, sinceMs, attempt, isPodUp, waitsForSlot, cancelRequested },
    sentence: `it ${doing} on pod ${podId}${gone}, attempt ${attempt}, since ${time(sinceMs)}${asked}`,
    links: [{ what: "pod", id: podId }],
    advice: isPodUp
      ? null
      : "The leader gives it to another pod within seconds, as soon as one is up.",
    command: isPodUp ? `flotilla ${showOf(standing)} ${shell(taskId)}` : "flotilla pods",
  };
}

function setAside(standing: Standing): WhyReason {
  const { taskId, isRun } = standing;
  const evidence = standing.setAside ?? { reason: "", message: "" };
  const { reason, step, byVersion } = evidence;
  const why = reason === "" ? "" : `: ${reason.replaceAll("_", " ")}`;
  const by = byVersion === undefined ? "" : ` by version ${byVersion} of its flow`;
  const forget = step === undefined ? "" : ` --forget ${shell(step)}`;
  return {
    code: "set_aside",
    evidence,
    sentence: `it was set aside${by}${why}, and no pod claims it`,
    links: [],
    advice: isRun
      ? "Start pods with a version of the flow that can read it, or resume it."
      : "Start pods with code that fits what is stored, or resume it without the stored step.",
    command: `flotilla ${isRun ? "runs" : "tasks"} resume ${shell(taskId)}${forget}`,
  };
}

function notDue(standing: Standing, untilMs: number, lateness: Lateness | null): WhyReason {
  const { taskId, failures, maxAttempts, snoozes, scheduledAtMs, isSleeping } = standing;
  const cause = causeOf(standing, lateness);
  const isOfEvent = lateness !== null && lateness.cause === cause;
  const said: Record<NotDueCause, string> = {
    delayed: "it was enqueued for later",
    scheduled: "its schedule made it for later",
    retry: `attempt ${failures} has failed${isOfEvent && lateness.errorCode ? ` (${lateness.errorCode})` : ""}, and the next follows its backoff`,
    snoozed: `it has snoozed, for the ${ordinal(snoozes)} time`,
    sleeping: "it sleeps",
    put_off: "its pod had no permit for it, or put it off",
  };
  return {
    code: "not_due",
    evidence: {
      untilMs,
      cause,
      decidedAtMs: isOfEvent ? lateness.atMs : null,
      delayMs: isOfEvent ? lateness.delayMs : null,
      failures,
      maxAttempts,
      snoozes,
      errorCode: isOfEvent ? lateness.errorCode : null,
      scheduledAtMs,
    },
    sentence: `it isn't due before ${time(untilMs)}: ${said[cause]}`,
    links: [],
    advice:
      isSleeping || cause === "snoozed"
        ? "Its own code has asked for this. It goes on by itself."
        : "It runs by itself once it is due.",
    command: `flotilla ${showOf(standing)} ${shell(taskId)}`,
  };
}

function causeOf(standing: Standing, lateness: Lateness | null): NotDueCause {
  const { isSleeping, failures, snoozes, scheduledAtMs } = standing;
  if (isSleeping) return "sleeping";
  if (lateness) return lateness.cause;
  if (failures > 0) return "retry";
  if (snoozes > 0) return "snoozed";
  if (scheduledAtMs !== null) return "scheduled";
  return standing.wasClaimed ? "put_off" : "delayed";
}

function waitsForTasks(evidence: DependencyFacts): WhyReason {
  const { total, open, failed, tasks } = evidence;
  const first = tasks.find(({ status }) => status === "pending" || status === "claimed");
  const others = tasks.filter(({ status }) => status !== "completed");
  const kind = tasks.length > 0 && tasks.every(({ isChild }) => isChild) ? "children" : "tasks";
  const names = named(others.map(({ taskId, name }) => (name === null ? taskId : name)));
  const broken = failed > 0 ? `, and ${failed} of them failed or were cancelled` : "";
  return {
    code: "waits_for_tasks",
    evidence,
    sentence: `it waits for ${open} of ${total} ${kind}${names === "" ? "" : ` (${names})`}${broken}`,
    links: others.map(({ taskId }) => ({ what: "task", id: taskId })),
    advice:
      open === 0
        ? "All of them have ended: the leader lets it go on within seconds."
        : "Find out what those wait for.",
    command: first ? `flotilla why ${shell(first.taskId)}` : null,
  };
}

function waitsForSignal({ taskId, isRun }: Standing, evidence: SignalFacts): WhyReason {
  const { signal, sinceMs, untilMs } = evidence;
  const until = untilMs === null ? "" : `, until ${time(untilMs)} at most`;
  return {
    code: "waits_for_signal",
    evidence,
    sentence: `it waits for the signal "${signal}" since ${time(sinceMs)}${until}`,
    links: [],
    advice: "A person or a program has to send it. It may have a payload, as JSON.",
    command: `flotilla ${isRun ? "runs" : "tasks"} signal ${shell(taskId)} ${shell(signal)}`,
  };
}

function paused(evidence: PauseFacts): WhyReason {
  const { name, sinceMs, reason, by } = evidence;
  const what = name === allNames ? "everything" : `"${name}"`;
  const whose = by === null ? "" : ` by ${by}`;
  return {
    code: "paused",
    evidence,
    sentence: `${what} is paused${whose} since ${time(sinceMs)}${reason === null ? "" : `: ${reason}`}`,
    links: [{ what: "pause", id: name }],
    advice: "No pod claims such tasks until the pause is ended.",
    command: name === allNames ? "flotilla resume" : `flotilla resume ${shell(name)}`,
  };
}

function noWorker({ taskId, isRun }: Standing, evidence: NoWorkerFacts): WhyReason {
  const { name, version, livePods, pods } = evidence;
  const older = pods.filter(({ isUp }) => isUp);
  const isOlder = version !== null && older.length > 0;
  const seen = pods.length === 0 ? "; no pod was seen with it" : "";
  const last = pods.find(({ isUp }) => !isUp);
  const before =
    last && !isOlder ? `; pod ${last.podId} had it, up to ${time(last.lastHeartbeatMs)}` : "";
  const sentence = isOlder
    ? `no pod that is up has version ${version} of "${name}" or a later one: pod ${older[0]!.podId} has ${older[0]!.version ?? "one without a version"}`
    : `no pod of the ${livePods} that are up works on "${name}"${seen}${before}`;
  return {
    code: "no_worker",
    evidence,
    sentence,
    links: pods.slice(0, maxNamed).map(({ podId }) => ({ what: "pod", id: podId })),
    advice: isOlder
      ? `Start a pod with version ${version} or a later one${isRun ? ", or hand the run to the version that pods have" : ""}.`
      : "Start a pod whose config has a handler of this name in `use`, and not left out by `only`.",
    command:
      isOlder && isRun && older[0]!.version !== null
        ? `flotilla runs resume ${shell(taskId)} --as ${older[0]!.version}`
        : "flotilla pods",
  };
}

function limitReached(evidence: LimitFacts): WhyReason {
  const { scope, limit, running: used, holders } = evidence;
  const by = named(
    holders.map(({ taskId, podId }) => (podId === null ? taskId : `${taskId} on ${podId}`)),
  );
  return {
    code: "limit_reached",
    evidence,
    sentence: `${used} of ${limit} tasks of ${scope} are running${by === "" ? "" : `: ${by}`}`,
    links: [
      { what: "limit", id: scope },
      ...holders.map(({ taskId }) => ({ what: "task", id: taskId }) as const),
    ],
    advice: "It is claimed when one of them ends. Raise the limit to let more run at once.",
    command: `flotilla limits set ${shell(scope)} ${limit + 1}`,
  };
}

function throttled(evidence: HeldByThrottle): WhyReason {
  const { name, key, limit, inFlight, waiting, ahead, aboutMs } = evidence;
  const of = key === null || key === "" ? name : `${name} (${key})`;
  const about = aboutMs === null ? "" : `, for about ${Math.max(1, Math.round(aboutMs / 1_000))} s`;
  const keyed = key === null || key === "" ? "" : ` --key ${shell(key)}`;
  return {
    code: "throttled",
    evidence,
    sentence: `throttled: ${inFlight} of ${limit} calls of ${of} are in flight, ${waiting} wait, ${ahead} ahead of it${about}`,
    links: [{ what: "throttle", id: name }],
    advice: "It is claimed when there is a permit for it.",
    command: `flotilla throttles show ${shell(name)}${keyed}`,
  };
}

function mustRunAlone(standing: Standing): WhyReason {
  const { taskId, deaths } = standing;
  return {
    code: "must_run_alone",
    evidence: { deaths },
    sentence: `${deaths} pods died while they ran it, so it runs on a pod that has ended all its other tasks first`,
    links: [],
    advice: "See in its events which pods died, and in their logs why, before it takes another.",
    command: `flotilla ${showOf(standing)} ${shell(taskId)}`,
  };
}

/** One reason if every pod that could run it takes no more now. */
function busyReasons({ standing, pods }: WhyKnown): WhyReason[] {
  const busy = pods.filter((pod) => isBusy(pod, standing.name));
  if (pods.length === 0 || busy.length < pods.length) return [];
  const says = busy.slice(0, maxNamed).map((pod) => `${pod.podId} ${stateOf(pod)}`);
  const more = busy.length > maxNamed ? ` and ${busy.length - maxNamed} more` : "";
  return [
    {
      code: "no_free_pod",
      evidence: { pods: busy },
      sentence: `no pod that works on it takes more now: ${says.join(", ")}${more}`,
      links: busy.slice(0, maxNamed).map(({ podId }) => ({ what: "pod", id: podId })),
      advice: "Start more pods, or give them more `slots` where they have spare time and memory.",
      command: "flotilla pods",
    },
  ];
}

function isBusy({ held, holds, reasons }: CapablePod, name: string): boolean {
  const isFull = holds !== null && held >= holds;
  const isOfName = ({ code, text }: Reason) => code === "slots" && text.includes(`"${name}"`);
  return isFull || reasons.some((each) => stopsAll.includes(each.code) || isOfName(each));
}

function stateOf({ held, holds, reasons }: CapablePod): string {
  const strain = reasons
    .filter(({ code }) => code !== "full")
    .map(({ text, code }) => text || code);
  const full = holds === null ? `holds ${held}` : `holds ${held} of ${holds}`;
  return strain.length === 0 ? full : `${full} (${strain.join("; ")})`;
}

function queued(standing: Standing, evidence: QueuedFacts, isBesides: boolean): WhyReason {
  const { ahead, isMore } = evidence;
  const many = isMore ? `${ahead} or more` : String(ahead);
  const turn = ahead === 0 ? "it is the next in its queue" : `${many} are ahead of it in its queue`;
  return {
    code: "queued",
    evidence,
    sentence: isBesides ? turn : `nothing holds it back: ${turn}`,
    links: [],
    advice: isBesides ? null : "A pod claims it as soon as it has a free slot.",
    command: isBesides ? null : "flotilla stats",
  };
}

const showOf = ({ isRun }: Standing): string => (isRun ? "runs show" : "tasks show");

function named(all: readonly string[]): string {
  const more = all.length - maxNamed;
  return `${all.slice(0, maxNamed).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

function ordinal(count: number): string {
  const last = count % 10;
  const isTeen = Math.floor(count / 10) % 10 === 1;
  const ends = ["th", "st", "nd", "rd"];
  return `${count}${isTeen || last > 3 ? "th" : ends[last]}`;
}

/** A row that was inserted by hand may hold a time that no date has. */
function time(atMs: number): string {
  return Math.abs(atMs) <= 8.64e15 ? new Date(atMs).toISOString() : `${atMs} ms since 1970`;
}

/** A word of a command, quoted where a shell would read it otherwise. */
function shell(word: string): string {
  return /^[\w.:/@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
