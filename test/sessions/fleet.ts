import { silentLogger } from "../../src/base/log.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import type { Entry } from "../../src/protocol/message.ts";
import type { Pod } from "../../src/runtime/pod.ts";
import { connect, type Flotilla } from "../../src/runtime/connect.ts";
import type { Usable } from "../../src/runtime/handlers.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import type { Chat, Sessions } from "../../src/sessions/sessions.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";
import { type NatsServer, startNats } from "../nats/server.ts";

export type SessionStore = {
  readonly name: string;
  open(): Promise<{
    readonly url: string;
    readonly nats?: NatsConfig;
    readonly server?: NatsServer;
    remove(): Promise<void>;
  }>;
};

export const stores: readonly SessionStore[] = [
  {
    name: "one SQLite file",
    async open() {
      const { path, remove } = temporaryFile();
      return { url: `sqlite:${path}`, remove };
    },
  },
  { name: "Postgres", open: () => temporaryDatabase() },
];

/** Envelopes and notifications go through NATS. */
export const postgresWithNats: SessionStore = {
  name: "Postgres with NATS",
  async open() {
    const server = await startNats();
    const { url, remove } = await temporaryDatabase();
    return {
      url,
      server,
      nats: { servers: server.url },
      async remove() {
        await remove();
        await server.stop();
      },
    };
  },
};

/** Two pods, of which one has the agents, and a program that is none, on one store. */
export type SessionFleet = {
  readonly able: Pod;
  readonly other: Pod;
  readonly web: Flotilla;
  /** Ways to the same sessions: through the pod with the agents, through the other, from outside. */
  readonly ways: readonly Sessions[];
  /** The NATS server between them, if there is one. */
  readonly server: NatsServer | undefined;
  readonly url: string;
  [Symbol.asyncDispose](): Promise<void>;
};

export async function startFleet(
  store: SessionStore,
  use: readonly Usable[],
): Promise<SessionFleet> {
  const { url, nats, server, remove } = await store.open();
  const between = nats ? { nats } : {};
  const config = {
    store: url,
    log: silentLogger,
    dataDir: false,
    shutdownMs: 2_000,
    ...between,
  } as const;
  const able = await startPod({ ...config, use });
  const other = await startPod(config);
  const web = connect(url, between);
  return {
    url,
    server,
    able,
    other,
    web,
    ways: [able.sessions, other.sessions, web.sessions],
    async [Symbol.asyncDispose]() {
      await web.close();
      await Promise.all([able.stop(), other.stop()]);
      await remove();
    },
  };
}

/** All entries once something holds of them. */
export async function entriesOnce(
  chat: Chat,
  holds: (entries: readonly Entry[]) => boolean,
): Promise<Entry[]> {
  const seen: Entry[] = [];
  if (holds(seen)) return seen;
  for await (const event of chat.events()) {
    if (event.type !== "entry") continue;
    seen.push(event.entry);
    if (holds(seen)) return seen;
  }
  throw new Error(`the session ended after ${seen.length} entries`);
}

export function textOf({ parts }: Pick<Entry, "parts">): string {
  return parts.map((part) => (part.type === "text" ? (part["text"] as string) : "")).join("");
}

/** Who said what, in order. */
export function said(entries: readonly Entry[]): string[] {
  return entries.map((entry) => `${entry.author}: ${textOf(entry)}`);
}
