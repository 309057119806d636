import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { type Digest, digestOf } from "../../../examples/images/disk/digest.ts";
import { temporaryPath } from "../../../examples/images/disk/temporary.ts";
import { imageLimits } from "../../../examples/images/limits.ts";
import { resolve } from "../../../examples/images/registry/client.ts";
import { type Download, download } from "../../../examples/images/registry/download.ts";
import type { Fault } from "../../../examples/images/registry/blob.ts";
import { startRegistry } from "../../../examples/images/registry/registry.ts";
import { temporaryFolder } from "./places.ts";

const content = randomBytes(300_000);
const digest = digestOf(content);
const signal = new AbortController().signal;

async function harness() {
  const registry = await startRegistry();
  onTestFinished(registry.close);
  registry.push("demo/app:1", [content]);
  const folder = temporaryFolder();
  const target = join(folder, "blob");
  const get = (token = 1, changed: Partial<Download> = {}) =>
    download({
      url: `${registry.url}/v2/demo/app/blobs/${digest}`,
      digest,
      bytes: content.length,
      target,
      writer: { runId: "run", token },
      limits: imageLimits,
      signal,
      ...changed,
    });
  /** Stops it when it has received so much more. */
  const stopAfter = async (bytes: number, token = 1): Promise<void> => {
    registry.fail(digest, { type: "stall", afterBytes: bytes });
    const before = registry.served(digest).bytes;
    const stop = new AbortController();
    const onProgress = (at: number) => at === before + bytes && stop.abort(new Error("enough"));
    await expect(get(token, { signal: stop.signal, onProgress })).rejects.toThrow("enough");
  };
  return {
    registry,
    target,
    get,
    stopAfter,
    fail: (...faults: Fault[]) => registry.fail(digest, ...faults),
    served: () => registry.served(digest),
    names: () => readdirSync(folder).toSorted(),
    isWhole: () => readFileSync(target).equals(content),
  };
}

describe("a download", () => {
  test("leaves the whole file and nothing else, and does nothing when it is there", async () => {
    const { get, names, isWhole, served } = await harness();
    expect(await get()).toEqual({ resumedAt: 0, received: 300_000 });
    expect([names(), isWhole()]).toEqual([["blob"], true]);
    expect(await get()).toEqual({ resumedAt: 300_000, received: 0 });
    expect(served().requests).toBe(1);
  });

  test("goes on where a broken connection ended", async () => {
    const { get, stopAfter, served, names, isWhole } = await harness();
    await stopAfter(100_000);
    await stopAfter(50_000);
    expect(await get()).toEqual({ resumedAt: 150_000, received: 150_000 });
    expect([names(), isWhole()]).toEqual([["blob"], true]);
    expect(served()).toEqual({
      requests: 3,
      bytes: 300_000,
      ranges: ["bytes=100000-", "bytes=150000-"],
    });
  });

  test("is whole after a break, however much of what was sent has arrived", async () => {
    const { get, fail, target, isWhole, names } = await harness();
    fail({ type: "cut", afterBytes: 100_000 });
    await expect(get()).rejects.toThrow("terminated");
    expect(existsSync(target)).toBe(false);
    const { resumedAt, received } = await get();
    expect(resumedAt).toBeLessThanOrEqual(100_000);
    expect(resumedAt + received).toBe(300_000);
    expect([names(), isWhole()]).toEqual([["blob"], true]);
  });

  test("goes on from what an earlier claim of its run left, in a file of its own", async () => {
    const { get, target, stopAfter, names } = await harness();
    await stopAfter(100_000, 3);
    expect(names()).toEqual(["blob~run~3~etag", "blob~run~3~part"]);
    await stopAfter(10_000, 4);
    expect(names()).toEqual(["blob~run~4~etag", "blob~run~4~part"]);
    // The one that was thought dead goes on writing, and does no harm.
    writeFileSync(temporaryPath(target, { runId: "run", token: 3 }, "part"), "rubbish");
    expect(await get(5)).toEqual({ resumedAt: 110_000, received: 190_000 });
    expect(names()).toEqual(["blob"]);
  });

  test("goes on from the last part that was whole when its pod died while it was copied", async () => {
    const { get, target, stopAfter, names } = await harness();
    await stopAfter(100_000, 3);
    // The next claim had copied half of it.
    const copy = temporaryPath(target, { runId: "run", token: 4 }, "part");
    writeFileSync(copy, content.subarray(0, 50_000));
    expect(await get(5)).toEqual({ resumedAt: 100_000, received: 200_000 });
    expect(names()).toEqual(["blob"]);
  });

  test("leaves what other runs are writing alone", async () => {
    const { get, names, target } = await harness();
    writeFileSync(temporaryPath(target, { runId: "other", token: 1 }, "part"), "theirs");
    await get();
    expect(names()).toEqual(["blob", "blob~other~1~part"]);
  });

  test("begins anew when the registry has another version meanwhile", async () => {
    const { get, stopAfter, fail, isWhole } = await harness();
    await stopAfter(100_000);
    fail({ type: "changed" });
    expect(await get()).toEqual({ resumedAt: 0, received: 300_000 });
    expect(isWhole()).toBe(true);
  });

  test("begins anew when the registry knows no ranges", async () => {
    const { get, stopAfter, fail, isWhole } = await harness();
    await stopAfter(100_000);
    fail({ type: "no_ranges" });
    expect(await get()).toEqual({ resumedAt: 0, received: 300_000 });
    expect(isWhole()).toBe(true);
  });

  test("begins anew when what it had was damaged meanwhile", async () => {
    const { get, stopAfter, target, isWhole, names } = await harness();
    await stopAfter(100_000);
    const part = temporaryPath(target, { runId: "run", token: 1 }, "part");
    writeFileSync(part, Buffer.alloc(100_000));
    await expect(get()).rejects.toThrow("isn't what its digest says");
    expect(names()).toEqual([]);
    expect(await get()).toEqual({ resumedAt: 0, received: 300_000 });
    expect(isWhole()).toBe(true);
  });

  test("whose part is longer than the whole begins anew", async () => {
    const { get, target, isWhole } = await harness();
    const writer = { runId: "run", token: 1 };
    writeFileSync(temporaryPath(target, writer, "part"), Buffer.alloc(400_000));
    writeFileSync(temporaryPath(target, writer, "etag"), `"${digest}"`);
    expect(await get()).toEqual({ resumedAt: 0, received: 300_000 });
    expect(isWhole()).toBe(true);
  });

  test("whose part is whole only has to rename it", async () => {
    const { get, target, served, names } = await harness();
    writeFileSync(temporaryPath(target, { runId: "run", token: 1 }, "part"), content);
    expect(await get()).toEqual({ resumedAt: 300_000, received: 0 });
    expect([served().requests, names()]).toEqual([0, ["blob"]]);
  });

  test("with a wrong checksum never becomes the file, and the next attempt can succeed", async () => {
    const { get, fail, names, isWhole } = await harness();
    fail({ type: "corrupt" });
    await expect(get()).rejects.toThrow("isn't what its digest says");
    expect(names()).toEqual([]);
    await get();
    expect(isWhole()).toBe(true);
  });

  test("replaces a file that isn't what it should be", async () => {
    const { get, target, isWhole } = await harness();
    writeFileSync(target, Buffer.alloc(300_000));
    await get();
    expect(isWhole()).toBe(true);
  });

  test("that is longer than was promised is refused at that byte", async () => {
    const { get, fail, target } = await harness();
    fail({ type: "longer" });
    await expect(get()).rejects.toMatchObject({ reason: "too_large" });
    expect(existsSync(target)).toBe(false);
  });

  test("that is larger than the limit isn't begun", async () => {
    const { get, served } = await harness();
    const limits = { ...imageLimits, blobBytes: 200_000 };
    await expect(get(1, { limits })).rejects.toMatchObject({ reason: "too_large" });
    expect(served().requests).toBe(0);
  });

  test("that isn't there is refused, and trouble is not", async () => {
    const { get, registry, fail } = await harness();
    const url = `${registry.url}/v2/demo/app/blobs/sha256:none`;
    await expect(get(1, { url })).rejects.toMatchObject({ reason: "not_found" });
    fail({ type: "status", status: 503 }, { type: "status", status: 429, retryAfterS: 7 });
    await expect(get()).rejects.toThrow("answered 503");
    await expect(get()).rejects.toMatchObject({ retryAfterMs: 7_000 });
  });

  test("that is slow isn't given up for as long as something comes", async () => {
    const { get } = await harness();
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    // Each chunk takes nearly as long as it may.
    const onProgress = () => void vi.advanceTimersByTime(29_000);
    expect(await get(1, { idleMs: 30_000, onProgress })).toMatchObject({ received: 300_000 });
  });

  test("that stalls is given up, and goes on from there", async () => {
    const { get, fail } = await harness();
    fail({ type: "stall", afterBytes: 100_000 });
    await expect(get(1, { idleMs: 300 })).rejects.toThrow("sent nothing for 300 ms");
    expect(await get()).toEqual({ resumedAt: 100_000, received: 200_000 });
  });
});

describe("a name", () => {
  const options = { limits: imageLimits, signal };

  test("is resolved to the layers that it stands for", async () => {
    const { registry } = await harness();
    const { manifest, manifestDigest } = await resolve(registry.url, "demo/app:1", options);
    expect(manifest.layers).toMatchObject([{ digest, size: 300_000 }]);
    expect(manifestDigest).toBe(digestOf(JSON.stringify(manifest)) satisfies Digest);
  });

  test.each(["demo/app", "demo/../app:1", "Demo:1", "demo:1/2", ":1", "demo:", "/demo:1"])(
    "that isn't one is refused: %s",
    async (name) => {
      await expect(resolve("http://127.0.0.1:9", name, options)).rejects.toMatchObject({
        reason: "bad_manifest",
      });
    },
  );

  test("with a manifest that is damaged, too large, too long or missing isn't used", async () => {
    const { registry } = await harness();
    registry.fail("demo/app:1", { type: "corrupt" });
    await expect(resolve(registry.url, "demo/app:1", options)).rejects.toThrow("damaged");
    const tight = { signal, limits: { ...imageLimits, manifestBytes: 100 } };
    await expect(resolve(registry.url, "demo/app:1", tight)).rejects.toMatchObject({
      reason: "too_large",
    });
    const few = { signal, limits: { ...imageLimits, layers: 0 } };
    await expect(resolve(registry.url, "demo/app:1", few)).rejects.toMatchObject({
      reason: "too_many",
    });
    await expect(resolve(registry.url, "demo/app:2", options)).rejects.toMatchObject({
      reason: "not_found",
    });
  });
});
