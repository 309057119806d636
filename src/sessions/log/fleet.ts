import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { livePods } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { AgentFacts } from "../conversation/command.ts";

/**
 * The live pods that serve sessions, and the agents they have. Read from the store once a second, or, where
 * the pods are known that the heartbeat sees, when those have changed.
 */
export type Fleet = {
  /** Pods that serve sessions and don't drain, each with how long it has been known, in ms. */
  pods(): ReadonlyMap<string, number>;
  /** Those of them that define this agent in code. */
  withAgent(name: string): readonly string[];
  factsOf(name: string): AgentFacts | undefined;
  refresh(): Promise<void>;
  start(): void;
  close(): void;
};

/** The part of a pod's metadata that concerns sessions. */
export type PodSessionInfo = { readonly agents: Readonly<Record<string, AgentFacts>> };

type Known = PodSessionInfo & { readonly sinceMs: number; readonly drains: boolean };

type FleetParts = {
  database: Database;
  clock: Clock;
  log: Logger;
  /** The pods that the last heartbeat has seen, as text. */
  seen?: (() => string) | undefined;
};

const refreshMs = 1_000;
const lookMs = 250;
// Pods that the heartbeat sees have their metadata from their start on. This is in case of a mistake.
const maxAgeMs = 30_000;

export function createFleet(parts: FleetParts): Fleet {
  const { database, clock, log, seen } = parts;
  /** The pods of the last read, and when it was. */
  let readFor: string | undefined;
  let readMs = -Infinity;
  let known: ReadonlyMap<string, Known> = new Map();
  let refreshing: Promise<void> | undefined;
  let cancel = () => {};
  let state: "idle" | "started" | "closed" = "idle";

  const read = async (): Promise<void> => {
    const podsSeen = seen?.();
    try {
      const rows = await database.read(livePods());
      readFor = podsSeen;
      readMs = clock.monotonic();
      const found = new Map<string, Known>();
      for (const row of rows) {
        const podId = row["pod_id"] as string;
        const reported = sessionsOf(row["metadata"]);
        if (!reported) continue;
        const sinceMs = known.get(podId)?.sinceMs ?? clock.monotonic();
        const drains = Number(row["drain"]) === 1;
        found.set(podId, { sinceMs, drains, agents: reported.agents });
      }
      known = found;
    } catch (error) {
      log.debug({ error: messageOf(error) }, "reading live pods failed");
    } finally {
      refreshing = undefined;
    }
  };
  const refresh = () => (refreshing ??= read());
  const working = () => [...known].filter(([, { drains }]) => !drains);
  const isCurrent = () =>
    seen !== undefined && readFor === seen() && clock.monotonic() - readMs < maxAgeMs;
  const again = (): void => {
    void (isCurrent() ? Promise.resolve() : refresh()).finally(() => {
      if (state === "started") cancel = clock.after(seen ? lookMs : refreshMs, again);
    });
  };

  return {
    pods() {
      const nowMs = clock.monotonic();
      return new Map(working().map(([podId, { sinceMs }]) => [podId, nowMs - sinceMs]));
    },
    withAgent: (name) =>
      working()
        .filter(([, { agents }]) => Object.hasOwn(agents, name))
        .map(([podId]) => podId),
    factsOf(name) {
      for (const { agents } of known.values()) {
        if (Object.hasOwn(agents, name)) return agents[name];
      }
      return undefined;
    },
    refresh,
    start() {
      if (state !== "idle") return;
      state = "started";
      again();
    },
    close() {
      state = "closed";
      cancel();
    },
  };
}

/** A row may hold anything, including metadata of a later release. */
function sessionsOf(metadata: unknown): PodSessionInfo | undefined {
  try {
    const { sessions } = JSON.parse(String(metadata)) as { sessions?: PodSessionInfo };
    return typeof sessions?.agents === "object" && sessions.agents !== null ? sessions : undefined;
  } catch {
    return undefined;
  }
}
