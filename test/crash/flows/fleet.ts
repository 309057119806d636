import { fileURLToPath } from "node:url";
import { createFleet, type Fleet, type StoreKind } from "../harness.ts";
import type { FlowsGiven } from "./flow-process.ts";
import { type End, endsOf, hasEnded, type Named, type StoredRun, storedRuns } from "./ends.ts";
import { type MachineInput, type Scenario, scenarioOf, scenarios } from "./machines.ts";
import { readReports } from "./reports.ts";
import type { PodProcess } from "../pod-handle.ts";
import { pauseFor, until } from "../until.ts";

const script = fileURLToPath(new URL("./flow-process.ts", import.meta.url));

export type FlowFleet = Fleet & {
  startFlows(given?: FlowsGiven, config?: object): Promise<PodProcess>;
  runs(): Promise<StoredRun[]>;
  /** Starts one run of each scenario, under this label. */
  begin(label: string, only: readonly Scenario[], failures?: number): Promise<void>;
  anyOpen(): Promise<boolean>;
  /** Waits until all runs have ended. */
  allEnded(): Promise<StoredRun[]>;
  /** Waits until nothing happens any more in a pod whose runs stop somewhere. */
  quiet(pod: PodProcess): Promise<StoredRun[]>;
};

// What was killed is missed soon, and what is merely late on a busy machine isn't.
const limits = { heartbeatMs: 100, deadAfterMs: 1_000 };

/** The most that a test of a whole fleet takes where the machine has much else to do. */
export const fleetMs = 180_000;

export type FlowFleetOptions = {
  readonly keyOf?: (named: Named) => string;
  /** Whether a pod without flows recovers the runs of dead ones. Default true. */
  readonly recovers?: boolean;
};

export async function createFlowFleet(
  on: StoreKind,
  { keyOf = keyInPayload, recovers = true }: FlowFleetOptions = {},
): Promise<FlowFleet> {
  const fleet = await createFleet({ on });
  if (recovers) await fleet.start({ names: ["work"], config: limits });
  const runs = () => storedRuns(fleet, keyOf);
  // A check takes time too, and the processes that are checked need the machine more.
  const open = async () => {
    await pauseFor(50);
    const rows = await fleet.sql(
      `select task_id, status, parked from flotilla_task
      where status in ('pending', 'claimed')`,
    );
    return rows.map((row) => ({
      runId: row["task_id"] as string,
      status: row["status"] as string,
      parked: row["parked"] as number,
    }));
  };
  const stopped = (pod: PodProcess) =>
    new Set(
      readReports(fleet.folder).flatMap((each) =>
        each.event === "halted" && each.pod === pod.podId ? [each.runId] : [],
      ),
    );
  return {
    ...fleet,
    runs,
    startFlows: (given = {}, config = {}) =>
      fleet.start({ script, given, config: { ...limits, ...config } }),
    async begin(label, only, failures = 2) {
      await Promise.all(
        only.map(async (scenario) => {
          const input: MachineInput = { key: `${label}/${scenario}`, failures };
          const { runId } = await fleet.flotilla.runs.start(scenario, input);
          // Some hear it before they ask.
          if (scenario === "asked") await approve(fleet, runId);
        }),
      );
    },
    anyOpen: async () => (await open()).length > 0,
    async allEnded() {
      await until("all runs have ended", async () => (await open()).length === 0, fleetMs);
      return runs();
    },
    async quiet(pod) {
      await until(
        "all runs have ended, wait or were stopped",
        async () => {
          const restless = (await open()).filter((run) => run.status === "claimed" || !isLong(run));
          const halted = stopped(pod);
          return restless.every(({ runId }) => halted.has(runId));
        },
        fleetMs,
      );
      return runs();
    },
  };
}

/** How runs end that nothing disturbs. */
export async function cleanEnds(fleet: FlowFleet, failures?: number): Promise<Map<string, End>> {
  await fleet.begin("clean", scenarios, failures);
  const pod = await fleet.startFlows();
  const runs = await fleet.allEnded();
  await pod.terminate();
  return endsOf(fleet, runs);
}

const keyInPayload = ({ payload }: Named) => (JSON.parse(payload) as { key: string }).key;

// Children or a signal, for as long as that takes.
const isLong = ({ parked }: { parked: number }) => parked === 2 || parked === 5;

/** Answers those that ask while no pod is there that could. */
export async function approveAll(fleet: Fleet, runs: readonly StoredRun[]): Promise<void> {
  const asking = runs.filter((run) => scenarioOf(run.key) === "asks" && !hasEnded(run));
  await Promise.all(asking.map(({ runId }) => approve(fleet, runId)));
}

async function approve(fleet: Fleet, runId: string): Promise<void> {
  await fleet.flotilla.runs.signal(runId, "approve", { by: "somebody" }, { id: "approval" });
}
