import { fileURLToPath } from "node:url";
import type { Entry } from "flotilla";
import { describe, expect, test } from "vitest";
import { between, seededRandom } from "../../../src/base/random.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { type AgentsGiven, readAgentReports } from "./agents.ts";

const script = fileURLToPath(new URL("./later-process.ts", import.meta.url));
const limits = { heartbeatMs: 100, deadAfterMs: 1_000 };
const fleetMs = 180_000;

const podOn = (fleet: Fleet, given: AgentsGiven = {}) =>
  fleet.start({ script, given, config: limits });

const askAll = async (fleet: Fleet, labels: readonly string[]): Promise<void> => {
  for (const sessionId of labels) {
    const chat = await fleet.flotilla.sessions.create("clerk", { sessionId, user: "ada" });
    await chat.send("go", { id: `${sessionId}-go` });
  }
};

const entriesOf = async (fleet: Fleet, label: string): Promise<readonly Entry[]> =>
  (await fleet.flotilla.sessions.open(label).entries()).entries;

/** What an answer says, without what differs between sessions. */
const saidBy = ({ outcome, parts }: Entry) =>
  JSON.stringify([
    outcome,
    parts.map(({ type, text, state, output }) => [type, text, state, output]),
  ]);

/** Waits until each session has its second answer, and gives what that says. */
async function allAnswered(fleet: Fleet, labels: readonly string[]) {
  const said = new Map<string, string>();
  await until(
    "all have answered",
    async () => {
      for (const label of labels.filter((each) => !said.has(each))) {
        const last = (await entriesOf(fleet, label)).at(-1);
        if (last?.replaces === undefined) return false;
        said.set(label, saidBy(last));
      }
      return true;
    },
    fleetMs,
  );
  return said;
}

/** What is stored of the first turns: their steps, or the answers that were made of them. */
async function storedSteps(fleet: Fleet, labels: readonly string[]): Promise<Set<string>> {
  const rows = await fleet.sql("select owner_id, part, key from flotilla_step_journal");
  const steps = rows.map((row) => `${row["owner_id"]} turn ${row["part"]}: ${row["key"]}`);
  const whole = ["model[1]", "film[1.call-0-0]", "nap[1.call-0-1]", "look[1.call-0-2]"];
  for (const label of labels) {
    const isAnswered = (await entriesOf(fleet, label)).some(({ role }) => role === "assistant");
    if (isAnswered) steps.push(...whole.map((key) => `${label} turn 1: ${key}`));
  }
  return new Set(steps);
}

/** Nothing is there twice, and nothing is left to do. */
async function expectOnce(fleet: Fleet, labels: readonly string[]): Promise<void> {
  for (const label of labels) {
    const kinds = (await entriesOf(fleet, label)).map(({ kind }) => kind);
    expect([label, ...kinds]).toEqual([
      label,
      "message",
      "message",
      "tool_result",
      "tool_result",
      "message",
    ]);
  }
  await until("nothing is left to do", async () => {
    const open = await fleet.sql(
      "select task_id from flotilla_task where status in ('pending', 'claimed')",
    );
    return open.length === 0;
  });
  const rows = await fleet.sql(
    "select name, status, count(*) as tasks from flotilla_task group by name, status order by name",
  );
  const counts = rows.map(({ name, status, tasks }) => [name, status, Number(tasks)]);
  expect(counts).toEqual([
    ["flotilla:later", "completed", 2 * labels.length],
    ["render", "completed", labels.length],
  ]);
}

describe.each(storeKinds)("on %s, answers with outputs that come later", (on) => {
  test(
    "whose pod is killed once, at any place, say what they would have said, and pay for nothing twice",
    async () => {
      const fleet = await createFleet({ on });
      const undisturbed = await podOn(fleet);
      await askAll(fleet, ["clean"]);
      const expected = (await allAnswered(fleet, ["clean"])).get("clean")!;
      await undisturbed.terminate();
      expect(expected).toContain("here it is");
      expect(expected).toContain("a film");
      const places = readAgentReports(fleet.folder)
        .filter(({ place, effect }) => effect === undefined && !place.endsWith(" did"))
        .map(({ place }) => place);
      expect(places).toContain("render begins");
      expect(places).toContain("call 2, word 2");

      const stops = Object.fromEntries(places.map((place, at) => [`at-${at}`, place]));
      const labels = Object.keys(stops);
      const first = await podOn(fleet, { stops });
      await askAll(fleet, labels);
      const stopped = () =>
        new Set(
          readAgentReports(fleet.folder)
            .filter(({ label, place }) => stops[label] === place)
            .map(({ label }) => label),
        ).size;
      await until("each has stopped at its place", () => stopped() === labels.length, fleetMs);
      // What was asked for before may still be on its way to the store.
      let before = await storedSteps(fleet, labels);
      await until("nothing is stored any more", async () => {
        const now = await storedSteps(fleet, labels);
        const same = now.size === before.size;
        before = now;
        return same;
      });
      await first.kill();
      const earlier = new Set(readAgentReports(fleet.folder).map(({ pod }) => pod));

      await podOn(fleet);
      const said = await allAnswered(fleet, labels);
      expect([...said].filter(([, text]) => text !== expected)).toEqual([]);
      await expectOnce(fleet, ["clean", ...labels]);
      const begunAgain = readAgentReports(fleet.folder)
        .filter(({ pod, begins }) => !earlier.has(pod) && begins !== undefined)
        .map(({ label, begins }) => `${label} ${begins}`)
        .filter((step) => before.has(step));
      expect(begunAgain).toEqual([]);
    },
    fleetMs,
  );

  test(
    "whose pods are killed again and again, at any moment, do so too",
    async () => {
      const seed = Date.now() % 1_000_000;
      console.info(`seed ${seed}`);
      const random = seededRandom(seed);
      const fleet = await createFleet({ on });
      const labels: string[] = [];
      const said = new Set<string>();
      for (let round = 0; round < 3; round++) {
        const fresh = Array.from({ length: 6 }, (_, at) => `often-${round}-${at}`);
        labels.push(...fresh);
        let pod = await podOn(fleet);
        await askAll(fleet, fresh);
        // A turn that gets no further is given up when a third pod is lost with it.
        for (let kills = 0; kills < 2; kills++) {
          const aim = readAgentReports(fleet.folder).length + between(random, 1, 50);
          await until("it goes on", async () => {
            const isOver = (await entriesOf(fleet, fresh.at(-1)!)).length === 5;
            return isOver || readAgentReports(fleet.folder).length >= aim;
          });
          await pod.kill();
          pod = await podOn(fleet);
        }
        for (const text of (await allAnswered(fleet, fresh)).values()) said.add(text);
        await pod.terminate();
      }
      expect(said.size).toBe(1);
      expect([...said][0]).toContain("here it is");
      await podOn(fleet);
      await expectOnce(fleet, labels);
    },
    fleetMs,
  );
});
