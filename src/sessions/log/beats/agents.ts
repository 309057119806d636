import crypto from "node:crypto";
import type { AgentFacts, CompactionFacts } from "../../conversation/command.ts";

/** The agents that a pod has in its code, by their names. */
export type CodeAgents = Readonly<Record<string, AgentFacts>>;

/**
 * The agents of pods, by the hash that beats carry. Pods of one release have the same, so a set is asked for
 * once. What doesn't have the hash that it was asked for is dropped.
 */
export type AgentSets = {
  has(hash: string): boolean;
  get(hash: string): CodeAgents | undefined;
  /** Keeps a set. Returns whether it is the one with this hash. */
  add(hash: string, data: Uint8Array): boolean;
};

/** Pods of a few releases run at a time. The set that was added first is forgotten first. */
const maxSets = 64;
export const maxAgentsBytes = 1_024 * 1_024;
const maxAgents = 10_000;

/** The bytes by which a pod tells its agents. */
export function encodeAgents(agents: CodeAgents): { data: Uint8Array; hash: string } {
  const data = Buffer.from(JSON.stringify(agents));
  return { data, hash: hashOf(data) };
}

export function createAgentSets(): AgentSets {
  const sets = new Map<string, CodeAgents>();
  return {
    has: (hash) => sets.has(hash),
    get: (hash) => sets.get(hash),
    add(hash, data) {
      if (data.length > maxAgentsBytes || hashOf(data) !== hash) return false;
      const agents = decodeAgents(data);
      if (!agents) return false;
      sets.set(hash, agents);
      if (sets.size > maxSets) sets.delete(sets.keys().next().value!);
      return true;
    },
  };
}

function decodeAgents(data: Uint8Array): CodeAgents | undefined {
  let found: unknown;
  try {
    found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data)) as unknown;
  } catch {
    return undefined;
  }
  if (!isObject(found)) return undefined;
  const names = Object.keys(found);
  if (names.length > maxAgents || !names.every((name) => isFacts(found[name]))) return undefined;
  return found as CodeAgents;
}

function isFacts(found: unknown): found is AgentFacts {
  if (!isObject(found)) return false;
  const { during, steers, debounceMs, attempts, compaction } = found;
  return (
    (during === "queue" || during === "interrupt" || during === "merge") &&
    (steers === undefined || steers === true) &&
    (debounceMs === undefined || isPositive(debounceMs)) &&
    isPositive(attempts) &&
    (compaction === null || isCompaction(compaction))
  );
}

function isCompaction(found: unknown): found is CompactionFacts {
  if (!isObject(found)) return false;
  const { when, tokenBudget, triggerRatio } = found;
  return (
    (when === "auto" || when === "manual") && isPositive(tokenBudget) && isPositive(triggerRatio)
  );
}

function isPositive(found: unknown): boolean {
  return typeof found === "number" && Number.isFinite(found) && found >= 0;
}

function isObject(found: unknown): found is Record<string, unknown> {
  return typeof found === "object" && found !== null && !Array.isArray(found);
}

function hashOf(data: Uint8Array): string {
  return crypto.hash("sha256", data, "hex");
}
