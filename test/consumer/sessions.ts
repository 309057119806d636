import { agent, type Chat, type Chunk, type Entry, type InboxItem, type Sessions } from "flotilla";
import { createAgentHandler, toNode } from "flotilla/agent";
import { createServer } from "node:http";

/** What a user's module exports of agents, and functions that take conversations. */
export const helper = agent("helper", async function* ({ messages, user, epoch }): AsyncGenerator<
  Chunk | string
> {
  yield { type: "data-turn", data: { user, epoch } };
  yield `${messages.length} messages`;
});

export async function authorsOf(chat: Chat, count: number): Promise<string[]> {
  const seen: Entry[] = [];
  for await (const event of chat.events({ after: 0 })) {
    if (event.type === "entry") seen.push(event.entry);
    if (seen.length === count) break;
  }
  return seen.map(({ author }) => author);
}

export async function firstUnread(
  sessions: Sessions,
  user: string,
): Promise<InboxItem | undefined> {
  for await (const event of sessions.inbox(user)) {
    if (event.type === "snapshot") return event.sessions.find(({ unread }) => unread > 0);
  }
  return undefined;
}

/** The same agent behind a URL: a route of Next.js, and a server of Node. */
export const POST = createAgentHandler({
  secret: `whsec_${"A".repeat(43)}=`,
  answer: ({ messages, agent: name }) => `${name} was told ${messages.length} messages`,
});
const answer = toNode(POST);
export const server = createServer((request, response) => void answer(request, response));
