import { type ChildProcess, execFile } from "node:child_process";
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { built } from "../../built.ts";
import { hexOf } from "../../../examples/images/disk/digest.ts";
import { openHome } from "../../../examples/images/home.ts";
import { startRegistry } from "../../../examples/images/registry/registry.ts";
import { sampleLayers } from "../../../examples/images/sample.ts";
import { compare, fingerprint } from "../../../examples/images/store/fingerprint.ts";
import { reconcile } from "../../../examples/images/store/reconcile.ts";
import { temporaryFolder } from "./places.ts";

const program = fileURLToPath(new URL("image-process.ts", import.meta.url));
const reference = "demo/sample:1";

type Ended = { readonly stdout: string; readonly stderr: string; readonly signal: string | null };

function startImage(
  folder: string,
  registry: string,
  killAt = 0,
): { child: ChildProcess; ended: Promise<Ended> } {
  const args = [built.program(program), folder, registry, reference, `${killAt}`];
  let child: ChildProcess;
  const ended = new Promise<Ended>((resolve) => {
    child = execFile(process.execPath, args, { timeout: 150_000 }, (error, stdout, stderr) =>
      resolve({ stdout, stderr, signal: error?.signal ?? null }),
    );
  });
  return { child: child!, ended };
}

const runImage = (...given: Parameters<typeof startImage>) => startImage(...given).ended;

/** All of them take minutes; a few, spread over the whole, take seconds. */
const points = Number(process.env["IMAGES_KILLS"] ?? 3);

describe("a process that is killed", () => {
  test(
    "while it changes the disk leaves what the next one brings to the same end",
    { timeout: 600_000 },
    async () => {
      await using registry = await startRegistry();
      registry.push(reference, sampleLayers());
      const clean = temporaryFolder();
      const ended = await runImage(clean, registry.url);
      const changes = Number(/^changes: (\d+)$/m.exec(ended.stdout)?.[1]);
      expect(changes).toBeGreaterThan(30);
      const expected = await fingerprint(join(clean, "home"));

      const step = Math.max(1, changes / points);
      const kills = Array.from({ length: Math.min(points, changes) }, (_, at) =>
        Math.ceil(1 + at * step),
      );
      const wrong: unknown[] = [];
      const killOne = async (killAt: number): Promise<void> => {
        const folder = temporaryFolder();
        const killed = await runImage(folder, registry.url, killAt);
        if (killed.signal !== "SIGKILL")
          wrong.push({ killAt, stderr: killed.stderr.slice(-2_000) });
        const again = await runImage(folder, registry.url);
        using home = await openHome(join(folder, "home"));
        const different = compare(expected, await fingerprint(home.places.home));
        const orphans = await reconcile(home.places, home.metadata);
        if (different.length + orphans.length === 0) return;
        wrong.push({ killAt, different, orphans, stderr: again.stderr.slice(-2_000) });
      };
      // Most of the time the second of each waits until the first is taken for dead.
      const lines = Array.from({ length: 4 }, async (_, line) => {
        for (const killAt of kills.filter((_each, at) => at % 4 === line)) await killOne(killAt);
      });
      await Promise.all(lines);
      expect(wrong).toEqual([]);
    },
  );

  test("in the middle of a download leaves a part that the next one goes on with", async () => {
    await using registry = await startRegistry();
    const { layers } = registry.push(reference, sampleLayers());
    const clean = temporaryFolder();
    await runImage(clean, registry.url);
    const large = layers[1]!.digest;
    registry.fail(large, { type: "stall", afterBytes: 100_000 });
    const folder = temporaryFolder();
    const { child, ended } = startImage(folder, registry.url);
    const blobs = join(folder, "home/blobs");
    const names = (pattern: RegExp) =>
      existsSync(blobs) ? readdirSync(blobs).filter((name) => pattern.test(name)) : [];
    const sizes = () => names(/~part$/).map((name) => statSync(join(blobs, name)).size);
    await expect.poll(sizes).toContain(100_000);
    child.kill("SIGKILL");
    expect((await ended).signal).toBe("SIGKILL");
    expect(names(new RegExp(`^${hexOf(large)}$`))).toEqual([]);
    await runImage(folder, registry.url);
    expect(registry.served(large).ranges).toEqual(["bytes=100000-"]);
    const expected = await fingerprint(join(clean, "home"));
    expect(compare(expected, await fingerprint(join(folder, "home")))).toEqual([]);
  });
});
