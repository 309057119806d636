import { describe, expect, test } from "vitest";
import { movableClock, settledBy } from "../base/contract/movable-clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { seededRandom } from "../base/random.ts";
import { memoryKind } from "../store/contract/kinds.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { createFileAccess } from "./access.ts";
import { createFiles } from "./files.ts";
import { takeFiles } from "./take.ts";

const away = { code: "store_unavailable", retryAfterMs: 5_000 };
const picture = { type: "file", mediaType: "image/png", url: "data:image/png;base64,aGVsbG8=" };

const kinds = [
  "an upload",
  "a data URL of a message",
  "a reference of a message",
  "a download",
  "an address",
] as const;

/** Files of a deployment whose conversations go on, on a store that refuses, or says nothing. */
async function onStore() {
  const clock = movableClock();
  const { database: sound } = await memoryKind.open();
  await migrate(sound);
  const store = { is: "there" as "there" | "refusing" | "silent", calls: 0 };
  const through =
    <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
    (...args: Args): Promise<Result> => {
      store.calls++;
      if (store.is === "silent") return new Promise(() => {});
      if (store.is === "there") return call(...args);
      return Promise.reject(new FlotillaError("store_unavailable", "refused"));
    };
  const database: Database = { ...sound, read: through(sound.read), write: through(sound.write) };
  const random = seededRandom(1);
  const parts = { database, clock, random, ids: uuidv7(clock, random), goesOn: true };
  const files = createFiles(parts);
  const access = createFileAccess(parts);
  const stored = await files.upload("t", "s", [Buffer.from("stored")]);
  const reference = stored.url.slice(-64);
  const { access: address } = await createFileAccess(parts).grant("t", "s");
  const calls: Record<(typeof kinds)[number], () => Promise<unknown>> = {
    "an upload": () => files.upload("t", "s", [Buffer.from("hi")]),
    "a data URL of a message": () => files.keep("t", "s", takeFiles([picture])!),
    "a reference of a message": () => files.keep("t", "s", takeFiles([stored])!),
    "a download": () => files.find("s", reference),
    "an address": () => access.check(address),
  };
  return { clock, store, calls, settled: <T>(call: Promise<T>) => settledBy(clock, call, 100) };
}

describe("while the store is away and conversations go on", () => {
  test.each(kinds)("%s is refused at once where the store refuses", async (kind) => {
    const { clock, store, calls } = await onStore();
    store.is = "refusing";
    const beganMs = clock.monotonic();
    await expect(calls[kind]()).rejects.toMatchObject(away);
    expect(clock.monotonic()).toBe(beganMs);
  });

  test.each(kinds)(
    "%s waits five seconds for one that says nothing, the next doesn't, and both work once it is back",
    async (kind) => {
      const { clock, store, calls, settled } = await onStore();
      store.is = "silent";
      const beganMs = clock.monotonic();
      await expect(settled(calls[kind]())).rejects.toMatchObject(away);
      expect(clock.monotonic() - beganMs).toBeLessThanOrEqual(5_100);
      const callsBefore = store.calls;
      await expect(calls[kind]()).rejects.toMatchObject(away);
      expect(store.calls).toBe(callsBefore);
      store.is = "there";
      await clock.advance(1_000);
      await settled(calls[kind]());
      await settled(calls[kind]());
    },
  );

  test("one caller a second asks it again, and the others are refused meanwhile", async () => {
    const { clock, store, calls, settled } = await onStore();
    store.is = "refusing";
    await expect(calls["a download"]()).rejects.toMatchObject(away);
    await clock.advance(1_000);
    store.is = "silent";
    const callsBefore = store.calls;
    const asked = Array.from({ length: 10 }, () => calls["a download"]());
    const outcomes = settled(Promise.allSettled(asked));
    for (const each of asked.slice(1)) await expect(each).rejects.toMatchObject(away);
    expect(store.calls - callsBefore).toBe(1);
    await outcomes;
    await clock.advance(1_000);
    store.is = "there";
    expect(await settled(calls["a download"]())).toMatchObject({ size: 6 });
  });
});
