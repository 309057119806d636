import process from "node:process";
import { type Command, Option } from "commander";
import { type ErrorCode, errorCodes, FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import { silentLogger } from "../base/log.ts";
import { trimEnd } from "../base/trim-end.ts";
import type { ConnectOptions, Flotilla } from "../runtime/connect.ts";
import type { AgentPage, AgentView, StoredAgents } from "../sessions/agents/stored-agents.ts";
import type { EntriesPage, SessionPage, SessionService, SessionView } from "../sessions/service.ts";
import { network } from "../throttles/fetch.ts";
import type { StoreFlags } from "./flags.ts";
import { loadStoreSettings } from "./settings.ts";

/**
 * Runs a command on the store. A command that looks or enqueues never makes a file and never changes
 * the schema: a wrong path must not become an empty store.
 */
export async function onStore<Result>(
  flags: StoreFlags,
  work: (flotilla: Flotilla) => Promise<Result>,
  options: Pick<ConnectOptions, "maxPayloadBytes" | "privateAgents"> = {},
): Promise<Result> {
  const { canBeWritten } = await import("../runtime/data-folder.ts");
  const { connect } = await import("../runtime/connect.ts");
  const { store, dataDir } = await loadStoreSettings(flags);
  await using flotilla = connect(store, {
    ...options,
    // Whoever only looks may be somebody who may not write there.
    dataDir: dataDir !== false && canBeWritten(dataDir) && dataDir,
    create: false,
    migrate: "check",
    // What is worth saying the command says itself.
    log: silentLogger,
  });
  return await work(flotilla);
}

/** Commands that can go through a server instead of the store. */
export type UrlFlags = { url?: string; tenant?: string };

export function withUrl(command: Command): Command {
  const option = new Option(
    "--url <url>",
    "go through this server, with FLOTILLA_API_KEY where it needs a key or a token",
  );
  return command.addOption(option.env("FLOTILLA_URL")).hook("preAction", (_, action) => {
    const from = (name: string) => action.getOptionValueSource(name);
    const typed = ["store", "config"].find((name) => from(name) === "cli");
    if (typed !== undefined && from("url") === "cli") {
      throw new FlotillaError("invalid_option", `give --url or --${typed}, not both`);
    }
    // Whoever names a store or a config means that one, whatever else is set.
    const isUnset = typed !== undefined || action.getOptionValue("url") === "";
    if (isUnset && from("url") === "env") action.setOptionValue("url", undefined);
  });
}

/** A server, as requests reach it. */
export type Server = {
  request(method: string, path: string, init?: RequestInit): Promise<Response>;
  json<Body>(method: string, path: string, body?: unknown): Promise<Body>;
};

/** A key of the server, or a user's token. */
export function serverKey(): string | undefined {
  return process.env["FLOTILLA_API_KEY"] || undefined;
}

/** `user` and `tenant` are whom a key acts for; a token says itself who it is of. */
export function openServer(
  url: string,
  { user, tenant }: { user?: string | undefined; tenant?: string | undefined } = {},
): Server {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new FlotillaError("invalid_option", "--url must be a URL, as http://localhost:8080");
  }
  const base = trimEnd(url, (char) => char === "/");
  const key = serverKey();
  const headers = {
    ...(key !== undefined && { Authorization: `Bearer ${key}` }),
    ...(user !== undefined && { "Flotilla-User": encodeURIComponent(user) }),
    ...(tenant !== undefined && { "Flotilla-Tenant": encodeURIComponent(tenant) }),
  };

  const request: Server["request"] = async (method, path, init = {}) => {
    let answer: Response;
    try {
      answer = await network(`${base}/v1/${path}`, {
        ...init,
        method,
        redirect: "error",
        headers: { ...headers, ...(init.body != null && { "Content-Type": "application/json" }) },
      });
    } catch (error) {
      const message = `the server can't be reached: ${causeOf(error)}`;
      throw new FlotillaError(unanswered(method), message, { cause: error });
    }
    if (!answer.ok) throw await refusalOf(method, answer);
    return answer;
  };

  return {
    request,
    async json(method, path, body) {
      const sent = body === undefined ? {} : { body: JSON.stringify(body) };
      const answer = await request(method, path, sent);
      try {
        return (await answer.json()) as never;
      } catch (error) {
        const message = "the server's answer was cut off, or isn't one of Flotilla's";
        throw new FlotillaError(unanswered(method), message, { cause: error });
      }
    },
  };
}

/** A query of what was given, with its question mark. */
export function queryOf(given: Readonly<Record<string, string | number | undefined>>): string {
  const all = Object.entries(given).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  return all.length === 0 ? "" : `?${new URLSearchParams(all).toString()}`;
}

/** Where the server's own answer is missing, what isn't a read may have been done. */
function unanswered(method: string): ErrorCode {
  return method === "GET" ? "unavailable" : "unknown_outcome";
}

async function refusalOf(method: string, answer: Response): Promise<FlotillaError> {
  try {
    return errorFromBody(((await answer.json()) as { error: object }).error);
  } catch {
    const { status } = answer;
    const message = `the server answered ${status}, and not as Flotilla does`;
    if (status >= 500) return new FlotillaError(unanswered(method), message);
    return new FlotillaError(status === 429 ? "unavailable" : "unsupported", message);
  }
}

/** An error as servers tell it. The code of a newer one may be none that is known here. */
export function errorFromBody(body: object): FlotillaError {
  const { code, message, details } = body as {
    code?: ErrorCode;
    message?: unknown;
    details?: Record<string, unknown>;
  };
  const known = errorCodes.find((each) => each === code) ?? "unavailable";
  return new FlotillaError(known, String(message), details ? { details } : {});
}

/** `fetch` says what really happened one level down. */
export function causeOf(error: unknown): string {
  return messageOf(error instanceof Error && error.cause ? error.cause : error, 200);
}

/** Sessions and agents as commands look after them: straight from the store, or through a server. */

type TargetFlags = { readonly [Flag in keyof (StoreFlags & UrlFlags)]?: string | undefined };

/** Whose they are, where nobody says it: no flag, no key and no token. */
export const defaultTenant = "default";

export type SessionAdmin = Pick<
  SessionService,
  "list" | "get" | "entries" | "stop" | "archive" | "unarchive" | "remove"
>;

export async function onSessions<Result>(
  { url, tenant, ...flags }: TargetFlags,
  work: (sessions: SessionAdmin, tenant: string) => Promise<Result>,
): Promise<Result> {
  const whose = tenant ?? defaultTenant;
  if (url !== undefined) return work(sessionsOf(openServer(url, { tenant })), whose);
  return onStore(storeOf(flags), ({ sessionService }) => work(sessionService, whose));
}

export async function onAgents<Result>(
  { url, tenant, ...flags }: TargetFlags,
  work: (agents: StoredAgents, tenant: string) => Promise<Result>,
  options: { privateAgents?: boolean } = {},
): Promise<Result> {
  const whose = tenant ?? defaultTenant;
  if (url !== undefined) return work(agentsOf(openServer(url, { tenant })), whose);
  return onStore(storeOf(flags), ({ agents }) => work(agents, whose), options);
}

function storeOf({ config, store }: TargetFlags): StoreFlags {
  return { ...(config && { config }), ...(store && { store }) };
}

/** The tenant is what the key or the token says, and the header of a key that is of none. */
function sessionsOf({ json }: Server): SessionAdmin {
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

async function ifFound<Found>(request: Promise<Found>): Promise<Found | undefined> {
  try {
    return await request;
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}
