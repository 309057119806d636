import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { HeldPermit } from "../../throttles/limiter/permit.ts";
import { areUsedHere, type HandlerScene } from "../../throttles/scope.ts";
import type { Throttles } from "../../throttles/registry.ts";
import type { Priority } from "../../throttles/limiter/wait-queue.ts";
import type { Claim } from "../rows.ts";
import type { Running } from "../run/attempt.ts";
import type { Ending } from "../finish/outcome.ts";
import type { TaskThrottle } from "./throttle.ts";

/** What a task of a throttled name was claimed with: its permit, or why it can't run now. */
export type Throttled =
  | {
      readonly limiter: Limiter;
      readonly permit: HeldPermit;
      readonly priority: Priority | undefined;
      /** Whether the permit has become its handler's, which gives it back. */
      entered: boolean;
    }
  | { readonly refused: Ending };

/** How urgent the calls of an attempt are. */
export function priorityOf(
  throttle: Pick<TaskThrottle, "priority"> | undefined,
  { failures }: Pick<Claim, "failures">,
): Priority | undefined {
  return throttle?.priority ?? (failures > 0 ? "retry" : undefined);
}

/**
 * Whose permits a handler's calls use, and with which priority, where that isn't plain anyway: to say it
 * costs more than a short task.
 */
export function sceneOf(running: Running, throttles: Throttles): HandlerScene | undefined {
  const { throttled, claim, handler } = running;
  if (throttled !== undefined && "permit" in throttled) {
    throttled.entered = true;
    const { priority, limiter, permit } = throttled;
    return { throttles, priority, permits: [{ limiter, permit }] };
  }
  if ((claim.failures === 0 || !throttles.any) && areUsedHere(throttles)) return undefined;
  return { throttles, priority: priorityOf(handler.throttle, claim) };
}

/** Whether it was claimed in vain, because there was no permit for it. */
export function isRefused({ throttled }: Running): boolean {
  return throttled !== undefined && "refused" in throttled;
}

/** Gives back the permit of a task that has ended without its handler having been called. */
export function letGo(throttled: Throttled): void {
  if ("permit" in throttled && !throttled.entered) throttled.permit.release("ignored");
}
