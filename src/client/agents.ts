import type { Http } from "./http.ts";
import type { AgentView } from "./views.ts";
import type { PageOptions } from "./calls.ts";

export type AgentCalls = {
  /** A page, in the order of their names. */
  list(options?: PageOptions): Promise<AgentPage>;
};

export type AgentPage = { readonly agents: readonly AgentView[]; readonly next: string | null };

export function agentCalls(http: Http): AgentCalls {
  return { list: (query = {}) => http("GET", "/v1/agents", { query }) };
}
