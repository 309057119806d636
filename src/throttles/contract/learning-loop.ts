import { fraction, seededRandom } from "../../base/random.ts";
import {
  allowanceOf,
  type ControllerState,
  initialState,
  step,
} from "../learning/limit-controller.ts";
import {
  addOutcome,
  addSamples,
  emptySample,
  type OutcomeKind,
  type Sample,
} from "../learning/sample.ts";
import type { ControllerSettings } from "../settings.ts";

/**
 * A small closed loop in virtual time: pods with equal shares of the limit and endless demand call a
 * downstream of a true capacity; their samples are added up every second, and they hear of the new limit
 * half a second later. As pods do, each takes one off its share at its first refusal of an epoch, and
 * halves what is left at a refusal of a call that began after that; a while later it lets go.
 */
export type Loop = {
  readonly settings: ControllerSettings;
  readonly pods: number;
  readonly latencyMs: number;
  readonly wall: "hard" | "soft";
  readonly capacity: (atS: number) => number;
  readonly seconds: number;
};

export type Second = {
  readonly limit: number;
  /** Answered calls, as a share of what the downstream could answer in this second. */
  readonly use: number;
  readonly calls: number;
  readonly throttled: number;
};

type Call = {
  readonly pod: number;
  readonly epoch: number;
  readonly startMs: number;
  readonly endMs: number;
  kind: OutcomeKind;
};

const stepMs = 10;
const tickMs = 1_000;
const refusalMs = 20;
const brakeMs = 5_000;

export function runLoop(loop: Loop): Second[] {
  const { settings, pods, latencyMs } = loop;
  const random = seededRandom(7);
  let state: ControllerState = initialState(settings);
  let heard = allowanceOf(settings, state);
  let brakes = new Map<number, { cap: number; sinceMs: number }>();
  let inFlight: Call[] = [];
  let samples = freshSamples(pods, heard.epoch);
  let held = 0;
  const seconds: Second[] = [];
  let work = 0;
  let ended = { calls: 0, throttled: 0 };

  for (let nowMs = 0; nowMs < loop.seconds * 1_000; nowMs += stepMs) {
    const capacity = loop.capacity(nowMs / 1_000);
    for (const call of inFlight.filter(({ endMs }) => endMs <= nowMs)) {
      const outcome = {
        kind: call.kind,
        latencyMs: call.kind === "throttled" ? refusalMs : latencyMs,
      };
      samples[call.pod] = addOutcome(samples[call.pod]!, outcome, call.epoch);
      ended.calls++;
      if (call.kind === "throttled") {
        ended.throttled++;
        const share = shareOf(heard.limit, call.pod, pods);
        const brake = brakes.get(call.pod);
        if (call.epoch === heard.epoch && !(brake && call.startMs < brake.sinceMs)) {
          const cap = Math.max(1, brake ? Math.floor(brake.cap / 2) : share - 1);
          brakes.set(call.pod, { cap, sinceMs: nowMs });
        }
      } else work += latencyMs;
    }
    inFlight = inFlight.filter(({ endMs }) => endMs > nowMs);

    for (const [pod, { sinceMs }] of brakes) if (nowMs >= sinceMs + brakeMs) brakes.delete(pod);
    held = Math.max(0, held - stepMs);
    for (let pod = 0; pod < pods; pod++) {
      const share = shareOf(heard.limit, pod, pods);
      const cap = Math.min(share, brakes.get(pod)?.cap ?? share);
      let own = inFlight.filter((call) => call.pod === pod).length;
      for (; held === 0 && own < cap; own++) {
        const active = inFlight.filter(({ kind }) => kind !== "throttled").length;
        const refused = loop.wall === "hard" ? active >= capacity : active >= capacity * 1.5;
        const slower = loop.wall === "soft" ? Math.max(1, (active + 1) / capacity) : 1;
        const spread = 0.8 + 0.4 * fraction(random);
        const takesMs = refused ? refusalMs : latencyMs * slower * spread;
        // In whole steps, so that no capacity is lost between them.
        const endMs = nowMs + Math.round(takesMs / stepMs) * stepMs;
        const kind = refused ? "throttled" : "success";
        inFlight.push({ pod, epoch: heard.epoch, startMs: nowMs, endMs, kind });
      }
      const sample = samples[pod]!;
      samples[pod] = { ...sample, peak: Math.max(sample.peak, own), limited: true };
    }

    if (nowMs % tickMs === tickMs - stepMs) {
      const sample = samples.map((each) => ({ ...each, spanMs: tickMs })).reduce(addSamples);
      state = step(settings, state, { elapsedMs: tickMs, sample, restrained: pods > 1 });
      samples = freshSamples(pods, heard.epoch);
      const use = work / (capacity * tickMs);
      seconds.push({ limit: state.limit, use, ...ended });
      work = 0;
      ended = { calls: 0, throttled: 0 };
    }
    if (nowMs % tickMs === tickMs / 2) {
      const next = allowanceOf(settings, state);
      if (next.epoch !== heard.epoch) {
        brakes = new Map();
        samples = samples.map((each) => addSamples(each, { ...emptySample(next.epoch) }));
        held = next.holdMs;
      }
      heard = next;
    }
  }
  return seconds;
}

function shareOf(limit: number, pod: number, pods: number): number {
  return Math.floor(limit / pods) + (pod < limit % pods ? 1 : 0);
}

function freshSamples(pods: number, epoch: number): Sample[] {
  return Array.from({ length: pods }, () => emptySample(epoch));
}

export function between(seconds: readonly Second[], fromS: number, toS: number) {
  const part = seconds.slice(fromS, toS);
  const calls = part.reduce((sum, each) => sum + each.calls, 0);
  const throttled = part.reduce((sum, each) => sum + each.throttled, 0);
  const use = part.reduce((sum, each) => sum + each.use, 0) / part.length;
  return { use, throttled: calls === 0 ? 0 : throttled / calls };
}
