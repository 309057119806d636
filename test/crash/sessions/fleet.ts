import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Entry } from "../../../src/protocol/message.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import { freePort } from "../../free-ports.ts";
import type { Fleet, StartOptions } from "../fleet.ts";
import type { PodProcess } from "../pod-handle.ts";
import type { SessionEvidence, StoredSession } from "./evidence.ts";
import { type Client, type ClientOptions, createClient } from "./client.ts";
import { createSessionHistory, type SessionHistory, shown } from "./history.ts";
import type { ServerGiven } from "./server-process.ts";
import { type Call, readCalls } from "./script.ts";
import { until } from "../until.ts";

/** Servers with pods, as processes on one store, and clients that talk to them over sockets. */
export type SessionFleet = Fleet & {
  readonly history: SessionHistory;
  /** Those that were started and not ended by the test. */
  readonly servers: ServerProcess[];
  startServer(options?: ServerOptions): Promise<ServerProcess>;
  /** An agent behind a URL, in a process of its own; servers that start after it know it as `remote`. */
  startAgent(host?: string): Promise<PodProcess>;
  /** A client that connects to any server, unless `pick` says to which. */
  client(name: string, options?: Partial<ClientOptions>): Client;
  open(session: string, agent: string | null): Promise<void>;
  /** The pod that owns the log of a session, by the store. */
  ownerOf(session: string): Promise<string | null>;
  owners(): Promise<(string | null)[]>;
  serverOf(podId: string | null): ServerProcess | undefined;
  stored(): Promise<StoredSession[]>;
  /** Lines that servers logged with this message. */
  logged(message: string): Logged[];
  calls(session?: string): Call[];
  idle(limitMs?: number): Promise<void>;
  /** Reads everything from everywhere, once all is quiet. */
  gather(): Promise<SessionEvidence>;
  /** Ends all clients. */
  hangUp(): void;
};

export type ServerProcess = PodProcess & { readonly url: string };
export type Logged = {
  readonly pod: string;
  readonly message: string;
  readonly level: string;
  readonly session?: string;
  readonly error?: string;
};

export type ServerOptions = {
  readonly agents?: boolean;
  readonly config?: object;
  /** The most answers of `remote` that pods want at once, all together. Default: as many as come. */
  readonly remoteMax?: number;
} & Pick<StartOptions, "store" | "env" | "under"> &
  Partial<Pick<ServerGiven, "host" | "apiKeys">>;

export type SessionFleetOptions = {
  /** The key that clients come with, where servers want one. */
  readonly key?: string;
};

export const users = ["ada", "bob", "cid", "dan", "eve", "fay"] as const;

const loopback = "127.0.0.1";
const script = (name: string) => fileURLToPath(new URL(name, import.meta.url));

export function sessionFleetOn(fleet: Fleet, { key }: SessionFleetOptions = {}): SessionFleet {
  const history = createSessionHistory(join(fleet.folder, "history.jsonl"));
  const servers: ServerProcess[] = [];
  const clients: Client[] = [];
  let agentUrl: string | undefined;
  let picked = 0;
  const anyServer = () => servers[picked++ % Math.max(1, servers.length)]?.url;

  const openClient: SessionFleet["client"] = (name, options) => {
    const label = `${name}.${clients.length}`;
    const client = createClient({ name, label, key, history, pick: anyServer, ...options });
    clients.push(client);
    return client;
  };

  /** In one statement: rows of another moment would belong to another state of a session. */
  const stored = async (): Promise<StoredSession[]> => {
    const rows = await fleet.sql(
      `select own.session_id as of_session, own.agent as of_agent, own.state as of_state,
        own.last_seq as of_last_seq, own.header as of_header, entry.*
      from flotilla_session own left join flotilla_message entry on entry.session_id = own.session_id
      order by own.session_id, entry.seq`,
    );
    const bySession = Map.groupBy(rows, (row) => row["of_session"] as string);
    return [...bySession].map(([session, all]) => {
      const row = all[0]!;
      const header = JSON.parse(row["of_header"]) as Header;
      const { lastSeq, pending, work } = header;
      const entries = all.filter(({ seq }) => seq !== null);
      return {
        session,
        agent: row["of_agent"],
        state: row["of_state"],
        lastSeq: Number(row["of_last_seq"]),
        header: { lastSeq, pending: pending.length, busy: work !== null },
        entries: entries.map((each) => ({
          ...shown(entryOf(each)),
          clientId: each["client_id"],
        })),
      };
    });
  };

  const owners = async () => {
    const heads = await fleet.sql("select owner from flotilla_session_log order by log_id");
    return heads.map((row) => row["owner"] as string | null);
  };

  const readFrom = async ({ url }: ServerProcess, all: readonly StoredSession[]) => {
    const reader = createClient({
      name: users[0],
      key,
      history: { events: [], note: () => {} },
      pick: () => url,
    });
    for (const { session } of all) reader.follow(session);
    const reads = await readOf(reader, url, all);
    reader.close();
    return reads;
  };

  /** What a client has of the sessions that it follows, once it has as much as is stored. */
  const readOf = async (client: Client, reader: string, all: readonly StoredSession[]) => {
    const followed = all.filter(({ session }) => client.follows.includes(session));
    const hasAll = () =>
      followed.every(({ session, entries }) => client.entries(session).length >= entries.length);
    // What isn't there by then is a violation that the checkers name.
    await until(`${reader} has everything`, hasAll).catch(() => {});
    return followed.map(({ session }) => ({ reader, session, entries: client.entries(session) }));
  };

  const idle = (limitMs = 90_000) =>
    until(
      "all sessions are idle",
      async () => {
        const busy = await fleet.sql(
          "select count(*) as busy from flotilla_session where state <> 'idle'",
        );
        return Number(busy[0]!["busy"]) === 0;
      },
      limitMs,
    ).then(() => {});

  /** Where logs are ahead of the store, it may say that all is idle as it was before the last messages. */
  const settled = () =>
    until("all that was acked is stored", async () => {
      const rows = await fleet.sql("select session_id, last_seq from flotilla_session");
      const ends = new Map(rows.map((row) => [row["session_id"], Number(row["last_seq"])]));
      const acked = history.events.filter((event) => event.type === "ok");
      // One that isn't there is a violation that the checkers name.
      return acked.every(({ session, seq }) => (ends.get(session) ?? Infinity) >= seq);
    });

  return {
    ...fleet,
    history,
    servers,
    async startServer(options = {}) {
      const { agents = true, config = {}, host = loopback, apiKeys = [], remoteMax } = options;
      const { store, env, under } = options;
      const port = await freePort();
      const given: ServerGiven = {
        host,
        port,
        apiKeys,
        agents,
        ...(agentUrl !== undefined && { agentUrl }),
        ...(remoteMax !== undefined && { remoteMax }),
      };
      const pod = await fleet.start({
        script: script("./server-process.ts"),
        config,
        given,
        ...(store !== undefined && { store }),
        ...(env && { env }),
        ...(under && { under }),
      });
      const server = Object.assign(pod, { url: `http://${host}:${port}` });
      servers.push(server);
      void pod.exited.then(() => servers.splice(servers.indexOf(server), 1));
      return server;
    },
    async startAgent(host = loopback) {
      const port = await freePort();
      const agent = await fleet.start({
        script: script("./agent-process.ts"),
        given: { host, port },
      });
      agentUrl = `http://${host}:${port}/`;
      return agent;
    },
    client: openClient,
    async open(session, agent) {
      await fleet.flotilla.sessions.create(agent, { sessionId: session, users: [...users] });
    },
    owners,
    async ownerOf(session) {
      const [row] = await fleet.sql(
        `select owner from flotilla_session_log head
        join flotilla_session own on own.log_id = head.log_id where own.session_id = ?`,
        session,
      );
      return (row?.["owner"] as string | undefined) ?? null;
    },
    serverOf: (podId) => servers.find((each) => each.podId === podId),
    stored,
    logged(message) {
      const files = readdirSync(fleet.folder).filter((name) => name.endsWith(".log"));
      return files.flatMap((name) => {
        const lines = readFileSync(join(fleet.folder, name), "utf8").split("\n").slice(0, -1);
        const all = lines.map((line) => JSON.parse(line) as Logged);
        return all.filter((each) => each.message === message);
      });
    },
    calls: (session) =>
      readCalls(fleet.folder).filter((call) => session === undefined || call.session === session),
    idle,
    async gather() {
      // What isn't idle by then is a violation that the checkers name, and so is what isn't stored.
      await settled().catch(() => {});
      await idle().catch(() => {});
      const all = await stored();
      const reads = await Promise.all([
        ...servers.map((server) => readFrom(server, all)),
        ...clients.filter((each) => !each.isClosed).map((each) => readOf(each, each.name, all)),
      ]);
      return { history: history.events, stored: all, reads: reads.flat() };
    },
    hangUp() {
      for (const each of clients) each.close();
    },
    async close(options) {
      for (const each of clients) each.close();
      await fleet.close(options);
    },
  };
}

function entryOf(row: Record<string, any>): Entry {
  const body = JSON.parse(row["body"]) as Pick<Entry, "parts" | "tokens">;
  return {
    seq: Number(row["seq"]),
    kind: row["kind"],
    role: row["role"],
    author: row["author"],
    messageId: row["message_id"],
    atMs: Number(row["at"]),
    ...body,
  };
}
