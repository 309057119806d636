import type { Json } from "../base/json.ts";
import type { Entry, SessionState, SessionView } from "../protocol/message.ts";
import type { Http } from "./http.ts";

export type SessionCalls = {
  /** Makes a session; again with the same id, gives what there is. */
  create(options?: CreateSessionOptions): Promise<SessionView>;
  get(sessionId: string): Promise<SessionView>;
  /** A page, the one that something happened in last first. */
  list(options?: ListSessionsOptions): Promise<SessionPage>;
  /** Closes it: it can be read, and nothing can be added. */
  archive(sessionId: string): Promise<void>;
  unarchive(sessionId: string): Promise<void>;
  /** Deletes it and all that was said in it, for good. */
  remove(sessionId: string): Promise<void>;
  setMetadata(
    sessionId: string,
    metadata: Json,
    options?: { ifVersion?: number },
  ): Promise<{ readonly metadataVersion: number }>;
  /** Changes who takes part. */
  members(sessionId: string, change: MembersChange): Promise<SessionView>;
  /** Entries after a place, in order. */
  entries(sessionId: string, options?: { after?: number; limit?: number }): Promise<EntryPage>;
  /** Has what was said summed up; whether that has begun. */
  compact(sessionId: string): Promise<boolean>;
};

export type CreateSessionOptions = {
  /** Who answers; the first where a message names none. */
  agents?: readonly string[];
  /** The same, of one. */
  agent?: string;
  /** Default: a fresh one. */
  sessionId?: string;
  users?: readonly string[];
  metadata?: Json;
};

export type ListSessionsOptions = PageOptions & {
  user?: string;
  agent?: string;
  status?: "active" | "archived";
  state?: SessionState["state"];
};

export type PageOptions = {
  /** How many at most. Default 50. */
  limit?: number;
  /** The `next` of the page before. */
  cursor?: string;
};

export type SessionPage = {
  readonly sessions: readonly SessionView[];
  readonly next: string | null;
};

export type MembersChange = {
  addUsers?: readonly string[];
  removeUsers?: readonly string[];
  /** All of them, in order. */
  agents?: readonly string[];
};

export type EntryPage = {
  readonly entries: readonly Entry[];
  /** The `after` of the page that follows; null where these are the last. */
  readonly next: number | null;
  readonly lastSeq: number;
  readonly incarnation: string;
};

/** `onMade`: the session is there from now on, whatever was known of it before. */
export function sessionCalls(http: Http, onMade: (sessionId: string) => void): SessionCalls {
  const at = (sessionId: string) => `/v1/sessions/${encodeURIComponent(sessionId)}`;
  return {
    async create({ agent, agents, ...rest } = {}) {
      const body = { ...rest, agents: agents ?? (agent === undefined ? agent : [agent]) };
      const made = await http<SessionView>("POST", "/v1/sessions", { body });
      onMade(made.sessionId);
      return made;
    },
    get: (sessionId) => http("GET", at(sessionId)),
    list: (query = {}) => http("GET", "/v1/sessions", { query }),
    async archive(sessionId) {
      await http("POST", `${at(sessionId)}/archive`);
    },
    async unarchive(sessionId) {
      await http("POST", `${at(sessionId)}/unarchive`);
    },
    async remove(sessionId) {
      await http("DELETE", at(sessionId));
    },
    setMetadata: (sessionId, metadata, { ifVersion } = {}) =>
      http("PUT", `${at(sessionId)}/metadata`, { body: { metadata, ifVersion } }),
    members: (sessionId, body) => http("PUT", `${at(sessionId)}/members`, { body }),
    entries: (sessionId, query = {}) => http("GET", `${at(sessionId)}/messages`, { query }),
    async compact(sessionId) {
      return (await http<{ done: boolean }>("POST", `${at(sessionId)}/compact`)).done;
    },
  };
}
