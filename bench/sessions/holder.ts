import { playRole } from "../roles.ts";
import { dial, inParts, join, makeSessions } from "./dial.ts";
import { joinFrame } from "./frames.ts";

/** A process that holds sockets open, each of which follows a session of its own, and does nothing. */
export type HolderParams = {
  readonly socketUrl: string;
  /** Absent: it is the echo, which has no sessions. */
  readonly httpUrl?: string;
  readonly name: string;
  readonly sockets: number;
};

playRole(
  async ({ socketUrl, httpUrl, name, sockets }: HolderParams, bench) => {
    const sessions = Array.from({ length: sockets }, (_, at) => `${name}-${at}`);
    if (httpUrl !== undefined) await makeSessions(httpUrl, sessions);
    const held = await inParts(sessions, 100, async (session) => {
      const socket = await dial(socketUrl);
      if (httpUrl !== undefined) await join(socket, joinFrame(session, 0));
      return socket;
    });
    bench.tell("held", held.length);
    await bench.heard("stop");
    for (const socket of held) socket.terminate();
  },
  { ends: "at once" },
);
