import type { Database } from "../store/database.ts";
import { readThrottle, readThrottles, type ThrottleView } from "../throttle/share/read.ts";
import type { TaskHandler } from "./task.ts";

/** The throttle that a pending task waits for, as the whole fleet sees it. */
export type HeldByThrottle = {
  readonly name: string;
  /** Null where the task's input says which: then the rest is of all keys together. */
  readonly key: string | null;
  /** How many calls all pods may have in flight at once, and have. */
  readonly limit: number;
  readonly inFlight: number;
  /** How many wait for a permit: calls of handlers that run, and tasks that aren't claimed for want of one. */
  readonly waiting: number;
  /** About how long they will wait; null where that isn't known. */
  readonly aboutMs: number | null;
};

/** Which throttle tasks of a name wait for. */
export type ThrottleOfName = { readonly name: string; readonly key: string | null };

/** What a pod says of its handlers' throttles, for whoever looks at their tasks. */
export function throttlesOf(handlers: Iterable<TaskHandler>): Record<string, ThrottleOfName> {
  const found: Record<string, ThrottleOfName> = {};
  for (const { name, throttle } of handlers) {
    // What pods don't share is known to each of them alone.
    if (!throttle || throttle.declared.settings.mode === "local") continue;
    const { declared, key } = throttle;
    found[name] = { name: declared.name, key: typeof key === "string" ? key : null };
  }
  return found;
}

/** What holds tasks of these names up, by name. Those whose throttle has permits aren't among them. */
export async function readHeld(
  database: Database,
  throttles: ReadonlyMap<string, ThrottleOfName>,
): Promise<ReadonlyMap<string, HeldByThrottle>> {
  const held = new Map<string, HeldByThrottle>();
  const known = new Map<string, Promise<HeldByThrottle | undefined>>();
  for (const [name, of] of throttles) {
    const at = JSON.stringify(of);
    const reading = known.get(at) ?? readOne(database, of);
    known.set(at, reading);
    const found = await reading;
    if (found) held.set(name, found);
  }
  return held;
}

async function readOne(
  database: Database,
  { name, key }: ThrottleOfName,
): Promise<HeldByThrottle | undefined> {
  const views =
    key === null
      ? await readThrottles(database, { after: { name, key: "" }, name })
      : [await readThrottle(database, { name, key })].filter((each) => each !== undefined);
  const waiting = sumOf(views, (each) => each.waiting);
  if (waiting === 0) return undefined;
  const abouts = views.flatMap((each) => aboutMs(each) ?? []);
  return {
    name,
    key,
    limit: sumOf(views, (each) => each.bound),
    inFlight: sumOf(views, (each) => each.inFlight),
    waiting,
    aboutMs: abouts.length === 0 ? null : Math.max(...abouts),
  };
}

/** As long as it takes until those before it have had their turn. */
function aboutMs({ bound, waiting, p95Ms, holdMs }: ThrottleView): number | undefined {
  if (waiting === 0 || bound < 1 || p95Ms === undefined) return undefined;
  return Math.ceil(Math.max(holdMs, ((waiting + 1) * p95Ms) / bound));
}

function sumOf(views: readonly ThrottleView[], of: (view: ThrottleView) => number): number {
  return views.reduce((sum, view) => sum + of(view), 0);
}
