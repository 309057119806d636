import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Outcome, run } from "../command.ts";
import { sessionViolations } from "../crash/sessions/checkers.ts";
import type { Client } from "../crash/sessions/client.ts";
import { eventsOf } from "../crash/sessions/evidence.ts";
import type { ServerProcess, SessionFleet } from "../crash/sessions/fleet.ts";
import { createSessionFleet } from "../crash/sessions/harness.ts";
import { pauseFor, until } from "../crash/until.ts";
import { systemClock } from "../../src/base/clock.ts";
import { FlotillaError } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import { createNats, natsFor } from "../../src/bus/nats/nats.ts";
import { readSecret } from "../../src/bus/secret.ts";
import { moveLogs, type MoveLogsParts, planMove } from "../../src/promote/logs/move-logs.ts";
import type { Config } from "../../src/runtime/config.ts";
import { connect } from "../../src/runtime/connect.ts";
import { openMovingLogs } from "../../src/runtime/logs/stream-logs.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { placeTopic } from "../../src/sessions/log/place-topic.ts";
import { logPlaceOf } from "../../src/sessions/log/place.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { openStore } from "../../src/store/open.ts";
import { sql, table } from "../../src/store/sql.ts";
import { type NatsCluster, startNatsCluster } from "./server.ts";
import { makeSession } from "./talking.ts";

let cluster: NatsCluster;
let used = 0;
beforeAll(async () => {
  // Each log reserves 256 MiB.
  cluster = await startNatsCluster({ maxFileStore: "64GB" });
});
afterAll(() => cluster.stop());

type Pods = {
  readonly fleet: SessionFleet;
  readonly pods: readonly ServerProcess[];
  readonly nats: NatsConfig;
  start(config?: object): Promise<ServerProcess>;
  promote(...args: string[]): Promise<Outcome>;
  /** The same, again where a pod didn't answer in time or isn't there yet. */
  promoteAtLast(...args: string[]): Promise<Outcome>;
  /** Where the store says that the logs are. */
  place(): Promise<string>;
};

/** Pods in processes of their own that have NATS for envelopes, and a store whose logs are its own. */
async function openPods(count: number): Promise<Pods> {
  const fleet = await createSessionFleet({ on: "postgres" });
  const namespace = `promote_${++used}`;
  const monitor = cluster.servers.map(({ monitorUrl }) => monitorUrl);
  const nats: NatsConfig = { servers: cluster.urls, namespace, use: "bus", monitor };
  const folder = mkdtempSync(join(tmpdir(), "flotilla-promote-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const config = `export default ${JSON.stringify({ use: [], store: fleet.store, nats })};`;
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  const start = (more: object = {}) =>
    fleet.startServer({ config: { nats, shutdownMs: 60_000, ...more } });
  const pods = await Promise.all(Array.from({ length: count }, () => start()));
  const promote = (...args: string[]) =>
    run(["promote", "--config", "flotilla.config.mjs", ...args], { cwd: folder });
  return {
    fleet,
    pods,
    nats,
    start,
    promote,
    promoteAtLast: (...args) =>
      until("pods answer", async () => {
        const outcome = await promote(...args);
        return isRefusedForNow(outcome.stderr) ? undefined : outcome;
      }),
    async place() {
      const [row] = await fleet.sql("select place from flotilla.log_place");
      return row!["place"] as string;
    },
  };
}

/** A pod may stand still for longer than it is asked for. What refuses says so, and has changed nothing. */
const isRefusedForNow = (message: string) =>
  /doesn't answer over NATS: try again|has not followed the move before this one yet/.test(message);

/** Moves logs, again where a pod is late. */
function moveAtLast(parts: MoveLogsParts) {
  return until("pods answer", () =>
    moveLogs(parts).catch((error: unknown) => {
      if (!isRefusedForNow(String(error))) throw error;
    }),
  );
}

async function make({ url }: ServerProcess, session: string, agent: string): Promise<void> {
  await makeSession(url, { sessionId: session, agents: [agent], users: ["ada", "bob"] });
}

/** Talks in sessions by clients of two pods, one message after the other, until it is told to stop. */
async function talking({ fleet, pods }: Pods, sessions: readonly string[]) {
  await Promise.all(
    sessions.map((session, nth) => make(pods[nth % pods.length]!, session, "local")),
  );
  const clients = ["ada", "bob"].map((name, nth) =>
    fleet.client(name, { pick: () => pods[nth % pods.length]!.url, silentMs: 30_000 }),
  );
  let stopped = false;
  let said = 0;
  const talk = async (client: Client, session: string): Promise<void> => {
    client.follow(session);
    for (let nth = 1; !stopped; nth++) {
      await client.say(session, `${session}-${nth}`);
      said++;
      // Less than a connection may say.
      await pauseFor(100);
    }
  };
  const all = sessions.map((session, nth) => talk(clients[nth % 2]!, session));
  return {
    get said() {
      return said;
    },
    async more(count: number) {
      const from = said;
      await until("more is said", () => said >= from + count);
    },
    async stop() {
      stopped = true;
      await Promise.all(all);
    },
  };
}

/** What the command makes of a config, in this process. */
type MoverOptions = { store: string; nats: NatsConfig; to: "nats" | "sql" };

/** What moves logs, until the test has ended. */
async function mover(options: MoverOptions) {
  const { parts, close } = await openMover(options);
  onTestFinished(close);
  return parts;
}

async function openMover({ store, nats, to }: MoverOptions) {
  const clock = systemClock;
  const random = systemRandom;
  const ids = uuidv7(clock, random);
  const log = silentLogger;
  const origin = ids.next();
  const database = await openStore(store, { migrate: "check", create: false, notifies: false });
  const connected = createNats(natsFor(store, nats), { clock, random, log, origin });
  await connected.connection().started;
  const shared = { clock, random, ids, log, database };
  const { streamLog, deployment } = await openMovingLogs({ ...shared, nats: connected });
  const bus = connected.connectBus(`promotion-${origin}`, {
    readSecret: () => readSecret(database),
    text: undefined,
  });
  const { clusterId } = deployment;
  const isGone = () => false;
  const more = { stream: streamLog, bus, clusterId, to, host: "test", isGone, logs: 4 };
  return {
    parts: { ...shared, ...more } satisfies MoveLogsParts,
    async close() {
      await bus.close();
      await connected.close();
      await database.close();
    },
  };
}

/**
 * The same in a process that dies at its `nth` act on the store or the servers: before it, or after it, so
 * that nobody learns that it was done.
 */
function dying(parts: MoveLogsParts, nth: number, when: "before" | "after"): MoveLogsParts {
  let acts = 0;
  const act = <Args extends unknown[], Result>(does: (...args: Args) => Promise<Result>) => {
    return async (...args: Args): Promise<Result> => {
      if (++acts > nth || (acts === nth && when === "before")) throw new Killed();
      const result = await does(...args);
      if (acts >= nth) throw new Killed();
      return result;
    };
  };
  const { database, stream } = parts;
  const { streams } = stream;
  return {
    ...parts,
    database: { ...database, write: act(database.write) },
    stream: {
      ...stream,
      take: act(stream.take),
      close: act(stream.close),
      mark: act(stream.mark),
      release: act(stream.release),
      streams: { ...streams, prepare: act(streams.prepare), turn: act(streams.turn) },
    },
  };
}

class Killed extends Error {}

/** Pods in this process, with an agent that repeats what it is told. */
async function openHere(count: number) {
  const place = await temporaryDatabase();
  onTestFinished(() => place.remove());
  const nats: NatsConfig = {
    servers: cluster.urls,
    monitor: cluster.servers.map(({ monitorUrl }) => monitorUrl),
    namespace: `promote_${++used}`,
  };
  const store = place.url;
  const startOne = async (more: Partial<Config> = {}) => {
    const pod = await startPod({
      store,
      use: [echo],
      log: silentLogger,
      dataDir: false,
      nats,
      ...more,
    });
    onTestFinished(() => pod.stop());
    return pod;
  };
  const pods = [];
  for (let nth = 0; nth < count; nth++) pods.push(await startOne());
  return { store, nats, pods, startOne };
}

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

const chats = (count: number) => Array.from({ length: count }, (_, nth) => `chat-${nth}`);

test("sessions that are talked in by clients of two pods go to NATS, back, and there again: nothing is lost, doubled or reset", async () => {
  const all = await openPods(2);
  const talk = await talking(all, chats(6));
  await talk.more(20);
  for (const to of ["nats", "postgres", "nats"]) {
    const { code, stdout, stderr } = await all.promoteAtLast("--to", to, "--json");
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(JSON.parse(stdout)).toMatchObject({ to, logs: 4, already: false });
    expect(await all.place()).toBe(to === "nats" ? "nats" : "sql");
    await talk.more(20);
  }
  await talk.stop();
  const evidence = await all.fleet.gather();
  expect(sessionViolations(evidence)).toEqual([]);
  expect(eventsOf(evidence, "reset")).toEqual([]);
  expect(eventsOf(evidence, "refused")).toEqual([]);
  expect(eventsOf(evidence, "ok")).toHaveLength(talk.said);
}, 240_000);

/** Kills and pauses pods, and kills servers, one after the other and by turns, until it is told to stop. */
function harming({ start }: Pods, pods: ServerProcess[]) {
  const done = { kills: 0, pauses: 0, servers: 0 };
  let stopped = false;
  const again = async <Started>(begin: () => Promise<Started>): Promise<Started> => {
    for (let tries = 1; ; tries++) {
      try {
        return await begin();
      } catch (error) {
        // A pod is refused while logs are on their way, and is started again, as by a supervisor.
        if (tries === 100) throw error;
        await pauseFor(200);
      }
    }
  };
  const harms = [
    async (nth: number) => {
      await pods[nth % pods.length]!.kill();
      done.kills++;
      pods[nth % pods.length] = await again(() => start());
    },
    async (nth: number) => {
      const pod = pods[nth % pods.length]!;
      await pod.pause();
      done.pauses++;
      await pauseFor(1_500);
      pod.resume();
    },
    async (nth: number) => {
      const server = cluster.servers[nth % cluster.servers.length]!;
      await server.kill();
      done.servers++;
      await again(() => server.start());
    },
  ];
  const harm = async () => {
    for (let nth = 0; !stopped; nth++) {
      await harms[nth % harms.length]!(Math.floor(nth / harms.length));
      await pauseFor(700);
    }
  };
  const harmed = harm();
  return {
    done,
    async stop() {
      stopped = true;
      await harmed;
    },
  };
}

test("logs that move both ways while pods are killed and paused and servers die lose and double nothing, and reset no client", async () => {
  const all = await openPods(3);
  const pods = [...all.pods];
  const talk = await talking({ ...all, pods }, chats(6));
  await talk.more(20);
  const harm = harming(all, pods);
  for (const to of ["nats", "postgres", "nats"]) {
    const before = harm.done.kills;
    await until("a pod has been killed since", () => harm.done.kills > before);
    // It is refused while a pod or a server that it needs is gone, and goes on when it is started again.
    await until(
      `the logs are moved to ${to}`,
      async () => (await all.promote("--to", to, "--json")).code === 0,
      150_000,
    );
    expect(await all.place()).toBe(to === "nats" ? "nats" : "sql");
    await talk.more(20);
  }
  await harm.stop();
  await talk.more(20);
  await talk.stop();
  const evidence = await all.fleet.gather();
  expect(sessionViolations(evidence)).toEqual([]);
  expect(eventsOf(evidence, "reset")).toEqual([]);
  expect(eventsOf(evidence, "ok").length).toBeGreaterThan(80);
  console.log({ ...harm.done, said: talk.said, ok: eventsOf(evidence, "ok").length });
}, 600_000);

test("one that is killed at each of its acts goes on when it is started again, to NATS and back", async () => {
  const { store, nats, pods } = await openHere(2);
  const program = connect(store, { nats });
  onTestFinished(() => program.close());
  const chat = await pods[0]!.sessions.create("echo", { user: "ann" });
  const elsewhere = program.sessions.open(chat.sessionId, { user: "ann" });
  let said = 0;
  const talk = async () => {
    for (const each of [chat, pods[1]!.sessions.open(chat.sessionId), elsewhere]) {
      const text = `word-${++said}`;
      expect((await each.ask(text)).parts).toMatchObject([{ text: `you said ${text}` }]);
    }
  };
  await talk();
  for (const to of ["nats", "sql"] as const) {
    let deaths = 0;
    for (let nth = 1; ; nth++) {
      const opened = await openMover({ store, nats, to });
      // Only the one that died: the pods are up, and are on their way already.
      const parts = { ...opened.parts, isGone: (host: string) => host === opened.parts.host };
      const when = nth % 2 === 0 ? "before" : "after";
      const died = await moveAtLast(dying(parts, nth, when)).then(
        () => false,
        (error: unknown) => {
          if (error instanceof Killed) return true;
          throw error;
        },
      );
      // The connections of a process go with it. All of them together are more than a server has.
      await opened.close();
      if (!died) break;
      deaths++;
    }
    expect(deaths).toBeGreaterThan(4);
    const { database } = await mover({ store, nats, to });
    expect((await logPlaceOf(database)).place).toBe(to);
    await talk();
    expect(await moveLogs(await mover({ store, nats, to }))).toMatchObject({ already: true });
  }
  const { entries } = await elsewhere.entries({ limit: 100 });
  expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, nth) => nth + 1));
  expect(entries).toHaveLength(2 * said);
});

test("two at once are refused, and so are pods that couldn't follow: nothing is changed then", async () => {
  const { store, nats, startOne } = await openHere(1);
  const parts = await mover({ store, nats, to: "nats" });
  const { nats: _, ...without } = { nats };
  const alone = await startPod({
    store,
    use: [echo],
    log: silentLogger,
    dataDir: false,
    ...without,
  });
  onTestFinished(() => alone.stop());
  // Of several pods that can't follow, the first is named: one that is late, too.
  const refusal = () => moveLogs(parts).catch(String);
  await expect
    .poll(refusal)
    .toMatch(
      new RegExp(`the pod ${alone.podId} can't be reached over NATS: give all pods the same`),
    );
  await expect.poll(() => planMove(parts).catch(String)).toMatch(/can't be reached over NATS/);
  await alone.stop();

  // As a pod of an earlier release is: it serves sessions, and doesn't know the question.
  await parts.database.write([
    sql`insert into ${table("pod")} (pod_id, metadata) values ('older', '{"sessions":{"agents":{}}}')`,
  ]);
  const bare = createNats(natsFor(store, nats), { ...parts, origin: "older" });
  const bus = bare.connectBus("older", { readSecret: () => readSecret(parts.database) });
  await bare.connection().started;
  await expect
    .poll(refusal)
    .toMatch(/the pod older is of an older release, which can't follow the logs: upgrade it first/);

  // As one does that keeps a log of which servers have lost messages.
  bus.serve(placeTopic, async () => {
    throw new FlotillaError("conflict", "has messages of logs that servers have lost");
  });
  await expect
    .poll(refusal)
    .toMatch(/the pod older has messages of logs that servers have lost: try again in a while/);
  await bus.close();
  await bare.close();
  await parts.database.write([sql`delete from ${table("pod")} where pod_id = 'older'`]);

  // It would be left without its logs, since it can't tell whether servers flush.
  const blind = await startOne({ nats: { ...nats, monitor: [] } });
  await expect
    .poll(refusal)
    .toMatch(new RegExp(`the pod ${blind.podId} can't use these servers for logs: .*nats.monitor`));
  await blind.stop();
  expect((await logPlaceOf(parts.database)).place).toBe("sql");

  const other = await mover({ store, nats, to: "nats" });
  const both = await Promise.allSettled([moveAtLast(parts), moveAtLast(other)]);
  const refused = both.filter((each) => each.status === "rejected");
  for (const { reason } of refused) expect(String(reason)).toMatch(/another `flotilla promote` is/);
  expect(refused).toHaveLength(1);
  expect((await logPlaceOf(parts.database)).place).toBe("nats");
  expect(await planMove(parts)).toMatchObject({ step: "already" });
});

test("a pod that is paused over the move answers nothing from the old place when it wakes", async () => {
  const all = await openPods(2);
  const talk = await talking(all, chats(6));
  await talk.more(10);
  const [paused] = all.pods;
  const parts = await mover({ store: all.fleet.store, nats: all.nats, to: "nats" });
  await moveAtLast({
    ...parts,
    onProgress: ({ step }) => void (step === "move" && process.kill(paused!.pid, "SIGSTOP")),
  });
  await until("the other pod has the logs", async () => {
    const heads = await parts.stream.heads();
    return heads.every(({ owner }) => owner === all.pods[1]!.podId);
  });
  process.kill(paused!.pid, "SIGCONT");
  await talk.more(20);
  await talk.stop();
  const evidence = await all.fleet.gather();
  expect(sessionViolations(evidence)).toEqual([]);
  expect(eventsOf(evidence, "reset")).toEqual([]);
});

test("the command says what it would do, and refuses in one sentence what it can't", async () => {
  const all = await openPods(1);
  const plan = await all.promote("--to", "nats", "--dry-run");
  expect(plan.stdout).toContain("logs of sessions to NATS, while pods run");
  expect(plan.stdout).toContain(`1 pod follow them: ${all.pods[0]!.podId}`);
  expect(await all.place()).toBe("sql");
  const refusals = [
    [["--to", "nats", "--logs", "16"], false, /--logs is for a move from SQLite to Postgres/],
    [["--to", "nats", "--store", "sqlite:app.db"], false, /the store is a SQLite file/],
    [["--to", "postgres"], true, /the logs are in Postgres already/],
  ] as const;
  for (const [args, isDone, why] of refusals) {
    const { code, stdout, stderr } = await all.promote(...args);
    const said = isDone ? stdout : stderr;
    expect({ isDone: code === 0, said }).toEqual({ isDone, said: expect.stringMatching(why) });
  }
});

test("a pod with another `use` than those that are up is refused, so that no limit is given out twice", async () => {
  const { store, nats, pods, startOne } = await openHere(1);
  const everything = { nats: { ...nats, use: "all" } as const };
  const refused = /have their shares of throttles .*: stop those pods first, or give this one/;
  await expect(startOne(everything)).rejects.toThrow(refused);
  const database = await openStore(store, { migrate: "check", create: false, notifies: false });
  onTestFinished(() => database.close());
  // It has changed nothing.
  expect(await logPlaceOf(database)).toMatchObject({ place: "sql" });
  await pods[0]!.stop();
  const others = await startOne(everything);
  await expect(startOne()).rejects.toThrow(refused);
  await others.stop();
  const both = await Promise.allSettled([startOne(), startOne(everything)]);
  expect(both.filter(({ status }) => status === "fulfilled").length).toBeLessThan(2);
});
