import { WebSocket } from "ws";

/** What is looked at of a frame that comes back. A bare echo gives the very frame that was sent. */
export type Answer = {
  readonly type?: string;
  readonly ref?: number;
  readonly entries?: readonly { readonly seq: number; readonly role: string }[];
  readonly chunks?: readonly { readonly type: string; readonly delta?: string }[];
};

/** Opens a socket. Whoever wants the bytes alone listens for messages itself. */
export async function dial(
  url: string,
  onAnswer?: (answer: Answer, bytes: number) => void,
): Promise<WebSocket> {
  const socket = new WebSocket(url, ["flotilla.v1"], { perMessageDeflate: false });
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  // A figure of which some clients were cut off would mean nothing.
  socket.on("close", (code: number, reason: Buffer) => {
    if (code !== ended) throw new Error(`a socket was closed with ${code} ${reason.toString()}`);
  });
  if (onAnswer) {
    socket.on("message", (data: Buffer) => {
      const value = JSON.parse(data.toString()) as Answer | Answer[];
      if (Array.isArray(value)) for (const each of value) onAnswer(each, data.length);
      else onAnswer(value, data.length);
    });
  }
  return socket;
}

const ended = 1000;

/** Many at a time, so that none of them waits for too long. */
export async function inParts<Item, Made>(
  items: readonly Item[],
  atOnce: number,
  make: (item: Item) => Promise<Made>,
): Promise<Made[]> {
  const made: Made[] = [];
  for (let from = 0; from < items.length; from += atOnce) {
    made.push(...(await Promise.all(items.slice(from, from + atOnce).map(make))));
  }
  return made;
}

/** Makes sessions over HTTP, with an agent or as plain logs. */
export async function makeSessions(
  httpUrl: string,
  sessionIds: readonly string[],
  agents: readonly string[] = [],
): Promise<void> {
  await inParts(sessionIds, 50, async (sessionId) => {
    const answer = await fetch(`${httpUrl}/v1/sessions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ sessionId, agents, users: ["ada"] }),
    });
    if (answer.status !== 201) throw new Error(`no session: ${await answer.text()}`);
    await answer.arrayBuffer();
  });
}

/** Joins, and waits for the answer. */
export async function join(socket: WebSocket, frame: string): Promise<void> {
  const joined = new Promise<void>((resolve, reject) => {
    const look = (data: Buffer) => {
      if (data.includes('"error"')) reject(new Error(data.toString()));
      else if (data.includes('"joined"')) resolve();
      else return;
      socket.off("message", look);
    };
    socket.on("message", look);
  });
  socket.send(frame);
  await joined;
}
