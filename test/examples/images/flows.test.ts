import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Interceptor } from "../../../examples/images/flows/options.ts";
import { sampleLayers } from "../../../examples/images/sample.ts";
import { compare } from "../../../examples/images/store/fingerprint.ts";
import { packLayer } from "../../../examples/images/tar/pack.ts";
import { cleanPrint, stage } from "./stage.ts";

type Active = { reference: string; imageId: string; snapshotId: string };

describe("an image", () => {
  test("is downloaded, unpacked and activated, and leaves nothing unknown", async () => {
    const { run, home, orphans, pod } = await stage();
    const active = (await run()) as Active;
    const root = home.places.snapshot(active.snapshotId);
    expect(readdirSync(root).toSorted()).toEqual(["app", "bin", "etc", "usr", "var"]);
    expect(readdirSync(join(root, "etc"))).toEqual(["hostname"]);
    expect(readdirSync(join(root, "var/cache"))).toEqual(["new"]);
    expect(readFileSync(join(root, "app/run"), "utf8")).toContain("echo hello");
    expect(home.metadata.image("demo/sample:1")).toEqual(active);
    expect(await orphans()).toEqual([]);
    const { runs } = await pod.runs.list({ flow: "image" });
    expect(runs[0]).toMatchObject({ status: "completed", output: active });
  });

  test("that is there already is left as it is, without requesting its layers", async () => {
    const { run, registry, layers, print, pod } = await stage();
    const first = await run();
    const before = await print();
    expect(await run()).toEqual(first);
    expect(layers.map((digest) => registry.served(digest).requests)).toEqual([1, 1]);
    expect(await print()).toEqual(before);
    expect((await pod.runs.list({ flow: "unpack" })).runs).toHaveLength(1);
  });

  test("of which anything was damaged or lost is made whole again", async () => {
    const { run, home, print, layers, registry } = await stage();
    const { imageId, snapshotId } = (await run()) as Active;
    const whole = await print();
    const { places } = home;
    rmSync(join(places.snapshot(snapshotId), "app/version"));
    await run();
    expect(compare(whole, await print())).toEqual([]);
    writeFileSync(join(places.image(imageId), "more"), "more");
    rmSync(places.snapshot(snapshotId), { recursive: true });
    await run();
    expect(compare(whole, await print())).toEqual([]);
    expect(registry.served(layers[0]!).requests).toBe(1);
    for (const name of readdirSync(places.blobs)) writeFileSync(join(places.blobs, name), "bad");
    rmSync(places.images, { recursive: true });
    rmSync(places.snapshots, { recursive: true });
    await run();
    expect(compare(whole, await print())).toEqual([]);
    expect(registry.served(layers[0]!).requests).toBe(2);
  });

  test("whose name moves to another image shares what both have", async () => {
    const { run, registry, home, layers, orphans } = await stage();
    const first = (await run()) as Active;
    registry.push("demo/sample:1", sampleLayers("2"));
    const second = (await run()) as Active;
    expect(second.imageId).not.toBe(first.imageId);
    expect(registry.served(layers[0]!).requests).toBe(1);
    expect(home.metadata.image("demo/sample:1")).toEqual(second);
    const version = join(home.places.snapshot(second.snapshotId), "app/version");
    expect(readFileSync(version, "utf8")).toBe("2\n");
    expect(await orphans()).toEqual([]);
  });

  test("comes over a line that breaks, lies and refuses, as if it hadn't", async () => {
    const { run, registry, layers, print } = await stage();
    registry.fail("demo/sample:1", { type: "status", status: 500 }, { type: "corrupt" });
    registry.fail(
      layers[1]!,
      { type: "cut", afterBytes: 90_000 },
      { type: "corrupt" },
      { type: "status", status: 503 },
    );
    await run();
    expect(compare(await cleanPrint(), await print())).toEqual([]);
  });

  test("that several want at once is made for all of them", async () => {
    const { run, print, orphans } = await stage();
    const all = await Promise.all(Array.from({ length: 4 }, () => run()));
    expect(new Set(all.map((each) => JSON.stringify(each))).size).toBe(1);
    expect(compare(await cleanPrint(), await print())).toEqual([]);
    expect(await orphans()).toEqual([]);
  });
});

describe("what a transition did is the same when it is done again", () => {
  /** The effects are there, and no result was stored: as after a crash before the write. */
  const lostEnd: Interceptor = async ({ attempt }, next) => {
    const returned = await next();
    if (attempt === 1) throw new Error("the answer was lost");
    return returned;
  };

  test("after the answer of every transition and finalizer was lost once", async () => {
    const { run, print, orphans, pod } = await stage({ interceptors: [lostEnd] });
    await run();
    expect(compare(await cleanPrint(), await print())).toEqual([]);
    expect(await orphans()).toEqual([]);
    const { runs } = await pod.runs.list({ flow: "unpack" });
    const history = await pod.runs.history(runs[0]!.runId);
    const errors = history.filter(({ type }) => type === "error");
    expect(errors.map(({ transition }) => transition)).toEqual([
      "check",
      "extract",
      "verify",
      "store",
      "tidy",
    ]);
  });
});

describe("what can't be used", () => {
  test("a hostile image fails at once, and nothing of it is left", async () => {
    const { run, registry, print, pod, orphans } = await stage();
    await run();
    const before = await print();
    const evil = packLayer([{ path: "../evil", content: "x" }]);
    registry.push("demo/evil:1", [evil]);
    await expect(run("demo/evil:1")).rejects.toThrow("leads upwards");
    expect(compare(before, await print())).toEqual([]);
    expect(await orphans()).toEqual([]);
    const { runs } = await pod.runs.list({ flow: "download", status: "failed" });
    expect(runs[0]!.error).toMatchObject({ by: "user" });
    const history = await pod.runs.history(runs[0]!.runId);
    expect(history.filter(({ type }) => type === "error")).toHaveLength(1);
  });

  test("an image whose layers are harmless one by one, and not together", async () => {
    const { run, registry, print } = await stage();
    const lower = packLayer([{ path: "real/" }, { path: "l", target: "real" }]);
    const upper = packLayer([{ path: "l/file", content: "x" }]);
    registry.push("demo/evil:2", [lower, upper]);
    await expect(run("demo/evil:2")).rejects.toThrow("lies behind");
    const left = (await print()).filter((line) => /^(images|snapshots|trees)/.test(line));
    expect(left).toEqual([]);
  });

  test("an image that is larger than allowed, or isn't there", async () => {
    const { run, layers, registry } = await stage({ limits: { blobBytes: 100_000 } });
    await expect(run()).rejects.toThrow("more than 100000");
    expect(registry.served(layers[0]!).requests).toBe(0);
    await expect(run("demo/none:1")).rejects.toThrow("answered 404");
    await expect(run("no name")).rejects.toThrow("isn't a repository and a tag");
  });

  test("a layer that never has its digest fails after five attempts, and isn't kept", async () => {
    const { run, registry, layers, home, orphans } = await stage();
    registry.fail(layers[1]!, ...Array.from({ length: 9 }, () => ({ type: "corrupt" }) as const));
    await expect(run()).rejects.toThrow("isn't what its digest says");
    expect(registry.served(layers[1]!).requests).toBe(5);
    expect(readdirSync(home.places.blobs)).toHaveLength(1);
    expect(await orphans()).toEqual([]);
  });
});

describe("trouble around it", () => {
  test("an error of a read is tried again, and isn't taken for an absence", async () => {
    let errors = 0;
    const { run, registry, layers, folder, pod } = await stage();
    await run();
    await pod.stop();
    const again = await stage({
      folder,
      registry,
      changed: (home) => ({
        ...home,
        metadata: {
          ...home.metadata,
          // The snapshot looks lost, so that all the others are looked at.
          image: () => undefined,
          blob(digest) {
            if (errors++ < 2) throw new Error("the disk has a bad day");
            return home.metadata.blob(digest);
          },
        },
      }),
    });
    await again.run();
    expect(errors).toBeGreaterThan(2);
    expect(layers.map((digest) => registry.served(digest).requests)).toEqual([1, 1]);
  });

  test("nothing begins while the pool can't be used, and it isn't an attempt", async () => {
    const { pod, flows, home, print, registry, layers } = await stage();
    rmSync(home.places.blobs, { recursive: true });
    writeFileSync(home.places.blobs, "in the way");
    const reference = "demo/sample:1";
    const { runId } = await pod.runs.start(flows.image, { reference });
    const downloads = async () => (await pod.runs.list({ flow: "download" })).runs;
    await expect.poll(async () => (await downloads())[0]?.at).toBe("download");
    const types = async () =>
      (await pod.runs.history((await downloads())[0]!.runId)).map(({ type }) => type);
    await expect.poll(types).toContain("park");
    expect(registry.served(layers[0]!).requests).toBe(0);
    rmSync(home.places.blobs);
    await pod.runs.wait(runId);
    expect((await types()).filter((type) => type === "error")).toEqual([]);
    expect(compare(await cleanPrint(), await print())).toEqual([]);
  });

  test("a run that is cancelled in the middle of a download leaves nothing", async () => {
    const { pod, flows, home, registry, layers, print, orphans } = await stage();
    registry.fail(layers[1]!, { type: "stall", afterBytes: 100_000 });
    const { runId } = await pod.runs.start(flows.image, { reference: "demo/sample:1" });
    await expect.poll(() => registry.served(layers[1]!).bytes).toBe(100_000);
    // The other one has come, is known, and stays.
    const isKnown = () => home.metadata.blob(layers[0]!) !== undefined;
    await expect.poll(isKnown).toBe(true);
    await pod.runs.cancel(runId);
    await expect(pod.runs.wait(runId)).rejects.toThrow("cancelled");
    // It has told its children, and doesn't wait for their finalizers.
    const open = async () =>
      (await pod.runs.list()).runs.filter(({ status }) => status === "open").length;
    await expect.poll(open).toBe(0);
    expect(await orphans()).toEqual([]);
    const left = (await print()).map((line) => line.split(" ")[0]);
    expect(left).toEqual(["blobs:", "blobs:"]);
  });

  test("a pod that stops in the middle of a download leaves the rest to the next one", async () => {
    const { pod, flows, registry, layers, folder, home } = await stage();
    registry.fail(layers[1]!, { type: "stall", afterBytes: 100_000 });
    const { runId } = await pod.runs.start(flows.image, { reference: "demo/sample:1" });
    const part = () =>
      readdirSync(home.places.blobs).some(
        (name) =>
          name.endsWith("~part") && readFileSync(join(home.places.blobs, name)).length === 100_000,
      );
    await expect.poll(part).toBe(true);
    await pod.stop();
    const next = await stage({ folder, registry });
    await next.pod.runs.wait(runId);
    expect(registry.served(layers[1]!).ranges).toEqual(["bytes=100000-"]);
    expect(compare(await cleanPrint(), await next.print())).toEqual([]);
  });
});

describe("limits", () => {
  test("one image is unpacked at a time, and five layers are downloaded", async () => {
    const now = new Map<string, number>();
    const most = new Map<string, number>();
    const count: Interceptor = async ({ flow, transition }, next) => {
      const name = `${flow}.${transition}`;
      const running = (now.get(name) ?? 0) + 1;
      now.set(name, running);
      most.set(name, Math.max(most.get(name) ?? 0, running));
      try {
        return await next();
      } finally {
        now.set(name, now.get(name)! - 1);
      }
    };
    const { run, registry, orphans } = await stage({ interceptors: [count] });
    const references = Array.from({ length: 8 }, (_, at) => `demo/many:${at}`);
    for (const reference of references) registry.push(reference, sampleLayers(reference));
    await Promise.all(references.map((reference) => run(reference)));
    expect(most.get("unpack.extract")).toBe(1);
    expect(most.get("download.download")).toBeLessThanOrEqual(5);
    expect(await orphans()).toEqual([]);
  });
});
