import { expect, test } from "vitest";
import { seededRandom } from "../../../src/base/random.ts";
import { sessionViolations } from "./checkers.ts";
import { eventsOf } from "./evidence.ts";
import { sessionIn } from "./cast.ts";
import type { ServerProcess } from "./fleet.ts";
import { createSessionFleet, sessionSeed } from "./harness.ts";
import { keepTalking } from "./load.ts";
import { until } from "../until.ts";

// A turn on a busy machine is never cut short by the end of its server's patience, nor begun anew because
// its server came late. None is killed, so that none has to be found dead.
const config = { shutdownMs: 60_000, deadAfterMs: 60_000 };

test("servers that are restarted one after the other finish what they stream and hand over their logs, and no client gets an error or waits for a turn that was begun anew", async () => {
  const fleet = await createSessionFleet({ on: "postgres" });
  await fleet.startAgent();
  await Promise.all([1, 2, 3].map(() => fleet.startServer({ config })));
  const talkedIn = ["local-1", "local-2", "remote-1", "plain-1"];
  await Promise.all([
    fleet.open("local-1", "local"),
    fleet.open("local-2", "local"),
    fleet.open("remote-1", "remote"),
    fleet.open("plain-1", null),
  ]);
  const clients = ["ada", "bob", "cid"].map((name) => fleet.client(name, { silentMs: 30_000 }));
  const talking = keepTalking(clients, talkedIn, seededRandom(sessionSeed));
  const watcher = fleet.client("dan", { silentMs: 30_000 });

  /** Has a server stream something, tells it to stop in the middle of that, and lets it finish. */
  const restart = async (server: ServerProcess) => {
    const place = await until("this server has a log", async () => {
      const owners = await fleet.owners();
      const logId = owners.indexOf(server.podId);
      return logId < 0 ? undefined : { logId, logs: owners.length };
    });
    // The owner of a session that has its agent makes the answer as well.
    const session = await sessionIn(fleet, place, "local");
    watcher.follow(session);
    await watcher.say(session, `hold-${session}`);
    const call = await until("it streams", () => fleet.calls(session)[0]);
    const runner = fleet.serverOf(call.where)!;
    const stopping = runner.terminate();
    await until("it has begun to stop", () =>
      fleet.logged("pod stopping").some(({ pod }) => pod === runner.podId),
    );
    runner.open(`hold-${session}`);
    expect(await stopping).toEqual({ code: 0, signal: null });
    await until("it is answered", () => watcher.entries(session).length === 2);
    const replacement = await fleet.startServer({ config });
    return { session, runner, replacement };
  };

  const first = [...fleet.servers];
  const restarted = [];
  for (const server of first) restarted.push(await restart(server));
  await talking.stop();
  const evidence = await fleet.gather();

  expect(restarted.map(({ runner }) => runner.podId)).toEqual(first.map(({ podId }) => podId));
  expect(sessionViolations(evidence)).toEqual([]);
  // Everything that was said is acked, over connections that ended as a server ends them that stops.
  const invoked = eventsOf(evidence, "invoke").length;
  console.log({
    invoked,
    closed: eventsOf(evidence, "closed").length,
    calls: fleet.calls().length,
  });
  expect(invoked).toBeGreaterThan(50);
  expect(eventsOf(evidence, "ok")).toHaveLength(invoked);
  expect(eventsOf(evidence, "refused")).toEqual([]);
  expect(new Set(eventsOf(evidence, "closed").map(({ code }) => code))).toEqual(new Set([1001]));

  const answers = evidence.stored.flatMap(({ entries }) =>
    entries.filter(({ role }) => role === "assistant"),
  );
  expect(answers.filter(({ outcome }) => outcome !== "completed")).toEqual([]);
  const called = fleet.calls().filter(({ event }) => event === "called");
  // A server that stops hands on what it hasn't begun, which is another attempt and no other call.
  const turns = Map.groupBy(called, ({ session, epoch }) => `${session} ${epoch}`);
  expect([...turns.values()].filter((calls) => calls.length > 1)).toEqual([]);
  expect(called).toHaveLength(answers.length);
}, 240_000);
