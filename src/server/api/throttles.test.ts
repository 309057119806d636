import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openStore } from "../../store/open.ts";
import type { Database } from "../../store/database.ts";
import { noCounts } from "../../throttles/learning/sample.ts";
import { storeThrottle } from "../../throttles/contract/shares-stored.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";

const testStore = openTestStore();
let database: Database;
beforeAll(async () => {
  await testStore.flotilla.tasks.stats();
  database = await openStore(testStore.store);
});
afterAll(() => database.close());

const ask = (method: string, path: string, body?: unknown) =>
  appHarness(testStore.flotilla).send(method, path, body);

describe("throttles over HTTP", () => {
  test("are shown with their limits, and what each pod has of them", async () => {
    await storeThrottle(database, {
      name: "openai",
      key: "gpt",
      bound: 20,
      stats: { outcomes: { ...noCounts, success: 990, throttled: 10 }, p95Ms: 812 },
      pods: {
        a: { share: 12, inFlight: 11, waiting: 3 },
        b: { share: 8, inFlight: 5, waiting: 0 },
      },
    });
    const { status, body } = await ask("GET", "/v1/throttles/openai?key=gpt");
    expect(status).toBe(200);
    expect(body.throttle).toMatchObject({
      name: "openai",
      key: "gpt",
      bound: 20,
      breaker: "closed",
      inFlight: 16,
      waiting: 3,
      outcomes: { success: 990, throttled: 10 },
      p95Ms: 812,
      settings: { algorithm: "ceiling", min: 1, max: 1_000 },
      pods: [
        { podId: "a", share: 12, inFlight: 11, waiting: 3 },
        { podId: "b", share: 8, inFlight: 5, waiting: 0 },
      ],
    });
    expect(await ask("GET", "/v1/throttles/openai")).toMatchObject({ status: 404 });
  });

  test("are listed page by page, whatever their names and keys hold", async () => {
    const places = [
      { name: "a", key: "" },
      { name: "a", key: "x/y" },
      { name: "a/b", key: "" },
      { name: "ü?&", key: '"' },
      { name: "計".repeat(200), key: "計".repeat(200) },
      { name: "\u{10000}".repeat(100), key: "\u0001".repeat(200) },
    ];
    for (const each of places) await storeThrottle(database, { ...each, bound: 1 });
    const seen: unknown[] = [];
    let cursor: string | null = null;
    do {
      const from: string = cursor === null ? "" : `&cursor=${cursor}`;
      const { body } = await ask("GET", `/v1/throttles?limit=1${from}`);
      seen.push(...body.throttles.map(({ name, key }: (typeof places)[0]) => ({ name, key })));
      cursor = body.next;
    } while (cursor !== null);
    expect(seen).toEqual(places);
    const found = await ask(
      "GET",
      `/v1/throttles/${encodeURIComponent("ü?&")}?key=${encodeURIComponent('"')}`,
    );
    expect(found.status).toBe(200);
    const long = Buffer.from(JSON.stringify(["a".repeat(4_000), ""])).toString("base64url");
    for (const wrong of ["nonsense", long, "x".repeat(8_000)])
      expect(await ask("GET", `/v1/throttles?cursor=${wrong}`)).toMatchObject({
        status: 400,
        body: { error: { code: "invalid_option" } },
      });
    await expect(testStore.flotilla.throttles.list({ cursor: long })).rejects.toMatchObject({
      code: "invalid_option",
    });
  });

  test("are pinned and unpinned, each key by itself", async () => {
    for (const key of ["", "gpt"]) {
      await storeThrottle(database, { name: "openai", key, bound: 20 });
    }
    const pinned = await ask("POST", "/v1/throttles/openai/pin", { limit: 5, key: "gpt" });
    expect(pinned).toMatchObject({ status: 200, body: { throttle: { bound: 5, pinned: 5 } } });
    const other = await ask("GET", "/v1/throttles/openai");
    expect(other.body.throttle.bound).toBe(20);
    expect(other.body.throttle).not.toHaveProperty("pinned");
    const unpinned = await ask("POST", "/v1/throttles/openai/unpin", { key: "gpt" });
    expect(unpinned.body.throttle).not.toHaveProperty("pinned");
    expect(unpinned.body.throttle.bound).toBe(5);
    // Names and keys may have slashes, so that the subject alone says neither.
    const { body: audit } = await ask("GET", "/v1/audit?subject=openai%2Fgpt");
    const filter = { name: "openai", key: "gpt" };
    expect(audit.entries).toMatchObject([
      { action: "throttles.unpin", filter },
      { action: "throttles.pin", filter },
    ]);
  });

  test.each<[string, string, unknown, number, string]>([
    ["one that no caller has used", "nothing/pin", { limit: 5 }, 404, "not_found"],
    ["a limit below none", "openai/pin", { limit: -1 }, 400, "invalid_option"],
    ["half a call", "openai/pin", { limit: 1.5 }, 400, "invalid_input"],
    ["no limit", "openai/pin", {}, 400, "invalid_input"],
    ["another field", "openai/unpin", { limit: 5 }, 400, "invalid_option"],
    ["what is no JSON", "openai/unpin", "{", 400, "invalid_input"],
    [
      "a key that no database keeps",
      "openai/pin",
      { limit: 5, key: "\u0000" },
      400,
      "invalid_option",
    ],
    ["a name that no database keeps", "a%00/unpin", {}, 404, "not_found"],
  ])("refuse %s", async (_, path, body, status, code) => {
    await storeThrottle(database, { name: "openai", key: "", bound: 20 });
    const refused = await ask("POST", `/v1/throttles/${path}`, body);
    expect(refused).toMatchObject({ status, body: { error: { code } } });
    expect((await testStore.flotilla.throttles.get("openai"))!.bound).toBe(20);
  });
});
