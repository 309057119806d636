import { describe, expect, test } from "vitest";
import { endsOf, misfolded, type StoredRun } from "./ends.ts";
import { createFlowFleet, fleetMs, type FlowFleet } from "./fleet.ts";
import type { OrderInput } from "./order.ts";
import { type Called, callsIn, readReports } from "./reports.ts";
import { storeKinds } from "../harness.ts";
import { monotonicMs } from "../ledger.ts";
import type { PodProcess } from "../pod-handle.ts";
import { pauseFor, until } from "../until.ts";

// No pod is to be taken for dead, and no test waits for a transition that takes long.
const config = { heartbeatMs: 1_000, deadAfterMs: 30_000, shutdownMs: 200 };

describe.each(storeKinds)("on %s, under load", (on) => {
  test(
    "pods that are stopped and replaced one after another lose no run, and none counts it as a failure",
    async () => {
      const fleet = await createFlowFleet(on, { recovers: false });
      const pods = await startAll(fleet, 3);
      const kinds = ["works", "naps", "family", "asks", "hands-off", "lasts"];
      const load = startLoad((nth) => {
        const input = { key: `${nth}/${kinds[nth % kinds.length]}`, failures: 0 };
        return fleet.flotilla.runs.start(kinds[nth % kinds.length]!, input);
      });
      for (const pod of pods) {
        await until("it has just begun with something that takes long", () =>
          takesLong(fleet, pod),
        );
        await replace(fleet, pod, 1);
      }
      const started = await load.stop();

      const runs = await fleet.allEnded();
      const ends = endsOf(fleet, runs);
      expect(started).toBeGreaterThan(50);
      expect(runs.length).toBeGreaterThan(started);
      expect(misfolded(runs)).toEqual([]);
      // Only what a kid of a family does on purpose.
      const isMeant = (key: string) => key.endsWith("/kid-3");
      const failed = [...ends].filter(
        ([key, { status }]) => status !== "completed" && !isMeant(key),
      );
      expect(failed).toEqual([]);
      const counted = runs.filter(({ events, key }) =>
        events.some(({ type }) => !isMeant(key) && (type === "error" || type === "pod_died")),
      );
      expect(counted.map(({ key }) => key)).toEqual([]);
      expect(doneTwice(fleet)).toEqual([]);
      expect(interrupted(fleet).length).toBeGreaterThanOrEqual(pods.length);
    },
    fleetMs,
  );

  // Who may claim which version is one condition, and on each store the contract holds it.
  test.runIf(on === "postgres")(
    "a new version and the one before it take turns, and the older never touches what the newer has advanced",
    async () => {
      const fleet = await createFlowFleet(on, { recovers: false });
      const versions = new Map<string, number>();
      const roll = async (pods: readonly PodProcess[], version: number): Promise<PodProcess[]> => {
        const next: PodProcess[] = [];
        for (const pod of pods) next.push(await replace(fleet, pod, version));
        return next;
      };
      const first = await startAll(fleet, 2);
      const order = (input: OrderInput) => fleet.flotilla.runs.start("order", input);
      // These stand where the second version has another name, or nothing.
      for (const waitsAt of ["charge", "legacy"]) {
        await order({ key: `waits/${waitsAt}`, waitsAt, goes: true });
      }
      const load = startLoad((nth) => order({ key: `${nth}/order`, goes: nth % 4 !== 0 }));
      await until("those that wait do so", async () =>
        (await fleet.runs()).filter(({ key }) => key.startsWith("waits/")).every(hasWaited),
      );
      const second = await roll(first, 2);
      await until("those that wait have gone on", async () =>
        (await fleet.runs()).filter(({ key }) => key.startsWith("waits/")).every(isOver),
      );
      await roll(second, 1);
      const started = await load.stop();
      for (const pod of fleet.pods) versions.set(pod.podId, 1);
      for (const pod of second) versions.set(pod.podId, 2);

      // Every run may go on now, but only pods of the first version are there.
      await until("only what the second version has advanced is left", async () => {
        const open = (await fleet.runs()).filter((run) => !isOver(run));
        await Promise.all(
          open.map(({ runId }) =>
            fleet.flotilla.runs.signal(runId, "go", null, { id: "go" }).catch(() => {}),
          ),
        );
        await pauseFor(100);
        return open.every(({ columns }) => columns.version === 2);
      });
      const left = (await fleet.runs()).filter((run) => !isOver(run));
      expect(left.length).toBeGreaterThan(0);
      const last = await fleet.startFlows({ version: 2 }, config);
      versions.set(last.podId, 2);

      const runs = await fleet.allEnded();
      expect(started).toBeGreaterThan(50);
      expect(runs.map(({ status }) => status)).toEqual(runs.map(() => "completed"));
      expect(misfolded(runs)).toEqual([]);
      expect(doneTwice(fleet)).toEqual([]);
      expect(touchedByOlder(fleet, versions)).toEqual([]);
      const ends = endsOf(fleet, runs);
      for (const { key, columns } of runs) {
        const done = Object.keys(JSON.parse(columns.state!) as object);
        const paid = done.filter((name) => name === "charge" || name === "pay");
        const told = done.filter((name) => name === "legacy" || name === "notify");
        expect([key, paid.length, told.length, done.at(-1)]).toEqual([key, 1, 1, "ship"]);
        expect(ends.get(key)?.effects["tidy"]).toBe('"completed"');
      }
      expect(moves(runs)).toEqual(["removed", "renamed"]);
    },
    fleetMs,
  );
});

const isOver = ({ status }: StoredRun) => status !== "pending" && status !== "claimed";
const hasWaited = ({ events }: StoredRun) => events.some(({ type }) => type === "park");

function startAll(fleet: FlowFleet, count: number): Promise<PodProcess[]> {
  return Promise.all(Array.from({ length: count }, () => fleet.startFlows({ version: 1 }, config)));
}

async function replace(fleet: FlowFleet, pod: PodProcess, version: number): Promise<PodProcess> {
  const [next, exit] = await Promise.all([fleet.startFlows({ version }, config), pod.terminate()]);
  expect(exit).toEqual({ code: 0, signal: null });
  return next;
}

/** Starts runs one after another until it is told to stop, and says how many. */
function startLoad(start: (nth: number) => Promise<unknown>): { stop(): Promise<number> } {
  let isStopping = false;
  const started = (async () => {
    let nth = 0;
    for (; !isStopping; nth++) {
      await start(nth);
      await pauseFor(25);
    }
    return nth;
  })();
  return {
    stop() {
      isStopping = true;
      return started;
    },
  };
}

/** Whether a pod runs something that it won't end before it has to stop. */
function takesLong(fleet: FlowFleet, { podId }: PodProcess): boolean {
  const reports = readReports(fleet.folder).filter(({ pod }) => pod === podId);
  const ended = new Set(reports.flatMap((each) => (each.event === "end" ? [callOf(each)] : [])));
  return callsIn(reports).some(
    (call) =>
      call.transition === "takes-long" &&
      call.atMs > monotonicMs() - 1_000 &&
      !ended.has(callOf(call)),
  );
}

function callOf({ key, transition }: Called): string {
  return `${key} ${transition}`;
}

function interrupted(fleet: FlowFleet): string[] {
  return readReports(fleet.folder).flatMap((each) =>
    each.event === "end" && !each.ok && each.transition === "takes-long" ? [each.key] : [],
  );
}

/** Functions that ran to their end more than once in the same run. */
function doneTwice(fleet: FlowFleet): string[] {
  const seen = new Set<string>();
  return readReports(fleet.folder).flatMap((each) => {
    if (each.event !== "end" || !each.ok) return [];
    const call = callOf(each);
    if (seen.has(call)) return [call];
    seen.add(call);
    return [];
  });
}

/** What a pod of an older version did with a run that a newer one had advanced. */
function touchedByOlder(fleet: FlowFleet, versions: ReadonlyMap<string, number>): string[] {
  const advancedTo = new Map<string, number>();
  return readReports(fleet.folder).flatMap((each) => {
    const version = versions.get(each.pod)!;
    const known = advancedTo.get(each.runId) ?? 0;
    if (version < known) return [`${each.key}: ${each.event} by ${version} after ${known}`];
    if (each.event === "stored") advancedTo.set(each.runId, Math.max(known, version));
    return [];
  });
}

function moves(runs: readonly StoredRun[]): string[] {
  const found = runs.flatMap(({ events }) =>
    events.flatMap((event) => (event.type === "move" ? [event.why] : [])),
  );
  return [...new Set(found)].toSorted();
}
