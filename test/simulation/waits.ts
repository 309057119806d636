/**
 * Tasks that wait for others: none is let go while one of them is open, and none is kept once they
 * have ended.
 */
import type { Change, TaskState } from "./audit.ts";
import type { Payload } from "./workload.ts";
import type { World } from "./world.ts";

type Tasks = ReadonlyMap<string, { readonly state: TaskState }>;

const waiting = 2;
const open = ["pending", "claimed"];
const failed = ["failed", "cancelled"];

/** A change that only touched a dependent, or woke it. */
export function isWaking({ before, after }: Change): boolean {
  return (
    before?.status === "pending" &&
    before.parked === waiting &&
    after?.status === "pending" &&
    after.token === before.token
  );
}

export function createWaitChecker({ violate }: World, tasks: Tasks) {
  /** Who waits for what, as long as it does. */
  const waiters = new Map<string, readonly string[]>();
  const anyOf = (awaited: readonly string[], statuses: readonly string[]) =>
    awaited.find((taskId) => statuses.includes(tasks.get(taskId)?.state.status ?? ""));

  return {
    judgeWaking({ payload, after }: Change, what: string): void {
      if (!after || after.parked === waiting) return;
      const awaited = awaitedIn(payload);
      if (after.waits === 3) {
        if (!anyOf(awaited, failed)) violate("waits", `${what}: given up though nothing failed`);
        return;
      }
      const early = anyOf(awaited, open);
      if (early) violate("waits", `${what}: let go while ${early.slice(-6)} was open`);
      const culprit = after.waits === 1 ? anyOf(awaited, failed) : undefined;
      if (culprit) violate("waits", `${what}: let go to run though ${culprit.slice(-6)} failed`);
    },

    /** No task waits for one that has ended, once a write is done. */
    judgeParked(changes: readonly Change[]): void {
      for (const { taskId, payload, after } of changes) {
        if (after?.status === "pending" && after.parked === waiting) {
          waiters.set(taskId, awaitedIn(payload));
        } else waiters.delete(taskId);
      }
      if (changes.every(({ after }) => open.includes(after?.status ?? ""))) return;
      for (const [taskId, awaited] of waiters) {
        const hopeless = tasks.get(taskId)!.state.waits === 1 && anyOf(awaited, failed);
        if (hopeless || !anyOf(awaited, open)) {
          violate("waits", `${taskId.slice(-6)} waits on though what it waits for has ended`);
        }
      }
    },
  };
}

function awaitedIn(payload: string): readonly string[] {
  return (JSON.parse(payload) as Payload).after ?? [];
}
