/**
 * What pods call. It counts calls as it sees them: one goes on after the pod that made it has died, and
 * one that hangs goes on for as long as its pod doesn't hang up.
 */
import type { OutcomeKind } from "../../../src/throttles/learning/sample.ts";
import type { World } from "../world.ts";
import { createStating } from "./headers.ts";

export type Call = {
  readonly podId: string;
  readonly beganMs: number;
  readonly end: () => void;
};

/** What a call is answered with. */
export type Answer = {
  readonly kind: OutcomeKind;
  readonly headers: Readonly<Record<string, string>> | undefined;
};

export type Downstream = {
  /** Calls that are being worked on. */
  readonly calls: ReadonlySet<Call>;
  /** Calls that have ended, with whatever. */
  readonly ended: number;
  /** Calls that were refused. */
  readonly throttled: number;
  capacity: number;
  /** Makes a call; `answer` isn't called after its end. */
  call(podId: string, answer: (answer: Answer) => void): Call;
};

export function createDownstream(world: World, { onCall }: { onCall: () => void }): Downstream {
  const { scheduler } = world;
  const calls = new Set<Call>();
  const latencyMs = world.between(20, 400);
  const failing = world.chance(0.3) ? 0.05 : 0;
  const stating = createStating(world);
  if (stating) world.count(`throttle: headers of ${stating.name}`);
  let ended = 0;
  let refused = 0;

  const downstream = {
    calls,
    capacity: world.between(2, 40),
    get ended() {
      return ended;
    },
    get throttled() {
      return refused;
    },
    call(podId: string, answer: (answer: Answer) => void): Call {
      let over = false;
      const call: Call = {
        podId,
        beganMs: scheduler.nowMs,
        end() {
          if (over) return;
          over = true;
          ended++;
          calls.delete(call);
        },
      };
      calls.add(call);
      onCall();
      const stated = stating?.take();
      const throttled = calls.size > downstream.capacity || stated?.within === false;
      const hangs = !throttled && world.chance(0.01);
      const kind = throttled ? "throttled" : world.chance(failing) ? "server_error" : "success";
      const lastsMs = throttled ? 5 : hangs ? 60_000 : world.between(latencyMs / 2, latencyMs * 2);
      scheduler.after(lastsMs, () => {
        if (over) return;
        call.end();
        if (throttled) refused++;
        answer({ kind, headers: stated?.headers });
      });
      return call;
    },
  };
  return downstream;
}
