/**
 * Limits: never more of a key or of a tenant are claimed at once than may. That none waits for ever is
 * found at the end, as for every task.
 */
import { defaultKeyLimit } from "../../src/tasks/concurrency/candidates.ts";
import { putLimit } from "../../src/tasks/sql/limits.ts";
import { tenantScope } from "../../src/protocol/task-options.ts";
import type { Change } from "./audit.ts";
import type { World } from "./world.ts";

export const tenants = ["acme", "beta"] as const;
export const concurrencyKeys = ["c1", "c2"] as const;
const tenantLimits = new Map([[tenantScope("acme"), 2]]);

export async function setLimits({ store }: World): Promise<void> {
  await store.database.write([...tenantLimits].map(([scope, limit]) => putLimit(scope, limit)));
}

/** A change that only blocked a task because its limit is reached, or unblocked it. */
export function isLimitMove({ before, after }: Change): boolean {
  return (
    before?.status === "pending" &&
    after?.status === "pending" &&
    before.token === after.token &&
    ((before.parked === 4 && after.parked === 3) || (before.parked === 3 && after.parked === 4))
  );
}

export function createLimitChecker(world: World) {
  const held = new Map<string, Set<string>>();

  /** Judged by how all of a write left things. */
  return (changes: readonly Change[]): void => {
    for (const { taskId, group, tenant, gated, before, after } of changes) {
      if (after?.parked === 3 && before?.parked === 4) world.count("limit: blocked");
      if (after?.parked === 4 && before?.parked === 3) world.count("limit: unblocked");
      const scopes = gated === 1 ? [group, tenantScope(tenant)] : [];
      for (const scope of scopes) {
        if (scope === null) continue;
        const ids = held.get(scope) ?? new Set();
        if (after?.status === "claimed") ids.add(taskId);
        else ids.delete(taskId);
        held.set(scope, ids);
      }
    }
    for (const [scope, ids] of held) {
      const limit = scope.startsWith("key/") ? defaultKeyLimit : tenantLimits.get(scope);
      if (limit === undefined || ids.size <= limit) continue;
      world.violate("limit", `${ids.size} of ${scope} are claimed, and ${limit} may be`);
    }
  };
}
