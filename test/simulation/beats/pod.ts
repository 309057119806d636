/** A pod that owns logs on simulated JetStream, and knows of others by their beats. */
import type { Clock } from "../../../src/base/clock.ts";
import { FlotillaError } from "../../../src/base/errors.ts";
import type { Ids } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import type { Random } from "../../../src/base/random.ts";
import { type Beats, createBeats } from "../../../src/sessions/log/beats/beats.ts";
import type { Reads } from "../../../src/sessions/log/journal.ts";
import type { StreamEngine } from "../../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import type { Deployment } from "../../../src/sessions/log/jetstream/streams.ts";
import { createOwner } from "../../../src/sessions/log/owner.ts";
import { createHeads } from "../../../src/sessions/log/heads.ts";
import { createOwners, type Owners } from "../../../src/sessions/log/ownership.ts";
import { gatedEngine } from "../streams/pod.ts";
import type { Channels } from "./channels.ts";

export type BeatingPod = {
  readonly podId: string;
  readonly owners: Owners;
  readonly isAlive: boolean;
  /** Whether its process can be asked now. */
  readonly isRunning: boolean;
  /** Nothing of it happens any more. */
  crash(): void;
  pause(forMs: number): void;
  /** It reaches no server for a while. */
  cut(forMs: number): void;
  /** Hands its logs on, and ends. */
  stop(): Promise<void>;
};

export type BeatingPodParts = {
  podId: string;
  clock: Clock;
  random: Random;
  ids: Ids;
  engine: StreamEngine;
  channels: Channels;
  deployment: Deployment;
  logs: number;
  reads: Pick<Reads, "header" | "storedIds">;
  pods: () => readonly BeatingPod[];
  onThrown: (error: unknown) => void;
};

export function startBeatingPod(parts: BeatingPodParts): BeatingPod {
  const { podId, random, ids, deployment, logs } = parts;
  let isAlive = true;
  let pausedMs = -Infinity;
  let cutMs = -Infinity;
  let held: (() => void)[] = [];
  const isPaused = () => parts.clock.monotonic() < pausedMs;
  const isCut = () => !isAlive || parts.clock.monotonic() < cutMs;

  const run = (act: () => void): void => {
    if (!isAlive) return;
    if (isPaused()) held.push(act);
    else act();
  };
  const goOn = (): void => {
    if (isPaused()) return;
    const due = held;
    held = [];
    for (const act of due) run(act);
  };
  const clock: Clock = {
    ...parts.clock,
    after(delayMs, callback) {
      let isCancelled = false;
      const cancel = parts.clock.after(delayMs, () => run(() => isCancelled || callback()));
      return () => {
        isCancelled = true;
        cancel();
      };
    },
  };
  const gate = (): Promise<void> => new Promise((resolve) => run(resolve));
  const away = () => new FlotillaError("store_unavailable", "the servers can't be reached");
  const engine = gatedEngine(reachable(parts.engine, { isCut, away, clock: parts.clock }), gate);
  const log = createStreamLog({
    engine,
    deployment,
    clock,
    random,
    ids,
    log: silentLogger,
    maxRecordBytes: 100_000,
  });
  const journal = {
    ...log,
    async header(sessionId: string) {
      await gate();
      return parts.reads.header(sessionId);
    },
    async storedIds(asked: Parameters<Reads["storedIds"]>[0]) {
      await gate();
      return parts.reads.storedIds(asked);
    },
  };
  const shared = { clock, ids, log: silentLogger };
  const beats: Beats = createBeats({
    ...shared,
    channel: parts.channels.connect({ isCut, run }),
    journal: log,
    clusterId: deployment.clusterId,
    podId,
    release: "1",
  });
  beats.start();
  const other = (id: string) => parts.pods().find((each) => each.podId === id);
  const owners = createOwners({
    ...shared,
    podId,
    host: null,
    journal,
    presence: beats,
    heads: createHeads({ journal: beats, clock }),
    logs,
    pods: beats.fleet.pods,
    isGone: () => false,
    own: async (head, recovered, { onFenced, isFresh }) => ({
      owner: createOwner(head, recovered, {
        ...shared,
        journal,
        random,
        facts: () => ({
          nowMs: clock.now(),
          newId: () => ids.next(),
          agent: () => undefined,
          runnerFor: () => null,
        }),
        prime: () => undefined,
        onCommitted: () => {},
        onFenced,
        isFresh,
      }),
      end: () => {},
    }),
    onEvent: () => {},
    wouldTake: async (to) => !isCut() && other(to)?.isRunning === true,
    offer(to, logIds) {
      if (isCut()) return;
      parts.clock.after(5, () => other(to)?.isRunning && other(to)!.owners.poll(logIds));
    },
  });

  const pod: BeatingPod = {
    podId,
    owners,
    get isAlive() {
      return isAlive;
    },
    get isRunning() {
      return isAlive && !isPaused();
    },
    crash() {
      isAlive = false;
    },
    pause(forMs) {
      pausedMs = parts.clock.monotonic() + forMs;
      parts.clock.after(forMs, goOn);
    },
    cut(forMs) {
      cutMs = parts.clock.monotonic() + forMs;
    },
    async stop() {
      try {
        await owners.leave({ limitMs: 2_000 });
        await owners.stop();
      } catch (error) {
        parts.onThrown(error);
      }
      beats.close();
      isAlive = false;
    },
  };
  return pod;
}

/** The servers, as a process reaches them that may be cut off. */
function reachable(
  engine: StreamEngine,
  { isCut, away, clock }: { isCut: () => boolean; away: () => Error; clock: Clock },
): StreamEngine {
  const read = async <Value>(call: () => Promise<Value>): Promise<Value> => {
    if (isCut()) throw away();
    const value = await call();
    if (isCut()) throw away();
    return value;
  };
  return {
    ...engine,
    publish(message, condition) {
      const { promise, resolve } =
        Promise.withResolvers<Awaited<ReturnType<StreamEngine["publish"]>>>();
      clock.after(condition.limitMs, () => resolve({ type: "silent", why: "cut off" }));
      if (!isCut()) {
        void engine.publish(message, condition).then((answer) => {
          if (!isCut()) resolve(answer);
        });
      }
      return promise;
    },
    read: (...asked) => read(() => engine.read(...asked)),
    lastOn: (...asked) => read(() => engine.lastOn(...asked)),
    state: (...asked) => read(() => engine.state(...asked)),
    async *readFrom(...asked) {
      if (isCut()) throw away();
      for await (const message of engine.readFrom(...asked)) {
        if (isCut()) throw away();
        yield message;
      }
    },
  };
}
