import type { Head } from "../journal.ts";
import type { Beat, SpokenLog } from "./beat.ts";

/**
 * What this pod knows of others by their beats: which are there, which logs each speaks for, and since when
 * one is missing. It reads no clock and sends nothing. A pod is missing once it was silent for a while, or
 * earlier where it missed two beats and no process was found at its address twice.
 */
export type Roster = {
  /** Notes that this pod has sent a beat, which it must hear itself. */
  sent(count: number, nowMs: number): void;
  /** Takes a beat. `late`: a later one was heard, or this pod never sent it. `crowded`: too many pods are known. */
  hear(beat: Beat, nowMs: number): "heard" | "late" | "crowded";
  /** The last own beat that was heard. */
  readonly echo: number;
  /** Whether this pod hears its own beats. While it doesn't, the silence of others says nothing. */
  isHeard(nowMs: number): boolean;
  /** Since when silence counts. */
  readonly listensFromMs: number;
  /** Pods that were heard and aren't missing. */
  present(nowMs: number): KnownPod[];
  get(podId: string): KnownPod | undefined;
  /** Since when a pod is missing; undefined if it may be alive. */
  missingSinceMs(podId: string, nowMs: number): number | undefined;
  /** Pods with logs that may be gone, and are to be asked now. Each is counted as asked. */
  takeDoubted(nowMs: number): string[];
  /** Notes what became of a question. */
  answered(podId: string, answer: "answered" | "absent" | "silent", nowMs: number): void;
  /** The pods that speak for a log in the highest term of all that do, missing ones among them. */
  speakersOf(logId: number, incarnation: string): readonly Speaker[];
};

export type KnownPod = {
  readonly beat: Beat;
  readonly heardMs: number;
  /** Since when it is heard, without having been missing. */
  readonly sinceMs: number;
};

/** A pod that speaks for a log. */
export type Speaker = { readonly pod: KnownPod; readonly log: SpokenLog };

/** How often each pod beats. */
export const beatMs = 250;
/** A pod that was silent for this long is missing. */
export const silentMs = 1_500;
/** After two missed beats a pod is asked whether it is there. */
const doubtedMs = 2 * beatMs;
/** No process must be found at its address twice, so far apart: a connection is made again meanwhile. */
const absentAgainMs = 250;
/** Own beats are heard at most this long after they were sent. */
const deafMs = 700;
/** Far more than one deployment has. */
const maxPods = 1_000;
/** A beat comes late by fewer others than this. */
const maxLateBeats = 1_000;
/** Pods that were missing for this long are forgotten. */
const forgetMs = 60_000;

type Entry = { -readonly [Key in keyof KnownPod]: KnownPod[Key] } & {
  isQueried: boolean;
  absentMs: number | undefined;
  goneMs: number | undefined;
};

export function createRoster(podId: string | undefined): Roster {
  const pods = new Map<string, Entry>();
  /** When own beats were sent that may still be heard. */
  const sentMs = new Map<number, number>();
  let echo = 0;
  let echoSentMs = -Infinity;
  let listensFromMs = -Infinity;

  // A process that sends no beats can't be told by them whether it hears.
  const isHeard = (nowMs: number): boolean => podId === undefined || nowMs - echoSentMs <= deafMs;

  /** Only a beat that this pod has sent, and lately, shows that the way is open. */
  const hearOwn = ({ count }: Beat, nowMs: number): boolean => {
    const at = sentMs.get(count);
    if (at === undefined || nowMs - at > deafMs) return false;
    for (const each of sentMs.keys()) if (each <= count) sentMs.delete(each);
    if (!isHeard(nowMs)) listensFromMs = nowMs;
    echo = count;
    echoSentMs = at;
    return true;
  };

  const forget = (nowMs: number): void => {
    for (const [id, { heardMs }] of pods) if (nowMs - heardMs > forgetMs) pods.delete(id);
  };

  const silenceMs = ({ heardMs }: Entry, nowMs: number): number =>
    isHeard(nowMs) ? nowMs - Math.max(heardMs, listensFromMs) : 0;

  // What was found before this pod was deaf for a while may have changed since.
  const isGone = ({ goneMs }: Entry): boolean => goneMs !== undefined && goneMs >= listensFromMs;

  const missingSinceMs = (id: string, nowMs: number): number | undefined => {
    const pod = pods.get(id);
    if (!pod || !isHeard(nowMs)) return undefined;
    if (isGone(pod)) return pod.goneMs;
    const silentForMs = silenceMs(pod, nowMs);
    return silentForMs >= silentMs ? nowMs - silentForMs + silentMs : undefined;
  };

  return {
    sent(count, nowMs) {
      sentMs.set(count, nowMs);
      for (const [each, at] of sentMs) if (nowMs - at > deafMs) sentMs.delete(each);
    },
    hear(beat, nowMs) {
      const known = pods.get(beat.podId);
      if (known && isLate(beat, known.beat)) return "late";
      if (beat.podId === podId && !hearOwn(beat, nowMs)) return "late";
      if (!known) forget(nowMs);
      if (!known && pods.size >= maxPods) return "crowded";
      // One that comes back is as new: it may go again, and is given no log yet.
      const wasThere = known !== undefined && missingSinceMs(beat.podId, nowMs) === undefined;
      const sinceMs = wasThere ? known.sinceMs : nowMs;
      const fresh = {
        isQueried: known?.isQueried ?? false,
        absentMs: undefined,
        goneMs: undefined,
      };
      pods.set(beat.podId, { beat, heardMs: nowMs, sinceMs, ...fresh });
      return "heard";
    },
    get echo() {
      return echo;
    },
    isHeard,
    get listensFromMs() {
      return listensFromMs;
    },
    present: (nowMs) =>
      [...pods.values()].filter(
        ({ beat, heardMs }) =>
          missingSinceMs(beat.podId, nowMs) === undefined && nowMs - heardMs <= forgetMs,
      ),
    get: (id) => pods.get(id),
    missingSinceMs,
    takeDoubted(nowMs) {
      const doubted = [...pods].filter(([id, pod]) => {
        if (id === podId || pod.isQueried || isGone(pod)) return false;
        if (pod.beat.logs.length === 0 || silenceMs(pod, nowMs) < doubtedMs) return false;
        return pod.absentMs === undefined || nowMs - pod.absentMs >= absentAgainMs;
      });
      for (const [, pod] of doubted) pod.isQueried = true;
      return doubted.map(([id]) => id);
    },
    answered(id, answer, nowMs) {
      const pod = pods.get(id);
      if (!pod) return;
      pod.isQueried = false;
      // A beat that came meanwhile counts for more, and who doesn't hear itself can't tell.
      if (answer !== "absent" || silenceMs(pod, nowMs) < doubtedMs) pod.absentMs = undefined;
      else if (pod.absentMs === undefined || pod.absentMs < listensFromMs) pod.absentMs = nowMs;
      else pod.goneMs = nowMs;
    },
    speakersOf(logId, incarnation) {
      let found: Speaker[] = [];
      for (const pod of pods.values()) {
        const log = pod.beat.logs.find((each) => each.logId === logId);
        if (!log || log.incarnation !== incarnation) continue;
        const before = found[0]?.log.term ?? -1;
        if (log.term > before) found = [];
        if (log.term >= before) found.push({ pod, log });
      }
      return found;
    },
  };
}

/** Far below the last one that was heard, it isn't late: then that one wasn't the pod's own. */
function isLate({ count }: Beat, last: Beat): boolean {
  return count <= last.count && last.count - count < maxLateBeats;
}

/** Whether one place of a log is later than another. */
export function isFurther(
  one: Pick<Head, "term" | "offset">,
  other: Pick<Head, "term" | "offset">,
): boolean {
  return one.term > other.term || (one.term === other.term && one.offset > other.offset);
}
