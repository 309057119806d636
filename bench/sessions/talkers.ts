import process from "node:process";
import { setTimeout as wait } from "node:timers/promises";
import { playRole, sharedMs } from "../roles.ts";
import { dial, inParts, makeSessions } from "./dial.ts";
import { joinFrame, sendFrame } from "./frames.ts";

/** A process of clients, of whom each asks an agent in a session of its own and hears its answer. */
export type TalkersParams = {
  readonly socketUrl: string;
  readonly httpUrl: string;
  readonly turns: number;
  /** Questions are spread over so long, so that answers don't come in step. */
  readonly spreadMs: number;
};

/** How long each chunk took from the agent to its client. */
export type Talked = { readonly latenciesMs: readonly number[]; readonly cpuMs: number };

playRole(
  async ({ socketUrl, httpUrl, turns, spreadMs }: TalkersParams, bench) => {
    const sessions = Array.from({ length: turns }, (_, at) => `talk-${at}`);
    await makeSessions(httpUrl, sessions, ["scripted"]);
    const latenciesMs: number[] = [];
    let running = turns;
    let allEnded = () => {};
    const ended = new Promise<void>((resolve) => (allEnded = resolve));
    const clients = await inParts(sessions, 50, async (session) => {
      const socket = await dial(socketUrl, ({ type, chunks, entries }) => {
        if (type === "error") throw new Error(`a frame of ${session} was refused`);
        for (const { type: kind, delta } of chunks ?? []) {
          if (kind !== "text-delta" || delta === undefined) continue;
          const nowMs = sharedMs();
          // Several may have become one on the way.
          for (const madeMs of delta.trim().split(" ")) latenciesMs.push(nowMs - Number(madeMs));
        }
        if (entries?.some(({ role }) => role === "assistant") && --running === 0) allEnded();
      });
      socket.send(joinFrame(session, 1));
      return { socket, session };
    });
    const before = process.cpuUsage();
    bench.tell("begin");
    for (const { socket, session } of clients) {
      socket.send(sendFrame(session, 2));
      await wait(spreadMs / turns);
    }
    await ended;
    const { user, system } = process.cpuUsage(before);
    bench.tell("end");
    return { latenciesMs, cpuMs: (user + system) / 1_000 } satisfies Talked;
  },
  { ends: "at once" },
);
