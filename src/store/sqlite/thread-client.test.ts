import process from "node:process";
import type { Worker } from "node:worker_threads";
import { afterEach, beforeEach, expect, test } from "vitest";
import { temporaryFile } from "../contract/kinds.ts";
import { createThreadClient } from "./thread-client.ts";

let place: ReturnType<typeof temporaryFile>;
const threads: Worker[] = [];
const note = (thread: Worker) => void threads.push(thread);
beforeEach(() => {
  place = temporaryFile();
  threads.length = 0;
  process.on("worker", note);
});
afterEach(async () => {
  process.off("worker", note);
  await Promise.all(threads.map((thread) => thread.terminate()));
  await place.remove();
});

test("a database that is closed while its thread is restarted leaves no thread behind", async () => {
  const kept = await createThreadClient({ path: place.path, create: true });
  await threads[0]!.terminate();
  const asked = kept.request({ read: { text: "select 1", values: [] } } as never).catch(() => {});
  await kept.close();
  await asked;
  expect(threads).toHaveLength(2);
  // What has ended has no number any more.
  expect(threads.map(({ threadId }) => threadId)).toEqual([-1, -1]);
});
