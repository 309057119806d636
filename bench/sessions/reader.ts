import { playRole } from "../roles.ts";
import { type Answer, dial, makeSessions } from "./dial.ts";
import { joinFrame, sendFrame } from "./frames.ts";

/** A client that fills a session, and then reads all of it from the first entry, again and again. */
export type ReaderParams = {
  readonly socketUrl: string;
  readonly httpUrl: string;
  readonly entries: number;
  readonly repeats: number;
};

export type Read = { readonly reads: readonly { readonly ms: number; readonly bytes: number }[] };

const together = 50;

playRole(
  async ({ socketUrl, httpUrl, entries, repeats }: ReaderParams, bench) => {
    const session = `read-${performance.now()}`;
    await makeSessions(httpUrl, [session]);
    await fill(socketUrl, session, entries);
    const reads: { ms: number; bytes: number }[] = [];
    bench.tell("begin");
    for (let at = 0; at < repeats; at++) reads.push(await readAll(socketUrl, session, entries));
    bench.tell("end");
    return { reads } satisfies Read;
  },
  { ends: "at once" },
);

async function fill(socketUrl: string, session: string, entries: number): Promise<void> {
  let waiting = 0;
  let answered = () => {};
  const socket = await dial(socketUrl, ({ ref, type }: Answer) => {
    if (type === "error") throw new Error("a message was refused");
    if (ref !== undefined && --waiting === 0) answered();
  });
  for (let from = 1; from <= entries; from += together) {
    const refs = Array.from(
      { length: Math.min(together, entries - from + 1) },
      (_, at) => from + at,
    );
    waiting = refs.length;
    const all = new Promise<void>((resolve) => (answered = resolve));
    socket.send(`[${refs.map((ref) => sendFrame(session, ref)).join(",")}]`);
    await all;
  }
  socket.close(1000);
}

/** From the join to the last entry, each of them parsed, on a socket that is open already. */
async function readAll(socketUrl: string, session: string, entries: number) {
  let bytes = 0;
  let all = () => {};
  const whole = new Promise<void>((resolve) => (all = resolve));
  const socket = await dial(socketUrl, (answer) => {
    if (answer.entries?.at(-1)?.seq === entries) all();
  });
  socket.on("message", (data: Buffer) => (bytes += data.length));
  const startedMs = performance.now();
  socket.send(joinFrame(session, 1));
  await whole;
  const ms = performance.now() - startedMs;
  socket.close(1000);
  return { ms, bytes };
}
