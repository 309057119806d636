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

/** Flags of commands that can use a server instead of the store. */
export type UrlFlags = { url?: string; tenant?: string };

/** An HTTP client of a server. */
export type Server = {
  request(method: string, path: string, init?: RequestInit): Promise<Response>;
  json<Body>(method: string, path: string, body?: unknown): Promise<Body>;
};

export type SessionAdmin = Pick<
  SessionService,
  "list" | "get" | "entries" | "stop" | "archive" | "unarchive" | "remove"
>;

type TargetFlags = { readonly [Flag in keyof (StoreFlags & UrlFlags)]?: string | undefined };

/** The tenant where no flag, key or token names one. */
export const defaultTenant = "default";

/**
 * Runs a command on the store. It never creates a file and never changes the schema: a wrong path must
 * not become an empty store.
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
    // A user who only reads may not have write permission there.
    dataDir: dataDir !== false && canBeWritten(dataDir) && dataDir,
    create: false,
    migrate: "check",
    // The command reports errors itself.
    log: silentLogger,
  });
  return await work(flotilla);
}

export async function onSessions<Result>(
  { url, tenant, ...flags }: TargetFlags,
  work: (sessions: SessionAdmin, tenant: string) => Promise<Result>,
): Promise<Result> {
  const tenantOrDefault = tenant ?? defaultTenant;
  if (url !== undefined) return work(sessionsOf(openServer(url, { tenant })), tenantOrDefault);
  return onStore(storeOf(flags), ({ sessionService }) => work(sessionService, tenantOrDefault));
}

export async function onAgents<Result>(
  { url, tenant, ...flags }: TargetFlags,
  work: (agents: StoredAgents, tenant: string) => Promise<Result>,
  options: { privateAgents?: boolean } = {},
): Promise<Result> {
  const tenantOrDefault = tenant ?? defaultTenant;
  if (url !== undefined) return work(agentsOf(openServer(url, { tenant })), tenantOrDefault);
  return onStore(storeOf(flags), ({ agents }) => work(agents, tenantOrDefault), options);
}

export function withUrl(command: Command): Command {
  const option = new Option(
    "--url <url>",
    "use this server instead of the store, with FLOTILLA_API_KEY where it needs a key or a token",
  );
  return command.addOption(option.env("FLOTILLA_URL")).hook("preAction", (_, action) => {
    const from = (name: string) => action.getOptionValueSource(name);
    const typed = ["store", "config"].find((name) => from(name) === "cli");
    if (typed !== undefined && from("url") === "cli") {
      throw new FlotillaError("invalid_option", `give --url or --${typed}, not both`);
    }
    // A store or a config on the command line overrides FLOTILLA_URL.
    const isUnset = typed !== undefined || action.getOptionValue("url") === "";
    if (isUnset && from("url") === "env") action.setOptionValue("url", undefined);
  });
}

/** A key of the server, or a user's token. */
export function serverKey(): string | undefined {
  return process.env["FLOTILLA_API_KEY"] || undefined;
}

/** `user` and `tenant` are those that a key acts for; a token determines its own. */
export function openServer(
  url: string,
  { user, tenant }: { user?: string | undefined; tenant?: string | undefined } = {},
): Server {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new FlotillaError(
      "invalid_option",
      "--url must be an http or https URL, such as http://localhost:8080",
    );
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
        const message = "the server's answer was cut off, or isn't from Flotilla";
        throw new FlotillaError(unanswered(method), message, { cause: error });
      }
    },
  };
}

/** A query string with its question mark; leaves out undefined values. */
export function queryOf(fields: Readonly<Record<string, string | number | undefined>>): string {
  const all = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  return all.length === 0 ? "" : `?${new URLSearchParams(all).toString()}`;
}

/** The error of a server's answer. A newer server may send a code that this release doesn't know. */
export function errorFromBody(body: object): FlotillaError {
  const { code, message, details } = body as {
    code?: ErrorCode;
    message?: unknown;
    details?: Record<string, unknown>;
  };
  const known = errorCodes.find((each) => each === code) ?? "unavailable";
  return new FlotillaError(known, String(message), details ? { details } : {});
}

/** `fetch` has the real error in its cause. */
export function causeOf(error: unknown): string {
  return messageOf(error instanceof Error && error.cause ? error.cause : error, 200);
}

/** Without an answer of the server, a change may or may not have been made. */
function unanswered(method: string): ErrorCode {
  return method === "GET" ? "unavailable" : "unknown_outcome";
}

async function refusalOf(method: string, answer: Response): Promise<FlotillaError> {
  try {
    return errorFromBody(((await answer.json()) as { error: object }).error);
  } catch {
    const { status } = answer;
    const message = `the server answered ${status} without an error of Flotilla: check --url`;
    if (status >= 500) return new FlotillaError(unanswered(method), message);
    return new FlotillaError(status === 429 ? "unavailable" : "unsupported", message);
  }
}

function storeOf({ config, store }: TargetFlags): StoreFlags {
  return { ...(config && { config }), ...(store && { store }) };
}

/** The key or the token determines the tenant; a key of no tenant uses the header. */
function sessionsOf({ json }: Server): SessionAdmin {
  const at = (sessionId: string) => `sessions/${encodeURIComponent(sessionId)}`;
  return {
    // The server decides by the token which sessions a caller may see.
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
    async create(_, name, fields) {
      return (await json<Shown>("POST", "agents", { name, ...fields })).agent;
    },
    async replace(_, name, fields) {
      return (await json<Shown>("PUT", at(name), fields)).agent;
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
