import { percentile } from "../statistics.ts";
import { readSnapshots } from "./watching.ts";

export type AnswerTimes = { readonly path: string; readonly p50: number; readonly p95: number };

// A topic that was read rests for twenty times as long as that took, and for a second at least: until then
// its watchers get what is known.
const restFactor = 25;
const minRestMs = 1_200;
const streamsRead = 3;
// What has not answered by then has no figure.
const longestMs = 60_000;

/** How long answers take from the request to their last byte; streams to what they begin with. */
export async function timeAnswers(url: string, path: string, times: number): Promise<AnswerTimes> {
  const { pathname, searchParams } = new URL(path, url);
  const topics = pathname.endsWith("/v1/watch") ? searchParams.get("topics") : null;
  const taken: number[] = [];
  if (topics === null) {
    for (let at = 0; at < times; at++) taken.push(await timed(() => readAnswer(url + path)));
  } else {
    for (let at = 0; at < Math.min(times, streamsRead); at++) {
      const ms = await timed(() => readStream(url + path, topics));
      taken.push(ms);
      await new Promise((resolve) => setTimeout(resolve, Math.max(minRestMs, ms * restFactor)));
    }
  }
  return { path, p50: percentile(taken, 0.5), p95: percentile(taken, 0.95) };
}

async function timed(ask: () => Promise<void>): Promise<number> {
  const startedMs = performance.now();
  await ask();
  return performance.now() - startedMs;
}

async function readAnswer(url: string): Promise<void> {
  const stop = new AbortController();
  const answer = await fetch(url, {
    headers: { Accept: "application/json" },
    signal: AbortSignal.any([stop.signal, AbortSignal.timeout(longestMs)]),
  });
  if (answer.ok && answer.headers.get("content-type")?.startsWith("text/event-stream")) {
    // The events of a session have no end: what is there already comes first.
    await answer.body!.getReader().read();
    stop.abort();
    return;
  }
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${text}`);
}

async function readStream(url: string, topics: string): Promise<void> {
  const stop = new AbortController();
  const answer = await fetch(url, {
    signal: AbortSignal.any([stop.signal, AbortSignal.timeout(longestMs)]),
  });
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  await readSnapshots(answer.body!.getReader(), topics);
  stop.abort();
}
