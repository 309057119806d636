import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { Allowance } from "../learning/limit-controller.ts";
import { declareThrottle, type ThrottleOptions } from "../declaration.ts";
import { createLearner } from "../registry.ts";
import { createLimiter } from "../limiter/limiter.ts";
import type { AcquireOptions, HeldPermit } from "../limiter/permit.ts";

/** What a limiter under test may do, if nothing else is said. */
export function allowing(limit: number, more: Partial<Allowance> = {}): Allowance {
  return { limit, epoch: 1, holdMs: 0, breaker: "closed", ...more };
}

/** A limiter on a clock that stands still. Its limit comes from outside, unless it is to learn alone. */
export function createTestLimiter(options: ThrottleOptions = {}, limit?: number) {
  const clock = movableClock();
  const { name, settings, classify } = declareThrottle("api", options);
  const limiter = createLimiter({
    name,
    key: "",
    clock,
    random: seededRandom(1),
    settings,
    learner: createLearner(settings.controller),
    classify,
  });
  if (limit !== undefined) limiter.allow(allowing(limit));
  return { clock, limiter };
}

/** Asks for a permit, and tells at any time what came of it. */
export function trackAcquire(
  limiter: { acquire(options?: AcquireOptions): Promise<HeldPermit> },
  options?: AcquireOptions,
) {
  const result: { permit: HeldPermit | undefined; error: unknown } = {
    permit: undefined,
    error: undefined,
  };
  limiter.acquire(options).then(
    (permit) => (result.permit = permit),
    (error: unknown) => (result.error = error),
  );
  return result;
}
