import { hasCode } from "../base/errors.ts";
import type { AgentPage, AgentView, StoredAgents } from "../sessions/agents/stored-agents.ts";
import type { EntriesPage, SessionPage, SessionService, SessionView } from "../sessions/service.ts";
import { onStore } from "./connect.ts";
import type { StoreFlags } from "./flags.ts";
import { openServer, queryOf, type Server, type UrlFlags } from "./server.ts";

/** Sessions and agents as commands look after them: straight from the store, or through a server. */

type Place = { readonly [Flag in keyof (StoreFlags & UrlFlags)]?: string | undefined };

/** Whose they are, where nobody says it: no flag, no key and no token. */
export const usualTenant = "default";

export type Sessions = Pick<
  SessionService,
  "list" | "get" | "entries" | "stop" | "archive" | "unarchive" | "remove"
>;

export async function onSessions<Result>(
  { url, tenant, ...flags }: Place,
  work: (sessions: Sessions, tenant: string) => Promise<Result>,
): Promise<Result> {
  const whose = tenant ?? usualTenant;
  if (url !== undefined) return work(sessionsOf(openServer(url, { tenant })), whose);
  return onStore(storeOf(flags), ({ sessionService }) => work(sessionService, whose));
}

export async function onAgents<Result>(
  { url, tenant, ...flags }: Place,
  work: (agents: StoredAgents, tenant: string) => Promise<Result>,
  options: { privateAgents?: boolean } = {},
): Promise<Result> {
  const whose = tenant ?? usualTenant;
  if (url !== undefined) return work(agentsOf(openServer(url, { tenant })), whose);
  return onStore(storeOf(flags), ({ agents }) => work(agents, whose), options);
}

function storeOf({ config, store }: Place): StoreFlags {
  return { ...(config && { config }), ...(store && { store }) };
}

/** The tenant is what the key or the token says, and the header of a key that is of none. */
function sessionsOf({ json }: Server): Sessions {
  const at = (sessionId: string) => `sessions/${encodeURIComponent(sessionId)}`;
  return {
    // Whose sessions a caller may see, the server knows by the token.
    list: (_, { only: __, ...options }) => json<SessionPage>("GET", `sessions${queryOf(options)}`),
    get: (_, sessionId) => json<SessionView>("GET", at(sessionId)),
    entries: (_, sessionId, page) =>
      json<EntriesPage>("GET", `${at(sessionId)}/messages${queryOf(page)}`),
    async stop(_, sessionId) {
      return (await json<{ done: boolean }>("POST", `${at(sessionId)}/stop`)).done;
    },
    async archive(_, sessionId) {
      await json("POST", `${at(sessionId)}/archive`);
    },
    async unarchive(_, sessionId) {
      await json("POST", `${at(sessionId)}/unarchive`);
    },
    async remove(_, sessionId) {
      await json("DELETE", at(sessionId));
    },
  };
}

function agentsOf({ json }: Server): StoredAgents {
  type Shown = { agent: AgentView };
  const at = (name: string) => `agents/${encodeURIComponent(name)}`;
  return {
    list: (_, options = {}) => json<AgentPage>("GET", `agents${queryOf(options)}`),
    async get(_, name) {
      const found = await ifFound(json<Shown>("GET", at(name)));
      return found?.agent;
    },
    async create(_, name, given) {
      return (await json<Shown>("POST", "agents", { name, ...given })).agent;
    },
    async replace(_, name, given) {
      return (await json<Shown>("PUT", at(name), given)).agent;
    },
    async remove(_, name) {
      return (await ifFound(json("DELETE", at(name)))) !== undefined;
    },
  };
}

async function ifFound<Found>(asked: Promise<Found>): Promise<Found | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}
