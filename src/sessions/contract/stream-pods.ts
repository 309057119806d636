import { type MovableClock, settledBy } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { createMemoryBus } from "../../bus/memory-bus.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Database } from "../../store/database.ts";
import { createThrottleRegistry } from "../../throttles/registry.ts";
import { factsOfSpec } from "../agents/agent.ts";
import { createAgentRegistry } from "../agents/registry.ts";
import type { AgentSpec } from "../agents/spec.ts";
import { createArchivedJournal, type ArchivedJournal } from "../log/archive/journal.ts";
import { createBeats } from "../log/beats/beats.ts";
import { createHeads } from "../log/heads.ts";
import { createStreamLog } from "../log/jetstream/log.ts";
import { decodeRecord } from "../log/record-codec.ts";
import { createLocalSessions, type LocalSessions } from "../start.ts";
import { createRunner } from "../turns/runner.ts";
import { createMemoryChannels } from "./memory-channel.ts";
import { noFiles } from "./no-files.ts";
import { simulateStreams } from "./simulated-streams.ts";

/** A pod with everything of sessions, whose logs are on simulated streams. */
export type StreamPod = Pick<LocalSessions, "sessions" | "service" | "hasDrained" | "drain"> & {
  readonly podId: string;
  readonly journal: ArchivedJournal;
  /** Its process ends without a word: nothing that it asks is answered, and no pod hears it. */
  kill(): void;
  stop(): Promise<void>;
};

/** Pods over one database that may be away, on a clock that tests move. */
export function createStreamPods({
  database: sound,
  agents,
  clock,
  random,
  logs,
}: {
  database: Database;
  agents: readonly AgentSpec[];
  clock: MovableClock;
  random: Random;
  logs: number;
}) {
  /** What was stored of each session in its log, in order, whatever became of it in the database. */
  const logged = new Map<string, Entry[]>();
  const servers = simulateStreams({
    clock,
    random,
    onStored(_, { subject, body }) {
      if (!subject.endsWith(".r")) return;
      for (const { sessionId, clientId: _id, ...entry } of decodeRecord(body).entries) {
        logged.set(sessionId, [...(logged.get(sessionId) ?? []), entry]);
      }
    },
  });
  const channels = createMemoryChannels({ clock });
  const buses = createMemoryBus();
  const code = new Map(agents.map((each) => [each.name, each]));
  const deployment = {
    namespace: "test",
    clusterId: "c1",
    replicas: 3,
    maxLogBytes: 16 * 1_024 * 1_024,
  } as const;
  let isAway = false;
  const refused = () => new FlotillaError("store_unavailable", "the database is away");

  const start = (podId: string): StreamPod => {
    let isDead = false;
    const alive =
      <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
      async (...args: Args): Promise<Result> => {
        const result = isDead ? undefined : await call(...args);
        return isDead ? new Promise<never>(() => {}) : (result as Result);
      };
    const reached =
      <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
      (...args: Args): Promise<Result> =>
        isAway ? Promise.reject(refused()) : call(...args);
    const database: Database = {
      ...sound,
      read: alive(reached(sound.read)),
      write: alive(reached(sound.write)),
    };
    const engine = servers.connect();
    const parts = { podId, clock, random, ids: uuidv7(clock, random), log: silentLogger, database };
    const stream = createStreamLog({
      ...parts,
      deployment,
      maxRecordBytes: 1_000_000,
      engine: {
        ...engine,
        publish: alive(engine.publish),
        read: alive(engine.read),
        lastOn: alive(engine.lastOn),
        state: alive(engine.state),
      },
    });
    const channel = channels.connect();
    const bus = buses.connect(podId, { clock });
    const beats = createBeats({
      ...parts,
      channel,
      journal: stream,
      clusterId: deployment.clusterId,
      release: "1.0.0",
      agents: Object.fromEntries(agents.map((each) => [each.name, factsOfSpec(each)])),
      reachesStore: () => !journal.state().isAway,
      backlogged: () => journal.backlogged(),
      lagMs: () => journal.state().lagMs,
    });
    const heads = createHeads({ journal: beats, clock });
    const journal: ArchivedJournal = createArchivedJournal({
      ...parts,
      stream,
      bus,
      heads,
      standbyFor: () => beats.standbyFor(),
      onArchived: (sessionIds) => local.archived(sessionIds),
    });
    const nothing = () => Promise.reject(new Error("nothing of it is used here"));
    const local = createLocalSessions(
      {
        ...parts,
        journal,
        headSource: beats,
        ahead: { ...journal, behindMs: () => beats.behindMs() },
        bus,
        maxPayloadBytes: 100_000,
        logs,
        files: noFiles as never,
      },
      {
        podId,
        host: null,
        isGone: () => false,
        presence: beats,
        fleet: beats.fleet,
        registry: createAgentRegistry({ ...parts, code }),
        onEvent() {},
        createRunner: (links) =>
          createRunner({
            ...parts,
            ...links,
            journal,
            files: noFiles,
            agentOf: async (_tenant, name) => code.get(name),
            throttles: createThrottleRegistry({ clock, random }),
            enqueue: nothing,
            start: nothing,
            prepareLater: nothing,
            setWake: nothing,
          }),
      },
    );
    beats.start();
    journal.start();
    return {
      ...local,
      podId,
      journal,
      kill() {
        isDead = true;
        channel.isCut = true;
        void bus.close();
        beats.close();
      },
      async stop() {
        await local.stop({ waitMs: 1_000 });
        await journal.stop();
        beats.close();
      },
    };
  };

  /** Moves the clock until a call has ended. */
  const settled = <Value>(call: Promise<Value>) => settledBy(clock, call, 25);

  return {
    start,
    settled,
    servers,
    logged: logged as ReadonlyMap<string, readonly Entry[]>,
    set isAway(away: boolean) {
      isAway = away;
    },
  };
}
