import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../../postgres/server.ts";
import { gather, recoveriesIn, violations } from "../tasks/checkers.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { createHistory } from "../history.ts";
import { startsIn } from "../ledger.ts";
import { producerViolations } from "../tasks/producer-checkers.ts";
import { until } from "../until.ts";
import { type FakeTime, fakeTime } from "./fake-time.ts";
import { openTasks } from "./harness.ts";

const hourMs = 3_600_000;
const names = ["held", "work"];
// No pod is to be found dead for another reason, such as a machine that lets it wait for seconds.
const config = { heartbeatMs: 300, deadAfterMs: 6_000, pollMs: 200 };
const delayMs = 1_500;

test("pods whose clocks are an hour off, and jump, are no deader than others, and keep delays", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const [fast, slow] = [wrongClock(hourMs), wrongClock(-hourMs)];
  await Promise.all([fast.env, slow.env, {}].map((env) => fleet.start({ names, config, env })));
  const producing = producer(fleet);
  const held = await producing.hold(9);
  const before = await producing.enqueue();
  // Each goes to where the other has been, and one right back.
  fast.set(-hourMs);
  slow.set(hourMs);
  await beatsPass(fleet);
  slow.set(0);
  const after = await producing.enqueue();
  for (const pod of fleet.pods) pod.open("door");
  await allEnd(fleet);

  expect(await producing.wrong([...held, ...before, ...after])).toEqual([]);
});

test("a server whose clock is an hour off, and jumps, makes no pod look dead, and holds nothing up", async () => {
  const clock = wrongClock(hourMs);
  const server = await startPostgres({ env: clock.env, settings: { max_connections: 60 } });
  onTestFinished(server.stop);
  const fleet = await createFleet({ on: "postgres", server: server.url });
  // What is enqueued before any pod can claim it is there when the clock jumps.
  const producing = producer(fleet);
  const early = await producing.enqueue({ delayed: false });
  const pods = [await fleet.start({ names: ["held"], config })];
  const held = await producing.hold(9);
  clock.set(-hourMs);
  pods.push(await fleet.start({ names, config }));
  await beatsPass(fleet);
  const between = await producing.enqueue();
  await allEnd(fleet, held.length);
  clock.set(0);
  const late = await producing.enqueue({ delayed: false });
  await beatsPass(fleet);
  for (const pod of pods) pod.open("door");
  await allEnd(fleet);

  expect(await producing.wrong([...early, ...held, ...between, ...late])).toEqual([]);
});

function wrongClock(offsetMs: number): FakeTime {
  const clock = fakeTime(offsetMs);
  onTestFinished(clock.remove);
  return clock;
}

/** Enqueues, and returns in the end whether each ran once, in its time, with no pod taken for dead. */
function producer(fleet: Fleet) {
  const history = createHistory();
  const enqueue = async (name: string, input: object, delayMs = 0): Promise<string> => {
    const asked = { kind: "enqueue", ...(delayMs > 0 && { delayMs }) } as const;
    const call = () => fleet.flotilla.enqueue(name, input, { delayMs });
    const told = await history.note(asked, call, ({ taskId }) => [taskId]);
    return told!.taskId;
  };
  return {
    /** Tasks that run until the door is opened, and run by now. */
    async hold(count: number): Promise<string[]> {
      const calls = Array.from({ length: count }, () => enqueue("held", { gate: "door" }));
      const taskIds = await Promise.all(calls);
      await until("they run", () => {
        return startsIn(fleet.ledger()).filter(({ name }) => name === "held").length === count;
      });
      return taskIds;
    },
    enqueue: ({ delayed } = { delayed: true }): Promise<string[]> =>
      Promise.all(
        Array.from({ length: 30 }, (_, at) =>
          enqueue("work", { ms: 10 }, delayed && at % 3 === 0 ? delayMs : 0),
        ),
      ),
    async wrong(taskIds: readonly string[]): Promise<string[]> {
      const seen = await gather(fleet, config);
      const evidence = { ...seen, history: history.operations, snapshots: [] };
      const recovered = recoveriesIn(seen.transitions).map(({ task }) => `${task} was recovered`);
      const started = startsIn(seen.ledger).map(({ task }) => task);
      const once = started.toSorted().join() === taskIds.toSorted().join();
      return [
        ...violations(evidence),
        ...producerViolations(evidence),
        ...recovered,
        ...(once ? [] : [`${started.length} starts of ${taskIds.length} tasks`]),
      ];
    },
  };
}

async function allEnd(fleet: Fleet, but = 0): Promise<void> {
  await until("all have ended", async () => (await openTasks(fleet)) === but);
}

/** Long enough for a pod that seems silent to be given up. */
async function beatsPass(fleet: Fleet): Promise<void> {
  const beats = async () => {
    const pods = await fleet.flotilla.pods();
    return Math.min(...pods.map(({ beat }) => beat));
  };
  const before = await beats();
  const needed = (1.5 * config.deadAfterMs) / config.heartbeatMs;
  await until("everybody has beaten", async () => (await beats()) >= before + needed);
}
