import { playRole } from "../roles.ts";
import { readSnapshots, watchUrl } from "./watching.ts";

/** A process with so many tabs that look at one page: each has its stream, and reads all that comes. */
export type WatchersParams = {
  readonly url: string;
  readonly tabs: number;
  readonly topics: string;
};

playRole(
  async ({ url, tabs, topics }: WatchersParams, bench): Promise<number> => {
    const stop = new AbortController();
    let bytes = 0;
    const streams = await Promise.all(
      Array.from({ length: tabs }, async () => {
        const answer = await fetch(watchUrl(url, topics), { signal: stop.signal });
        if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
        const reader = answer.body!.getReader();
        await readSnapshots(reader, topics);
        return reader;
      }),
    );
    bench.tell("watching");
    const reading = streams.map(async (reader) => {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        bytes += value.length;
      }
    });
    for (const each of reading) each.catch(() => {});
    await bench.heard("stop");
    stop.abort();
    return bytes;
  },
  { ends: "at once" },
);
