import { setTimeout as wait } from "node:timers/promises";
import { playRole } from "../roles.ts";
import { dial, inParts, join, makeSessions } from "./dial.ts";
import { joinFrame, sendFrame } from "./frames.ts";

/** A process of clients that all follow one session, and one more that writes in it. */
export type CrowdParams = {
  readonly socketUrl: string;
  /** Absent: it is the echo, where those at `/hear` get what comes in at `/tell`. */
  readonly httpUrl?: string;
  readonly subscribers: number;
  readonly repeats: number;
};

/** For each message, how long it took until the last one had it. */
export type Heard = { readonly latenciesMs: readonly number[] };

const pauseMs = 50;
const warmUps = 10;

playRole(
  async ({ socketUrl, httpUrl, subscribers, repeats }: CrowdParams, bench) => {
    const session = `crowd-${performance.now()}`;
    if (httpUrl !== undefined) await makeSessions(httpUrl, [session]);
    let awaited = Buffer.from("nothing yet");
    let missing = 0;
    let all = () => {};
    const hear = (data: Buffer) => {
      if (data.includes(awaited) && --missing === 0) all();
    };
    const numbers = Array.from({ length: subscribers }, (_, at) => at);
    await inParts(numbers, 100, async () => {
      const socket = await dial(httpUrl === undefined ? `${socketUrl}/hear` : socketUrl);
      if (httpUrl !== undefined) await join(socket, joinFrame(session, 0));
      socket.on("message", hear);
    });
    const teller = await dial(httpUrl === undefined ? `${socketUrl}/tell` : socketUrl);

    const tell = async (number: number): Promise<number> => {
      const id = `message ${number} of many`;
      awaited = Buffer.from(`"${id}"`);
      missing = subscribers;
      const heard = new Promise<void>((resolve) => (all = resolve));
      const sentMs = performance.now();
      teller.send(sendFrame(session, number, id));
      await heard;
      return performance.now() - sentMs;
    };
    const latenciesMs: number[] = [];
    for (let number = -warmUps; number < repeats; number++) {
      if (number === 0) bench.tell("begin");
      const tookMs = await tell(number);
      if (number >= 0) latenciesMs.push(tookMs);
      await wait(pauseMs);
    }
    bench.tell("end");
    return { latenciesMs } satisfies Heard;
  },
  { ends: "at once" },
);
