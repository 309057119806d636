import { livePods } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { AgentFacts } from "../conversation/command.ts";

/** The agents that live pods have in code, as they say. What can't be read says nothing. */
export async function agentsInCode(database: Database): Promise<Map<string, AgentFacts>> {
  const found = new Map<string, AgentFacts>();
  for (const row of await database.read(livePods())) {
    for (const [name, facts] of Object.entries(agentsIn(row["metadata"]))) {
      if (isFacts(facts)) found.set(name, facts);
    }
  }
  return found;
}

function agentsIn(metadata: string): Record<string, unknown> {
  try {
    const { sessions } = JSON.parse(metadata) as { sessions?: { agents?: unknown } };
    const agents = sessions?.agents;
    return typeof agents === "object" && agents !== null ? (agents as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function isFacts(given: unknown): given is AgentFacts {
  const { during, attempts } = (given ?? {}) as Partial<AgentFacts>;
  return typeof during === "string" && typeof attempts === "number";
}
