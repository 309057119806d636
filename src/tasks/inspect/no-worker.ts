import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import { readNoWorker } from "./blocked-by.ts";

// Pods come and go, and a name that was looked at is looked at again; but enqueueing must stay as cheap
// as it is.
const againMs = 60_000;
const namesMost = 1_000;

/**
 * Looks, beside what is enqueued, whether a pod that is up works on such tasks. A slip in a name would
 * otherwise show only by nothing happening.
 */
export function createNoWorkerLook({
  database,
  clock,
  onNoWorker,
}: {
  database: Database;
  clock: Clock;
  onNoWorker: (name: string) => void;
}): (names: ReadonlySet<string>) => void {
  const lookedMs = new Map<string, number>();
  return (names) => {
    const nowMs = clock.monotonic();
    const unseen = [...names].filter(
      (name) => nowMs - (lookedMs.get(name) ?? -Infinity) >= againMs,
    );
    if (unseen.length === 0) return;
    if (lookedMs.size + unseen.length > namesMost) lookedMs.clear();
    const looked = unseen.slice(0, namesMost);
    for (const name of looked) lookedMs.set(name, nowMs);
    void readNoWorker(database, looked).then(
      (found) => found.forEach(onNoWorker),
      // The store is away, which the caller of enqueue is told of anyway.
      () => looked.forEach((name) => lookedMs.delete(name)),
    );
  };
}

export function noWorkerWarning(name: string): string {
  return `no pod that is up works on "${name}": its tasks wait until one does`;
}
