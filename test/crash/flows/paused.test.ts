import { describe, expect, test } from "vitest";
import { endsOf, misfolded } from "./ends.ts";
import { createFlowFleet, type FlowFleet } from "./fleet.ts";
import { callsIn, readReports } from "./reports.ts";
import { storeKinds } from "../harness.ts";
import { until } from "../until.ts";

// Without polls, a pod learns that it has lost a run only by the store's refusal. It takes none for dead, so
// that it takes back nothing.
const unaware = { pollMs: 60_000, deadAfterMs: 60_000 };
const key = "one/held";

describe.each(storeKinds)("on %s, a pod that was paused in the middle of a transition", (on) => {
  test("can't go on with a run that another pod has by now", async () => {
    const fleet = await createFlowFleet(on, { recovers: false });
    const first = await fleet.startFlows({}, unaware);
    const { runId } = await fleet.flotilla.runs.start("held", { key, failures: 0 });
    await heldOn(fleet, first.podId);
    const second = await fleet.startFlows();

    await first.pauseOutsideWrites();
    await heldOn(fleet, second.podId);
    first.open("door");
    first.resume();
    await until("the first pod's write was refused, or taken", () =>
      readReports(fleet.folder).some(
        (each) =>
          (each.event === "lost" || (each.event === "start" && each.transition === "last")) &&
          each.pod === first.podId,
      ),
    );
    expect(await fleet.flotilla.runs.get(runId)).toMatchObject({
      at: "held",
      doing: { type: "running", podId: second.podId },
    });
    second.open("door");

    const [run] = await fleet.allEnded();
    expect(callsOf(fleet)).toEqual([
      { transition: "first", pod: first.podId },
      { transition: "held", pod: first.podId },
      { transition: "held", pod: second.podId },
      { transition: "last", pod: second.podId },
      { transition: "tidy", pod: second.podId },
    ]);
    expect(endsOf(fleet, [run!]).get(key)).toMatchObject({ status: "completed" });
    expect(misfolded([run!])).toEqual([]);
  });

  test("has done what no other pod has begun again meanwhile", async () => {
    const fleet = await createFlowFleet(on);
    const first = await fleet.startFlows();
    const { runId } = await fleet.flotilla.runs.start("held", { key, failures: 0 });
    await heldOn(fleet, first.podId);

    await first.pauseOutsideWrites();
    await until("the run was recovered", async () => {
      const run = await fleet.flotilla.runs.get(runId);
      return run?.doing?.type === "ready" && run.deaths > 0;
    });
    // What it is told first, it hears first: it can't have claimed the run again.
    first.open("door");
    first.resume();

    const [run] = await fleet.allEnded();
    expect(endsOf(fleet, [run!]).get(key)).toMatchObject({
      status: "completed",
      calls: { "first 1": 1, "last 1": 1, "tidy 1": 1 },
    });
    expect(misfolded([run!])).toEqual([]);
  });
});

async function heldOn(fleet: FlowFleet, podId: string): Promise<void> {
  await until(`it is held on ${podId}`, () =>
    callsOf(fleet).some(({ transition, pod }) => transition === "held" && pod === podId),
  );
}

function callsOf(fleet: FlowFleet) {
  return callsIn(readReports(fleet.folder)).map(({ transition, pod }) => ({ transition, pod }));
}
