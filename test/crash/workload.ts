import type { EnqueueOptions, Flotilla } from "flotilla";
import { between, fraction, type Random } from "../../src/base/random.ts";
import { pauseFor } from "./until.ts";
import { dueKey } from "./handlers.ts";
import type { History } from "./history.ts";
import { monotonicMs } from "./ledger.ts";
import { newName } from "./nemesis.ts";

type Order = { name: string; input: object; options: EnqueueOptions; next?: "cancel" | "wait" };

/** What producers know by now. */
export type Knowledge = { deployed: boolean };

/**
 * One order of the mixture: mostly short and good, with some of everything that is neither. `recent` are
 * tasks that were stored a moment ago.
 */
function nextOrder(random: Random, { deployed }: Knowledge, recent: readonly string[]): Order {
  const kind = fraction(random);
  const order = (input: object, rest: Partial<Order> = {}): Order => ({
    name: "work",
    input,
    options: {},
    ...rest,
  });
  if (kind < 0.04) return order({ ms: between(random, 200, 600) });
  if (kind < 0.12) return order({ ms: between(random, 1, 30) });
  if (kind < 0.17) return order({ ms: 0, failures: 1 });
  if (kind < 0.18) return order({ ms: 0, failures: 99 });
  if (kind < 0.23) return order({ ms: 0 }, { options: { delayMs: between(random, 50, 1_500) } });
  if (kind < 0.27) return order({ ms: 0 }, { options: { key: `key-${between(random, 1, 100)}` } });
  if (kind < 0.29) return order({ ms: between(random, 1, 50) }, { name: "rare" });
  if (kind < 0.31) return order({ ms: between(random, 0, 1_500) }, { next: "cancel" });
  if (kind < 0.33) return order({ ms: between(random, 0, 100) }, { next: "wait" });
  if (kind < 0.4) return order({ ms: 0 }, { options: { priority: between(random, -5, 5) } });
  if (kind < 0.43 && deployed) return order({ ms: between(random, 0, 50) }, { name: newName });
  if (kind < 0.46 && recent.length > 1) {
    // What it waits for is also in its input, for the checkers that judge when it ran.
    const after = recent.slice(-2);
    return order({ ms: 0, after }, { options: { after, afterFailed: "run" } });
  }
  return order({ ms: 0 });
}

/** Enqueues so many tasks over so much time, whatever happens to the pods meanwhile. */
export async function produce(
  flotilla: Flotilla,
  history: History,
  random: Random,
  { count, overMs, known }: { count: number; overMs: number; known: Knowledge },
): Promise<void> {
  const tickMs = 20;
  const perTick = Math.ceil((count * tickMs) / overMs);
  const calls: Promise<unknown>[] = [];
  const recent: string[] = [];
  const one = async () => {
    const taskId = await place(flotilla, history, nextOrder(random, known, recent));
    if (taskId !== undefined) recent.push(taskId);
    if (recent.length > 10) recent.shift();
  };
  for (let made = 0; made < count; made += perTick) {
    const due = Math.min(perTick, count - made);
    for (let at = 0; at < due; at++) calls.push(one());
    await pauseFor(tickMs);
  }
  await Promise.all(calls);
}

/** Keeps pods busy for as long as they are tormented. */
export function keepBusy(flotilla: Flotilla, history: History, { pods }: { pods: number }) {
  let stopped = false;
  const work = async (): Promise<void> => {
    while (!stopped) {
      await place(flotilla, history, { name: "work", input: { ms: 400 }, options: {} });
      await pauseFor(160 / pods);
    }
  };
  const working = work();
  return {
    async stop(): Promise<void> {
      stopped = true;
      await working;
    },
  };
}

/** Begins a schedule that keeps itself going, however often it is begun. */
export async function beginSchedule(
  flotilla: Flotilla,
  { everyMs, forMs }: { everyMs: number; forMs: number },
): Promise<void> {
  const first = { at: 0, everyMs, untilMs: monotonicMs() + forMs };
  const begin = () => flotilla.enqueue("due", first, { key: dueKey(0) });
  await Promise.all(Array.from({ length: 8 }, begin));
}

/** A task that keeps its pod's event loop busy for so long. */
export async function block(flotilla: Flotilla, history: History, ms: number): Promise<void> {
  await place(flotilla, history, { name: "blocks", input: { ms }, options: {} });
}

async function place(
  flotilla: Flotilla,
  history: History,
  order: Order,
): Promise<string | undefined> {
  const { key, delayMs } = order.options;
  const enqueued = await history.note(
    {
      kind: "enqueue",
      ...(key !== undefined && { key }),
      ...(delayMs !== undefined && { delayMs }),
    },
    () => flotilla.enqueue(order.name, order.input, order.options),
    ({ taskId }) => [taskId],
  );
  if (!enqueued || !order.next) return enqueued?.taskId;
  const { taskId } = enqueued;
  const call = async () => {
    if (order.next === "cancel") return flotilla.tasks.cancel(taskId);
    return flotilla.waitFor(taskId, { timeoutMs: 60_000 });
  };
  await history.note({ kind: order.next }, call, () => [taskId]);
  return taskId;
}
