import { isJsonObject } from "../base/json.ts";

/** What a pod stores of itself with every heartbeat, so that observers need not ask it. */
export type PodPulse = {
  /** Since its start: the tasks that it claimed, how attempts and runs ended, and chunks of answers. */
  readonly claimed: number;
  readonly ended: Readonly<Record<string, number>>;
  readonly chunks: number;
  /** How late its event loop was, at most, in the last second or so. */
  readonly lagMs: number;
  /** The memory of its process; null if that isn't known. */
  readonly memoryBytes: number | null;
  /** How many tasks and runs it holds. */
  readonly held: number;
  /** Since when it leads the fleet, by the store's clock; null if it doesn't. */
  readonly leadsSinceMs: number | null;
  /** Its calls in flight, of the throttles and keys that have the most. */
  readonly throttles: readonly PulsedThrottle[];
  /** The tasks that it has run for longest, with the store's time at which their handlers were called. */
  readonly running: readonly PulsedTask[];
  /** Of its logs of sessions on streams, those that the database is furthest behind. */
  readonly logs: readonly PulsedLog[];
};

export type PulsedThrottle = {
  readonly name: string;
  readonly key: string;
  readonly inFlight: number;
};

export type PulsedTask = { readonly taskId: string; readonly startedAtMs: number };

export type PulsedLog = {
  readonly logId: number;
  /** What the database doesn't have of it yet, and for how long the oldest of that has waited. */
  readonly bytes: number;
  readonly lagMs: number;
};

/** It is written every second by every pod, and read every second by those that watch. */
export const maxPulseBytes = 600;

/** How many throttles, tasks and logs are tried, the largest and the oldest first. */
export const maxPulsed = 5;

/** The stored form: as many throttles, tasks and logs as there is room for. */
export function encodePulse(pulse: PodPulse): string {
  const { throttles, running, logs, leadsSinceMs, ...counts } = pulse;
  const totals = { ...counts, ...(leadsSinceMs !== null && { leadsSinceMs }) };
  const listed: Record<"throttles" | "running" | "logs", unknown[]> = {
    throttles: [],
    running: [],
    logs: [],
  };
  let text = JSON.stringify({ ...totals, ...listed });
  const add = (list: unknown[], item: unknown): void => {
    if (item === undefined) return;
    list.push(item);
    const longer = JSON.stringify({ ...totals, ...listed });
    if (Buffer.byteLength(longer) <= maxPulseBytes) text = longer;
    else list.pop();
  };
  for (let at = 0; at < maxPulsed; at++) {
    const [throttle, task, log] = [throttles[at], running[at], logs[at]];
    add(listed.logs, log && [log.logId, log.bytes, log.lagMs]);
    add(listed.throttles, throttle && [throttle.name, throttle.key, throttle.inFlight]);
    add(listed.running, task && [task.taskId, task.startedAtMs]);
  }
  return text;
}

/** Reads the stored form. A row may hold anything, and listing pods must still work. */
export function parsePulse(stored: unknown): PodPulse | null {
  if (typeof stored !== "string") return null;
  let found: unknown;
  try {
    found = JSON.parse(stored);
  } catch {
    return null;
  }
  if (!isJsonObject(found)) return null;
  const { memoryBytes, ended, leadsSinceMs } = found;
  return {
    claimed: count(found["claimed"]),
    ended: Object.fromEntries(
      Object.entries(isJsonObject(ended) ? ended : {}).map(([outcome, of]) => [outcome, count(of)]),
    ),
    chunks: count(found["chunks"]),
    lagMs: count(found["lagMs"]),
    memoryBytes: typeof memoryBytes === "number" ? memoryBytes : null,
    held: count(found["held"]),
    leadsSinceMs: typeof leadsSinceMs === "number" ? leadsSinceMs : null,
    throttles: listOf(found["throttles"]).flatMap(([name, key, inFlight]) =>
      typeof name === "string" && typeof key === "string"
        ? [{ name, key, inFlight: count(inFlight) }]
        : [],
    ),
    running: listOf(found["running"]).flatMap(([taskId, startedAtMs]) =>
      typeof taskId === "string" && typeof startedAtMs === "number"
        ? [{ taskId, startedAtMs }]
        : [],
    ),
    logs: listOf(found["logs"]).flatMap(([logId, bytes, lagMs]) =>
      typeof logId === "number" ? [{ logId, bytes: count(bytes), lagMs: count(lagMs) }] : [],
    ),
  };
}

function count(value: unknown): number {
  return typeof value === "number" ? value : 0;
}

function listOf(value: unknown): unknown[][] {
  return Array.isArray(value) ? (value as unknown[]).filter((each) => Array.isArray(each)) : [];
}
