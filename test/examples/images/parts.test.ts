import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openHome } from "../../../examples/images/home.ts";
import { createGuard, Unhealthy } from "../../../examples/images/parts/guard.ts";
import { createHealthChecker, serveHealth } from "../../../examples/images/parts/health.ts";
import { createPool } from "../../../examples/images/parts/pool.ts";
import { placesIn } from "../../../examples/images/store/places.ts";
import { temporaryFolder } from "./places.ts";

const well = createHealthChecker({});
const noPool = { ensure: async () => [], state: async () => ({ problems: [], freeBytes: 1 }) };

describe("the pool manager", () => {
  test("makes what is missing, once", async () => {
    const places = placesIn(join(temporaryFolder(), "home"));
    const pool = createPool(places);
    expect((await pool.state()).problems).toHaveLength(4);
    const all = [places.home, places.blobs, places.images, places.snapshots, places.marker];
    expect(await pool.ensure()).toEqual(all);
    expect(await pool.ensure()).toEqual([]);
    const { problems, freeBytes } = await pool.state();
    expect(problems).toEqual([]);
    expect(freeBytes).toBeGreaterThan(0);
    rmSync(places.images, { recursive: true });
    expect((await pool.state()).problems).toEqual([`${places.images} isn't a folder`]);
    expect(await pool.ensure()).toEqual([places.images]);
    expect((await pool.state()).problems).toEqual([]);
  });

  test("reports when there is too little space, or when the pool is another program's", async () => {
    const places = placesIn(temporaryFolder());
    const pool = createPool(places, { freeBytesLeast: Number.MAX_SAFE_INTEGER });
    await pool.ensure();
    expect((await pool.state()).problems).toEqual([
      expect.stringMatching(/^only \d+ bytes are free/),
    ]);
    writeFileSync(places.marker, "{}");
    expect(await pool.ensure()).toEqual([]);
    expect(readFileSync(places.marker, "utf8")).toBe("{}");
    expect((await createPool(places).state()).problems).toEqual(["the pool has another layout"]);
  });

  test("doesn't delete what stands where a folder should be", async () => {
    const places = placesIn(temporaryFolder());
    writeFileSync(places.blobs, "precious");
    const pool = createPool(places);
    await pool.ensure();
    expect((await pool.state()).problems).toEqual([`${places.blobs} isn't a folder`]);
    expect(readFileSync(places.blobs, "utf8")).toBe("precious");
  });
});

describe("the health checker", () => {
  test("names every problem, whether it was given, thrown, or never came", async () => {
    const health = createHealthChecker(
      {
        fine: () => null,
        given: async () => "too warm",
        thrown: () => Promise.reject(new Error("broke")),
        never: () => new Promise<never>(() => {}),
      },
      { timeoutMs: 50 },
    );
    expect(await health.check()).toEqual({
      isHealthy: false,
      checks: [
        { name: "fine", problem: null },
        { name: "given", problem: "too warm" },
        { name: "thrown", problem: "broke" },
        { name: "never", problem: "no answer in 50 ms" },
      ],
    });
  });

  test("reads once for all calls that come meanwhile, and again for later ones", async () => {
    let looks = 0;
    const health = createHealthChecker({ looks: () => void looks++ });
    await Promise.all([health.check(), health.check(), health.check()]);
    expect(looks).toBe(1);
    await health.check();
    expect(looks).toBe(2);
  });

  test("answers 503 while something is wrong and 200 when it is well again", async () => {
    let problem: string | null = "too warm";
    const health = createHealthChecker({ warmth: () => problem });
    await using server = await serveHealth(health);
    const answer = await fetch(server.url);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ checks: [{ problem: "too warm" }] });
    problem = null;
    expect((await fetch(server.url)).status).toBe(200);
  });

  test("of a home sees lost folders and a metadata file that was closed", async () => {
    const folder = temporaryFolder();
    const home = await openHome(folder);
    expect(await home.health.check()).toMatchObject({ isHealthy: true });
    rmSync(home.places.blobs, { recursive: true });
    home.close();
    const { isHealthy, checks } = await home.health.check();
    const wrong = checks.filter(({ problem }) => problem !== null).map(({ name }) => name);
    expect([isHealthy, wrong]).toEqual([false, ["pool", "metadata"]]);
  });
});

describe("the operation guard", () => {
  test("makes a lost pool again and lets the operation run", async () => {
    using home = await openHome(temporaryFolder());
    rmSync(home.places.home, { recursive: true });
    mkdirSync(home.places.home);
    expect(await home.guard.run("download", "a", async () => "done")).toBe("done");
    expect((await home.pool.state()).problems).toEqual([]);
  });

  test("refuses while something is wrong, without beginning, and not after", async () => {
    let problem: string | null = "too warm";
    const health = createHealthChecker({ warmth: () => problem });
    const guard = createGuard({ health, pool: noPool });
    let begun = 0;
    const run = () => guard.run("unpack", "image", async () => ++begun);
    const refused = await run().catch((thrown: unknown) => thrown);
    expect(refused).toBeInstanceOf(Unhealthy);
    expect(String(refused)).toContain("unpack of image doesn't begin");
    expect(String(refused)).toContain("warmth: too warm");
    expect([begun, guard.running("unpack")]).toEqual([0, 0]);
    problem = null;
    expect(await run()).toBe(1);
  });

  test("lets as many run at once as their kind allows, in the order in which they came", async () => {
    const guard = createGuard({ health: well, pool: noPool, atOnce: { download: 2 } });
    const started: number[] = [];
    const ends: (() => void)[] = [];
    const all = [0, 1, 2, 3].map((at) =>
      guard.run("download", `blob-${at}`, () => {
        started.push(at);
        return new Promise<void>((resolve) => ends.push(resolve));
      }),
    );
    await expect.poll(() => started).toEqual([0, 1]);
    expect(guard.running("download")).toBe(2);
    // Another kind has places of its own.
    expect(await guard.run("unpack", "image", async () => "done")).toBe("done");
    ends[0]!();
    await expect.poll(() => started).toEqual([0, 1, 2]);
    ends[1]!();
    await expect.poll(() => started).toEqual([0, 1, 2, 3]);
    ends.forEach((end) => end());
    await Promise.all(all);
    expect(guard.running("download")).toBe(0);
  });

  test("lets no call at a key before the one before has really stopped", async () => {
    const guard = createGuard({ health: well, pool: noPool, atOnce: { download: 9 } });
    const happened: string[] = [];
    let end = () => {};
    const first = guard.run("download", "blob", async () => {
      await new Promise<void>((resolve) => (end = resolve));
      happened.push("first stopped");
    });
    const second = guard.run("download", "blob", async () => void happened.push("second began"));
    expect(await guard.run("download", "other", async () => "done")).toBe("done");
    end();
    await Promise.all([first, second]);
    expect(happened).toEqual(["first stopped", "second began"]);
  });

  test("lets go of callers that are aborted while they wait, and their place is not lost", async () => {
    const guard = createGuard({ health: well, pool: noPool });
    let end = () => {};
    const first = guard.run("unpack", "a", () => new Promise<void>((resolve) => (end = resolve)));
    const stop = new AbortController();
    const second = guard.run("unpack", "b", async () => "never", stop.signal);
    const third = guard.run("unpack", "c", async () => "third");
    // All that comes before the waiting is done by then.
    await new Promise(setImmediate);
    stop.abort(new Error("enough"));
    await expect(second).rejects.toThrow("enough");
    await expect.poll(() => guard.running("unpack")).toBe(1);
    end();
    await first;
    expect(await third).toBe("third");
    expect(await guard.run("unpack", "b", async () => "again")).toBe("again");
  });

  test("turns whatever is thrown into an error, and frees its place", async () => {
    const guard = createGuard({ health: well, pool: noPool });
    const run = (thrown: unknown) =>
      guard.run("unpack", "image", () => Promise.reject(thrown as Error));
    await expect(run({ odd: 1 })).rejects.toThrow('unpack of image threw {"odd":1}');
    await expect(run(new Error("plain"))).rejects.toThrow("plain");
    expect(guard.running("unpack")).toBe(0);
  });
});
