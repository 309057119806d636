/**
 * What pods do when a function of a flow is called, and the book that is kept of it. Whether a call may
 * begin is judged by the row as it is stored at that moment, which its pod can't see.
 */
import { sleep } from "../../../src/base/clock.ts";
import { abort, hasCode, retryAfter, snooze } from "../../../src/base/errors.ts";
import { cancel, unrecoverable } from "../../../src/flows/decide/thrown.ts";
import type { SimPod } from "../pod.ts";
import type { World } from "../world.ts";
import type { RunSteps } from "./steps.ts";
import { type Context, type Fate, firstName, type Perform, type Version } from "./machines.ts";

/** One call of a function, from its start until it settled or something was stored of it. */
export type Call = {
  readonly nth: number;
  readonly runId: string;
  readonly flow: string;
  readonly transition: string;
  readonly version: Version;
  readonly pod: SimPod;
  readonly token: number;
  readonly attempt: number;
  /** The state that it was given, as JSON. */
  readonly state: string;
  readonly isFinalizer: boolean;
  over: boolean;
  returned: boolean;
};

export type Calls = {
  readonly all: readonly Call[];
  of(runId: string): readonly Call[];
  perform(pod: SimPod, version: Version): Perform;
};

const well: Fate = { kind: "well", times: 0, workMs: 22 };

export function createCalls(
  world: World,
  judge: (call: Call) => void,
  /** What calls steps, where functions do. */
  steps?: RunSteps,
): Calls {
  const { scheduler, violate } = world;
  const all: Call[] = [];
  const byRun = new Map<string, Call[]>();

  const begin = (pod: SimPod, version: Version, context: Context): Call => {
    const { runId, flow, transition, token, attempt } = context;
    const call: Call = {
      nth: all.length + 1,
      runId,
      flow,
      transition,
      version,
      pod,
      token,
      attempt,
      state: JSON.stringify(context.state),
      isFinalizer: (context as { outcome?: unknown }).outcome !== null,
      over: false,
      returned: false,
    };
    scheduler.note(`${pod.podId} calls ${flow}.${transition} ${runId.slice(-6)}@${token}`);
    judge(call);
    all.push(call);
    byRun.set(runId, [...(byRun.get(runId) ?? []), call]);
    return call;
  };

  /** What is ending can't be cancelled, and no attempt is stopped for the reason of an earlier one. */
  const watchSignal = (call: Call, signal: AbortSignal): void => {
    const what = `${call.flow}.${call.transition} ${call.runId.slice(-6)}`;
    const isStopping = call.pod.stoppingMs !== undefined;
    const judgeReason = () => {
      const isCancel = hasCode(signal.reason, "cancelled") && call.pod.stoppingMs === undefined;
      if (call.isFinalizer && isCancel) violate("F7", `${what}: a finalizer was cancelled`);
    };
    if (signal.aborted && !isStopping && !hasCode(signal.reason, "claim_lost")) {
      violate("F1", `${what}: was told to stop before it began`);
    }
    signal.addEventListener("abort", judgeReason);
  };

  return {
    all,
    of: (runId) => byRun.get(runId) ?? [],
    perform: (pod, version) => async (context) => {
      const first = firstName(context.transition);
      const fate = context.input.fates[first] ?? well;
      const prior = (byRun.get(context.runId) ?? []).filter(
        (call) => firstName(call.transition) === first,
      ).length;
      const call = begin(pod, version, context);
      // Most functions never ask for their signal, and then there is none.
      const asks = fate.kind === "polite" || fate.workMs % 3 === 0;
      if (asks) watchSignal(call, context.signal);
      try {
        const kind = prior < fate.times ? fate.kind : "well";
        await steps?.call(pod, context, fate);
        const returned = await act(world, pod, context, { ...fate, kind }, call.nth);
        call.returned = true;
        return returned;
      } finally {
        call.over = true;
      }
    },
  };
}

async function act(
  world: World,
  pod: SimPod,
  context: Context,
  { kind, workMs }: Fate,
  nth: number,
): Promise<object | void> {
  const work = (durationMs: number) => sleep(pod.clock, durationMs);
  const { transition, handoff } = context;
  const done = { [firstName(transition)]: nth };
  world.count(`flow: ${kind}`);
  switch (kind) {
    case "well":
      if (workMs % 7 > 0) await work(workMs % 100);
      return workMs % 5 === 0 ? undefined : done;
    case "flaky":
      await work(workMs % 300);
      throw workMs % 2 === 0 ? new Error(`failure ${nth}`) : retryAfter(workMs % 700, "later");
    case "abort":
      await work(workMs % 100);
      throw abort("nothing helps");
    case "unrecoverable":
      throw unrecoverable("broken", { by: "user" });
    case "cancel":
      await work(workMs % 100);
      throw cancel("not wanted");
    case "snooze":
      throw snooze(workMs % 1_500, "not yet");
    case "handoff":
      await work(workMs % 100);
      return (handoff?.({ handed: nth }) as object | undefined) ?? done;
    case "stuck":
      return new Promise(() => {});
    case "patient":
      // Says that it goes on, and takes no notice of being told to stop.
      context.progress({ nth });
      await work(workMs);
      context.progress({ nth, half: true });
      await work(workMs % 1_200);
      return done;
    case "polite":
      return new Promise((resolve, reject) => {
        const { signal } = context;
        signal.addEventListener("abort", () => reject(signal.reason as Error));
        pod.clock.after(workMs, () => resolve(done));
      });
    case "poison":
      await work(workMs % 300);
      pod.crash("poisoned");
      await work(50);
      return done;
  }
}
