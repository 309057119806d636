import { silentLogger } from "../../src/base/log.ts";
import { startPod, task } from "../../src/index.ts";
import { openStore } from "../../src/store/open.ts";
import { sql, table } from "../../src/store/sql.ts";
import { playRole } from "../roles.ts";
import { median } from "../statistics.ts";

/** A pod of ours alone, for what no peer is asked. */
export type OwnParams = { readonly url: string; readonly work: "depth" | "replay" | "bytes" };

const deepSteps = 1_000;
const storedSteps = 5_000;
const valueChars = 100;

playRole(async ({ url, work }: OwnParams): Promise<number> => {
  if (work === "depth") return depth(url);
  return work === "replay" ? replay(url) : bytes(url);
});

/** How much longer the last hundred of a thousand steps take than the first hundred. */
async function depth(url: string): Promise<number> {
  const times: number[] = [];
  const deep = task<null, null, void>("deep", {}, async ({ step }) => {
    for (let at = 0; at < deepSteps; at++) {
      const startedMs = performance.now();
      await step(`step-${at}`, () => at);
      times.push(performance.now() - startedMs);
    }
  });
  await using pod = await startPod({ store: url, use: [deep], log: silentLogger });
  await pod.waitFor(await pod.enqueue(deep, null));
  // The first task warms up what the second is measured with.
  times.length = 0;
  await pod.waitFor(await pod.enqueue(deep, null));
  const part = (from: number) => median(times.slice(from, from + 100));
  return part(deepSteps - 100) / part(0);
}

/** From the first line of a second attempt to its next step, behind all that are stored. */
async function replay(url: string): Promise<number> {
  let attempts = 0;
  let tookMs = 0;
  const long = task<null, null, void>(
    "long",
    { attempts: 2, backoff: { baseMs: 1, jitter: 0 } },
    async ({ step }) => {
      const startedMs = performance.now();
      attempts++;
      const items = Array.from({ length: storedSteps }, (_, at) => at);
      const key = (at: number) => `${at}`;
      await step.forEach("item", items, { key, atOnce: 100 }, (at) => ({ at, text: "stored" }));
      if (attempts === 1) throw new Error("once more");
      await step("next", () => void (tookMs = performance.now() - startedMs));
    },
  );
  await using pod = await startPod({ store: url, use: [long], log: silentLogger });
  await pod.waitFor(await pod.enqueue(long, null));
  return tookMs;
}

/** What the store has grown by for each step, without its value. */
async function bytes(url: string): Promise<number> {
  const value = "x".repeat(valueChars);
  const many = task<null, null, void>("many", {}, async ({ step }) => {
    const items = Array.from({ length: storedSteps }, (_, at) => at);
    await step.forEach("item", items, { key: (at) => `${at}`, atOnce: 100 }, () => value);
  });
  await using pod = await startPod({ store: url, use: [many], log: silentLogger });
  await pod.waitFor(await pod.enqueue(many, null));
  const store = await openStore(url);
  const journal = table("step_journal");
  const size = url.startsWith("sqlite:")
    ? sql`select sum(pgsize) as bytes from dbstat where name like '%step_journal%'`
    : sql`select pg_total_relation_size('flotilla.step_journal') as bytes`;
  const [[sized], [counted]] = await Promise.all([
    store.read(size),
    store.read(sql`select count(*) as steps from ${journal}`),
  ]);
  await store.close();
  return Number(sized!["bytes"]) / Number(counted!["steps"]) - valueChars;
}
