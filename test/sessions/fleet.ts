import { silentLogger } from "../../src/base/log.ts";
import type { Entry } from "../../src/protocol/message.ts";
import type { Pod } from "../../src/runtime/pod.ts";
import { connect, type Flotilla } from "../../src/runtime/connect.ts";
import type { Usable } from "../../src/runtime/handlers.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import type { Chat, Sessions } from "../../src/sessions/sessions.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";

export const stores = [
  {
    name: "one SQLite file",
    async open() {
      const { path, remove } = temporaryFile();
      return { url: `sqlite:${path}`, remove };
    },
  },
  { name: "Postgres", open: () => temporaryDatabase() },
] as const;

/** Two pods, of which one has the agents, and a program that is none, on one store. */
export type SessionFleet = {
  readonly able: Pod;
  readonly other: Pod;
  readonly web: Flotilla;
  /** Ways to the same sessions: through the pod with the agents, through the other, from outside. */
  readonly ways: readonly Sessions[];
  [Symbol.asyncDispose](): Promise<void>;
};

export async function startFleet(
  store: (typeof stores)[number],
  use: readonly Usable[],
): Promise<SessionFleet> {
  const { url, remove } = await store.open();
  const config = { store: url, log: silentLogger, dataDir: false, shutdownMs: 2_000 } as const;
  const able = await startPod({ ...config, use });
  const other = await startPod(config);
  const web = connect(url);
  return {
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
