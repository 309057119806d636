import { afterAll, beforeAll, expect, inject, onTestFinished, test } from "vitest";
import { logOf } from "../../src/sessions/log/placement.ts";
import { misarchived } from "../cluster/checkers.ts";
import { rebuildArchive } from "../cluster/rebuilt-archive.ts";
import { sessionViolations } from "../crash/sessions/checkers.ts";
import type { Client } from "../crash/sessions/client.ts";
import { eventsOf } from "../crash/sessions/evidence.ts";
import type { ServerProcess, SessionFleet } from "../crash/sessions/fleet.ts";
import { createSessionFleet } from "../crash/sessions/harness.ts";
import { until } from "../crash/until.ts";
import { startPostgres } from "../postgres/server.ts";
import { untilAnswered } from "./retried.ts";
import { type NatsCluster, startNatsCluster } from "./server.ts";
import { makeSession } from "./talking.ts";

const logs = 8;
let cluster: NatsCluster;
let used = 0;
beforeAll(async () => {
  cluster = await startNatsCluster();
});
afterAll(() => cluster.stop());

type Pods = {
  readonly fleet: SessionFleet;
  readonly namespace: string;
  readonly start: () => Promise<ServerProcess>;
};

/** Pods in processes of their own, whose logs are on the three servers. */
async function openPods(server?: string): Promise<Pods> {
  const fleet = await createSessionFleet({ on: "postgres", ...(server && { server }) });
  const namespace = `fleet_${++used}`;
  const monitor = cluster.servers.map(({ monitorUrl }) => monitorUrl);
  const nats = { servers: cluster.urls, namespace, use: "all", monitor };
  // A turn on a busy machine is never cut short by the end of its pod's patience, nor begun anew because its
  // pod came late. None is killed, so that none has to be found dead.
  const patience = { shutdownMs: 60_000, deadAfterMs: 60_000 };
  const config = { nats, sessions: { logs }, ...patience };
  return { fleet, namespace, start: () => fleet.startServer({ config }) };
}

/** Makes a session by a pod: a program beside them doesn't know of their logs. */
async function make({ url }: ServerProcess, session: string, agent: string): Promise<void> {
  await makeSession(url, { sessionId: session, agents: [agent], users: ["ada", "bob"] });
}

test("three pods are replaced one after the other under turns of eight seconds: none is restarted or answered twice, and no message fails", async () => {
  const { fleet, start } = await openPods();
  const pods = await Promise.all([start(), start(), start()]);
  // One of each log, so that no pod has logs without sessions.
  const byLog = new Map<number, string>();
  for (let nth = 0; byLog.size < logs; nth++) byLog.set(logOf(`long-${nth}`, logs), `long-${nth}`);
  const sessions = [...byLog.values()];
  await Promise.all(sessions.map((session, nth) => make(pods[nth % 3]!, session, "local")));

  /** Asks for one answer after the other, each as soon as the last is there. */
  let stopped = false;
  const talk = async (client: Client, session: string): Promise<number> => {
    client.follow(session);
    let said = 0;
    while (!stopped) {
      await client.say(session, `long-${session}-${++said}`);
      await until("it is answered", () => client.entries(session).length >= 2 * said);
    }
    return said;
  };
  const clients = ["ada", "bob"].map((name) => fleet.client(name, { silentMs: 30_000 }));
  const talking = Promise.all(sessions.map((session, nth) => talk(clients[nth % 2]!, session)));
  // Where the rest fails first, nobody waits for them.
  talking.catch(() => undefined);

  const underWay = (podId: string) => {
    const calls = fleet.calls().filter(({ where }) => where === podId);
    const count = (event: string) => calls.filter((call) => call.event === event).length;
    return count("called") - count("ended");
  };
  for (const pod of pods) {
    await until("it has turns under way", () => underWay(pod.podId) > 0);
    // The answers that the last pod gives are the last of all.
    stopped = pod === pods.at(-1);
    expect(await pod.terminate()).toEqual({ code: 0, signal: null });
    expect(underWay(pod.podId)).toBe(0);
    await start();
  }
  const said = (await talking).reduce((sum, each) => sum + each, 0);
  const evidence = await fleet.gather();

  expect(sessionViolations(evidence)).toEqual([]);
  expect(eventsOf(evidence, "invoke")).toHaveLength(said);
  expect(eventsOf(evidence, "ok")).toHaveLength(said);
  expect(eventsOf(evidence, "refused")).toEqual([]);
  const answers = evidence.stored.flatMap(({ entries }) =>
    entries.filter(({ role }) => role === "assistant"),
  );
  expect(answers.map(({ outcome }) => outcome)).toEqual(answers.map(() => "completed"));
  expect(answers).toHaveLength(said);
  // A pod that stops may hand on what it hasn't begun, which is another attempt and no other call.
  const called = fleet.calls().filter(({ event }) => event === "called");
  const turns = Map.groupBy(called, ({ session, epoch }) => `${session} ${epoch}`);
  expect([...turns].filter(([, calls]) => calls.length > 1)).toEqual([]);
  expect(called).toHaveLength(said);
}, 240_000);

test("a pod says that it is ready while Postgres is away, and that its archive is", async () => {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.stop());
  const { fleet, start } = await openPods(postgres.url);
  const pod = await start();
  const readiness = async () => {
    const answer = await fetch(`${pod.url}/health/ready`);
    return { status: answer.status, body: (await answer.json()) as unknown };
  };
  const well = { status: 200, body: { status: "ready", nats: "connected" } };
  const away = { status: 200, body: { ...well.body, archive: "away" } };
  await expect.poll(readiness).toEqual(well);
  await make(pod, "chat", "local");
  const client = fleet.client("ada", { silentMs: 30_000 });
  client.follow("chat");

  const seen = new Set<number>();
  await postgres.kill();
  const isSaid = async () => {
    const { status, body } = await readiness();
    seen.add(status);
    return JSON.stringify(body) === JSON.stringify(away.body);
  };
  await until("it says that its archive is away", isSaid);
  expect([...seen]).toEqual([200]);
  expect(await client.say("chat")).toMatchObject({ type: "ok", seq: 1 });
  await until("it is answered", () => client.entries("chat").length === 2);
  await expect.poll(readiness).toEqual(away);
  await postgres.start();
  await expect.poll(readiness).toEqual(well);
  await until("the database has it", async () => (await fleet.stored())[0]?.entries.length === 2);
});

test("an archive that is rebuilt of logs and watermarks is the one that pods have made, and a row that was changed since is noticed", async () => {
  const { fleet, namespace, start } = await openPods();
  const pod = await start();
  await make(pod, "chat", "local");
  await make(pod, "steps", "stepping");
  const client = fleet.client("ada");
  for (const session of ["chat", "steps"]) client.follow(session);
  await client.say("chat", "hello");
  await client.say("steps", "order");
  // Its turn is under way: it has stored a step, and waits in the next.
  await until("a step is stored", async () => {
    const [row] = await fleet.sql("select count(*) as steps from flotilla_step_journal");
    return Number(row!["steps"]) > 0;
  });
  await until("it is answered", () => client.entries("chat").length === 2);

  const { store } = fleet;
  const from = { nats: cluster, namespace, store, server: inject("postgresUrl") };
  const archives = await until("the archive has everything", async () => {
    const found = await untilAnswered(() => rebuildArchive(from));
    const isWhole = found.behind.length === 0 && found.live["turn"]!["chat 1 1"] !== undefined;
    return isWhole ? found : undefined;
  });
  expect(archives.rebuilt).toEqual(archives.live);
  expect(archives.trimmed).toEqual([]);
  const filled = Object.keys(archives.live).filter(
    (table) => Object.keys(archives.live[table]!).length > 0,
  );
  expect(filled).toEqual(
    expect.arrayContaining(["session", "session_user", "message", "turn", "step_journal"]),
  );

  await fleet.sql(
    "update flotilla_message set author = 'eve' where session_id = 'chat' and seq = 1",
  );
  await fleet.sql("delete from flotilla_session where session_id = 'steps'");
  const changed = await untilAnswered(() => rebuildArchive(from));
  // The turn goes on, and may have stored more by now.
  expect(misarchived({ archives: { ...changed, behind: [] } })).toEqual([
    expect.stringMatching(/^S8: session steps is archived as nothing, and its log makes /),
    expect.stringMatching(
      /^S8: message chat 1 is archived as .*"eve".*, and its log makes .*"ada"/,
    ),
  ]);
});
