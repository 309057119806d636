import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { livePods } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { AgentFacts } from "../conversation/command.ts";

/** The live pods that serve sessions, and the agents they have. Read from the store once a second. */
export type Fleet = {
  /** Pods that serve sessions, each with how long it has been known, in ms. */
  pods(): ReadonlyMap<string, number>;
  /** Pods that define this agent in code. */
  withAgent(name: string): readonly string[];
  factsOf(name: string): AgentFacts | undefined;
  refresh(): Promise<void>;
  start(): void;
  close(): void;
};

/** The part of a pod's metadata that concerns sessions. */
export type PodSessionInfo = { readonly agents: Readonly<Record<string, AgentFacts>> };

type Known = { readonly sinceMs: number; readonly agents: Readonly<Record<string, AgentFacts>> };

const refreshMs = 1_000;

export function createFleet(parts: { database: Database; clock: Clock; log: Logger }): Fleet {
  const { database, clock, log } = parts;
  let known: ReadonlyMap<string, Known> = new Map();
  let refreshing: Promise<void> | undefined;
  let cancel = () => {};
  let state: "idle" | "started" | "closed" = "idle";

  const read = async (): Promise<void> => {
    try {
      const rows = await database.read(livePods());
      const found = new Map<string, Known>();
      for (const row of rows) {
        const podId = row["pod_id"] as string;
        const reported = sessionsOf(row["metadata"]);
        if (!reported) continue;
        const sinceMs = known.get(podId)?.sinceMs ?? clock.monotonic();
        found.set(podId, { sinceMs, agents: reported.agents });
      }
      known = found;
    } catch (error) {
      log.debug({ error: messageOf(error) }, "reading live pods failed");
    } finally {
      refreshing = undefined;
    }
  };
  const refresh = () => (refreshing ??= read());
  const again = (): void => {
    void refresh().finally(() => {
      if (state === "started") cancel = clock.after(refreshMs, again);
    });
  };

  return {
    pods() {
      const nowMs = clock.monotonic();
      return new Map([...known].map(([podId, { sinceMs }]) => [podId, nowMs - sinceMs]));
    },
    withAgent: (name) =>
      [...known].filter(([, { agents }]) => Object.hasOwn(agents, name)).map(([podId]) => podId),
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
