import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { startRegistry } from "../../../examples/images/registry/registry.ts";
import { sampleLayers } from "../../../examples/images/sample.ts";
import { compare, fingerprint } from "../../../examples/images/store/fingerprint.ts";
import { openHome } from "../../../examples/images/home.ts";
import { reconcile } from "../../../examples/images/store/reconcile.ts";
import { endsOf, misfolded } from "./ends.ts";
import { createFlowFleet, fleetMs, type FlowFleet } from "./fleet.ts";
import { imageKey } from "./images.ts";
import { differences, notAt, notReached, pointsOf, runAgain } from "./points.ts";
import { readReports } from "./reports.ts";
import { storeKinds } from "../harness.ts";
import { until } from "../until.ts";

const reference = "demo/sample:1";

describe.each(storeKinds)("on %s, an image", (on) => {
  test(
    "whose process is killed after any event of its flows is there in the end as if nothing had happened",
    async () => {
      await using registry = await startRegistry();
      registry.push(reference, sampleLayers());
      const folder = temporaryFolder();
      const images = { registry: registry.url, folder };
      const fleet = await createFlowFleet(on, {
        keyOf: ({ rootKey, flow, payload }) => imageKey(rootKey, flow, payload),
      });
      await begin(fleet, "clean");
      const undisturbed = await fleet.startFlows({ images });
      const clean = endsOf(fleet, await fleet.allEnded());
      await undisturbed.kill();
      const print = await fingerprint(join(folder, "clean"));
      expect(print.length).toBeGreaterThan(20);

      // What is done between two writes is killed in the middle by the example's own tests.
      const points = pointsOf(readReports(fleet.folder), ["after write"]);
      expect(points.length).toBeGreaterThan(25);
      await Promise.all(points.map(({ label }) => begin(fleet, label)));
      const stops = Object.fromEntries(points.map(({ key, stop }) => [key, stop]));
      const first = await fleet.startFlows({ images, stops });
      const before = await fleet.quiet(first);
      // A run's last write may be committed, and its answer on the way.
      await until(
        "each run has stopped at its point",
        () => notReached(points, readReports(fleet.folder)).length === 0,
      );
      await first.kill();
      expect(points.flatMap((point) => notAt(point, before, clean))).toEqual([]);

      const second = await fleet.startFlows({ images });
      const after = await fleet.allEnded();
      const ends = endsOf(fleet, after);
      expect(points.flatMap((point) => differences(point, ends, clean))).toEqual([]);
      expect(runAgain(readReports(fleet.folder), before, second.podId)).toEqual([]);
      expect(misfolded(after)).toEqual([]);
      await second.kill();
      const left = await Promise.all(
        points.map(async ({ label, key, stop }) => {
          using home = await openHome(join(folder, label));
          const wrong = compare(print, await fingerprint(join(folder, label)));
          const orphans = await reconcile(home.places, home.metadata);
          return wrong.length + orphans.length > 0 ? [{ key, stop, wrong, orphans }] : [];
        }),
      );
      expect(left.flat()).toEqual([]);
    },
    fleetMs,
  );
});

async function begin(fleet: FlowFleet, key: string): Promise<void> {
  await fleet.flotilla.runs.start("image", { reference }, { key });
}

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-images-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
