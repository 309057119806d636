import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect, startPod, task } from "flotilla";
import { silentLogger } from "../src/base/log.ts";
import { temporaryDatabase, temporaryFile } from "../src/store/contract/kinds.ts";

const places = [
  {
    name: "SQLite",
    async open() {
      const { path, remove } = temporaryFile();
      return { store: path, remove };
    },
  },
  {
    name: "Postgres",
    async open() {
      const { url, remove } = await temporaryDatabase();
      return { store: url, remove };
    },
  },
];

describe.each(places)("a pod on $name that polls once a minute", ({ open }) => {
  let place: Awaited<ReturnType<typeof open>>;
  beforeEach(async () => {
    place = await open();
  });
  afterEach(async () => {
    await place.remove();
  });

  test("runs what another enqueues, now and again, without waiting for a poll", async () => {
    const double = task("double", {}, ({ input }: { input: number }) => input * 2);
    const claims: number[] = [];
    await using _pod = await startPod(
      { store: place.store, use: [double], log: silentLogger, pollMs: 60_000 },
      { onEvent: (event) => void (event.type === "claimed" && claims.push(event.tasks)) },
    );
    await using flotilla = connect(place.store);
    // It has looked in vain, and sleeps.
    await expect.poll(() => claims[0]).toBe(0);
    for (const input of [1, 2, 3]) {
      expect(await flotilla.waitFor(await flotilla.enqueue(double, input))).toBe(2 * input);
    }
  });
});
