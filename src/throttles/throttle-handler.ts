import { type Handed, scenes } from "./scope.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import type { Throttles } from "./registry.ts";
import type { Priority } from "./limiter/wait-queue.ts";

export type HandlerScene = {
  /** The pod's own. */
  readonly throttles: Throttles;
  /** Of its calls, where they don't say it themselves. */
  readonly priority?: Priority | undefined;
  /** What it was claimed with. */
  readonly permits?: readonly { readonly limiter: Limiter; readonly permit: HeldPermit }[];
};

/**
 * Runs a pod's handler, so that its calls use the pod's permits. The first call takes over the permit
 * that its task was claimed with; if it makes none, the handler is the call, and its ending the outcome.
 */
export async function runHandler<Result>(
  { throttles, priority, permits = [] }: HandlerScene,
  handler: () => Result | PromiseLike<Result>,
): Promise<Result> {
  const handed: Handed[] = permits.map((each) => ({ ...each, taken: false }));
  const untaken = () => handed.filter(({ taken }) => !taken);
  try {
    const result = await scenes.run({ throttles, priority, held: undefined, handed }, handler);
    for (const { permit } of untaken()) permit.release(permit.success());
    return result;
  } catch (error) {
    for (const { permit, limiter } of untaken()) {
      permit.release(limiter.endingOf(permit, error));
    }
    throw error;
  }
}
