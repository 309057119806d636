import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { between, seededRandom } from "../../../src/base/random.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { type AgentsGiven, readAgentReports } from "./agents.ts";

const script = fileURLToPath(new URL("./agent-process.ts", import.meta.url));
const limits = { heartbeatMs: 100, deadAfterMs: 1_000 };
const fleetMs = 180_000;

const agentsOn = (fleet: Fleet, given: AgentsGiven = {}) =>
  fleet.start({ script, given, config: limits });

const enqueueAll = async (
  fleet: Fleet,
  labels: readonly string[],
): Promise<Map<string, string>> => {
  const enqueued = await Promise.all(
    labels.map(async (label) => [(await fleet.flotilla.enqueue("agent", { label })).taskId, label]),
  );
  return new Map(enqueued as [string, string][]);
};

/** Waits until all agents have ended, and gives what each has said. */
async function allEnded(fleet: Fleet, labels: ReadonlyMap<string, string>) {
  await until(
    "all agents have ended",
    async () => {
      const open = await fleet.sql(
        "select task_id from flotilla_task where status in ('pending', 'claimed')",
      );
      return open.length === 0;
    },
    fleetMs,
  );
  const rows = await fleet.sql("select task_id, status, result, error from flotilla_task");
  return new Map(
    rows.map((row) => [
      labels.get(row["task_id"] as string),
      JSON.stringify([row["status"], row["result"], row["error"]]),
    ]),
  );
}

const storedSteps = async (fleet: Fleet, labels: ReadonlyMap<string, string>) => {
  const rows = await fleet.sql("select owner_id, key from flotilla_step_journal");
  return new Set(rows.map((row) => `${labels.get(row["owner_id"] as string)} ${row["key"]}`));
};

/** Steps that a later process began although they were stored before it came. */
const begunAgain = (fleet: Fleet, pods: readonly number[], stored: ReadonlySet<string>) =>
  readAgentReports(fleet.folder)
    .filter(({ pod, begins }) => pods.includes(pod) && begins !== undefined)
    .map(({ label, begins }) => `${label} ${begins}`)
    .filter((step) => stored.has(step));

const podsIn = (fleet: Fleet) => [...new Set(readAgentReports(fleet.folder).map(({ pod }) => pod))];

describe.each(storeKinds)("on %s, durable agents", (on) => {
  test(
    "that are killed once, at any place, say what they would have said, and pay for nothing twice",
    async () => {
      const fleet = await createFleet({ on });
      const clean = await enqueueAll(fleet, ["clean"]);
      const undisturbed = await agentsOn(fleet);
      const expected = (await allEnded(fleet, clean)).get("clean");
      await undisturbed.terminate();
      const places = readAgentReports(fleet.folder).filter(({ effect }) => effect === undefined);
      expect(places.length).toBeGreaterThan(25);
      expect(expected).toContain("all is done");

      const stops = Object.fromEntries(places.map(({ place }, at) => [`${at}`, place]));
      const labels = new Map([...clean, ...(await enqueueAll(fleet, Object.keys(stops)))]);
      const first = await agentsOn(fleet, { stops });
      const hasStopped = ({ label, place }: { label: string; place: string }) =>
        stops[label] === place;
      await until(
        "each agent has stopped at its place",
        () =>
          new Set(
            readAgentReports(fleet.folder)
              .filter(hasStopped)
              .map(({ label }) => label),
          ).size === places.length,
        fleetMs,
      );
      // What was asked for before may still be on its way to the store.
      let before = await storedSteps(fleet, labels);
      await until("nothing is stored any more", async () => {
        const now = await storedSteps(fleet, labels);
        const same = now.size === before.size;
        before = now;
        return same;
      });
      await first.kill();
      const earlier = podsIn(fleet);

      await agentsOn(fleet);
      const ended = await allEnded(fleet, labels);
      const different = [...ended].filter(([, said]) => said !== expected);
      expect(different).toEqual([]);
      const later = podsIn(fleet).filter((pod) => !earlier.includes(pod));
      expect(begunAgain(fleet, later, before)).toEqual([]);

      // By the ledger: a call or tool began once more at most, where the kill hit it.
      const reports = readAgentReports(fleet.folder);
      const begun = (label: string) =>
        reports.filter((each) => each.label === label && each.begins !== undefined).length;
      const most = Object.keys(stops).filter((label) => begun(label) > begun("clean") + 2);
      expect(most).toEqual([]);
      const effects = (label: string) =>
        new Set(reports.flatMap((each) => (each.label === label ? (each.effect ?? []) : []))).size;
      expect(Object.keys(stops).filter((label) => effects(label) !== 3)).toEqual([]);
    },
    fleetMs,
  );

  test(
    "that are killed again and again, at any moment, do so too",
    async () => {
      const seed = Date.now() % 1_000_000;
      console.info(`seed ${seed}`);
      const random = seededRandom(seed);
      const fleet = await createFleet({ on });
      const labels = await enqueueAll(fleet, ["clean", ..."abcdefghij".split("")]);
      const repeated: string[] = [];
      for (let kills = 0; kills < 4; kills++) {
        const known = podsIn(fleet);
        const stored = await storedSteps(fleet, labels);
        const told = readAgentReports(fleet.folder).length;
        const pod = await agentsOn(fleet);
        const aim = told + between(random, 1, 60);
        await until("it goes on", async () => {
          const reports = readAgentReports(fleet.folder);
          const open = await fleet.sql(
            "select 1 from flotilla_task where status in ('pending', 'claimed')",
          );
          return reports.length >= aim || open.length === 0;
        });
        await pod.kill();
        const pods = podsIn(fleet).filter((each) => !known.includes(each));
        repeated.push(...begunAgain(fleet, pods, stored));
      }
      await agentsOn(fleet);
      const ended = await allEnded(fleet, labels);
      expect(new Set(ended.values()).size).toBe(1);
      expect([...ended.values()][0]).toContain("all is done");
      expect(repeated).toEqual([]);
    },
    fleetMs,
  );
});
