import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import { createClient, type ClientOptions } from "../index.ts";
import type { SocketLike } from "../options.ts";
import { simulateServer } from "./simulated-server.ts";

type SentFrame = { readonly type: string; readonly ref: string; readonly session?: string };

/** A client of a simulated server, with what it sends, and a way to tell it what the server wouldn't. */
export function simulatedClient(options: ClientOptions = {}) {
  const clock = movableClock();
  const server = simulateServer({ clock, random: seededRandom(1) });
  const sent: SentFrame[] = [];
  const sockets: SocketLike[] = [];
  let answer: ((frame: SentFrame) => ServerFrame | undefined) | undefined;
  const receive = (data: string) => sockets.at(-1)!.onmessage?.({ data } as never);
  class Noted extends server.WebSocket {
    constructor(...args: [string, string[]]) {
      super(...args);
      sockets.push(this);
    }
    override send(text: string) {
      const frame = JSON.parse(text) as SentFrame;
      sent.push(frame);
      const instead = answer?.(frame);
      if (instead) clock.after(0, () => receive(JSON.stringify([instead])));
      else super.send(text);
    }
  }
  const client = createClient({
    url: "http://sim",
    WebSocket: Noted,
    fetch: server.fetch,
    clock,
    random: seededRandom(2),
    network: { isOnline: () => true, onChange: () => () => {} },
    ...options,
  });
  return {
    clock,
    server,
    client,
    sent,
    sockets,
    /** What comes over the newest connection, whatever the server says. */
    hear: receive,
    push: (...frames: ServerFrame[]) => receive(JSON.stringify(frames)),
    /** Answers in the server's place where it has something to say. */
    set answer(instead: typeof answer) {
      answer = instead;
    },
    count: (type: string, session?: string) =>
      sent.filter((frame) => frame.type === type && (!session || frame.session === session)).length,
  };
}
