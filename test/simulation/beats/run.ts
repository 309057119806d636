/** One seed: pods that find each other by beats, servers and beats that fail, a time of quiet, the verdict. */
import type { Clock } from "../../../src/base/clock.ts";
import { hasCode, messageOf } from "../../../src/base/errors.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { between, fraction, seededRandom } from "../../../src/base/random.ts";
import {
  noStreamTroubles,
  simulateStreams,
} from "../../../src/sessions/contract/simulated-streams.ts";
import type { Command } from "../../../src/sessions/conversation/command.ts";
import { createStreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import { logOf } from "../../../src/sessions/log/placement.ts";
import type { Report } from "../report.ts";
import { createScheduler } from "../scheduler.ts";
import { streamTroublesOf } from "../streams/run.ts";
import type { Violation } from "../world.ts";
import { createChannels } from "./channels.ts";
import { type BeatingPod, startBeatingPod } from "./pod.ts";
import { createTruth } from "./truth.ts";

const logs = 4;
const tenant = "default";
const sessions = Array.from({ length: 8 }, (_, nth) => `s${nth}`);
/** Leaders that were deposed go on answering for a while, and pauses end. */
const settleMs = 15_000;
/** How long a pod is away once all is well, and when it has its logs again. */
const awayMs = 3_000;
const backMs = 16_000;
const steadyMs = 5_000;
const failoverMs = 2_000;

export async function runBeatSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const random = seededRandom(seed);
  const scheduler = createScheduler({ keepTrace });
  const counts = new Map<string, number>();
  const violations: Violation[] = [];
  const count = (what: string): void => {
    counts.set(what, (counts.get(what) ?? 0) + 1);
    scheduler.note(what);
  };
  const violate = (invariant: string, what: string): void => {
    violations.push({ invariant, what });
    scheduler.note(`violated ${invariant}: ${what}`);
  };
  const clock: Clock = {
    now: () => 1_700_000_000_000 + Math.floor(scheduler.nowMs),
    monotonic: () => scheduler.nowMs,
    after: (delayMs, callback) => scheduler.after(delayMs, callback),
  };
  const ids = uuidv7(clock, random);
  const deployment = {
    namespace: "simulated",
    clusterId: "cluster",
    replicas: 3,
    maxLogBytes: 10_000_000,
  } as const;
  /** A pod that was away, while all others are well. */
  let returning: string | undefined;
  const truth = createTruth({
    deployment,
    violate,
    nowMs: () => scheduler.nowMs,
    onTaken({ logId, from, to }) {
      scheduler.note(`log ${logId} goes from ${from} to ${to}`);
      if (to === returning && from !== null && from !== to) {
        violate("O4", `${to} wakes and takes log ${logId} from ${from}, which is well`);
      }
    },
  });
  const servers = simulateStreams({
    clock,
    random,
    onEvent: count,
    onStored(stream, message) {
      scheduler.note(`${stream} ${message.sequence}`);
      truth.stored(stream, message);
    },
  });
  const channels = createChannels({ clock, random, count });
  let pods: BeatingPod[] = [];
  let made = 0;
  let isQuiet = false;
  const chance = (likely: number): boolean => fraction(random) < likely;
  const alive = () => pods.filter((each) => each.isAlive);
  const holders = (logId: number) =>
    alive().filter(({ owners }) => owners.owned.some(({ head }) => head.logId === logId));

  const fill = (): void => {
    const podId = `p${++made}`;
    pods = alive();
    pods.push(
      startBeatingPod({
        podId,
        clock,
        random,
        ids,
        engine: servers.connect(),
        channels,
        deployment,
        logs,
        reads: truth.reads,
        pods: () => pods,
        onThrown: (error) => violate("thrown", messageOf(error)),
      }),
    );
  };

  /** Sends a message to any pod that says that it owns the session, which may be mistaken. */
  const send = async (): Promise<void> => {
    const sessionId = sessions[between(random, 0, sessions.length - 1)]!;
    const able = alive().filter(({ owners, isRunning }) => isRunning && owners.of(sessionId));
    if (able.length === 0) return count("client: no owner");
    const pod = able[between(random, 0, able.length - 1)]!;
    const isNew = !truth.exists(sessionId);
    const clientId = ids.next();
    const command = isNew ? createOf(sessionId) : appendOf(clientId);
    try {
      const { seq } = await pod.owners.of(sessionId)!.submit(tenant, sessionId, command);
      if (isNew) return;
      count("client: acked");
      truth.acked({ sessionId, clientId, seq: seq! });
    } catch (error) {
      const isExpected = hasCode(
        error,
        "not_owner",
        "store_unavailable",
        "unknown_outcome",
        "conflict",
        "overloaded",
      );
      if (!isExpected) violate("thrown", messageOf(error));
      count("client: refused");
    }
  };

  /** What a pod says from memory is at most two seconds old. */
  const read = (): void => {
    for (const { podId, owners, isRunning } of alive()) {
      if (!isRunning) continue;
      for (const sessionId of sessions) {
        const owner = owners.of(sessionId);
        if (!owner || !owners.isFresh(sessionId)) continue;
        count("client: read from memory");
        const { logId, term } = owner.head;
        const lostMs = truth.lostMs(logId, term);
        if (scheduler.nowMs - lostMs > 2_000) {
          violate("S7", `${podId} answers for term ${term} of log ${logId}, lost at ${lostMs}`);
        }
      }
    }
  };
  const talk = (): void => {
    void send();
    scheduler.after(between(random, 20, isQuiet ? 800 : 400), talk);
  };
  const watch = (): void => {
    read();
    scheduler.after(between(random, 50, 300), watch);
  };

  const strike = (): void => {
    if (isQuiet) return;
    scheduler.after(between(random, 300, 4_000), strike);
    const running = alive();
    const pod = running[between(random, 0, running.length - 1)];
    if (!pod) return;
    const kind = between(random, 0, 5);
    if (kind === 0) {
      count("fault: crash");
      pod.crash();
      scheduler.after(between(random, 100, 3_000), fill);
    } else if (kind === 1) {
      count("fault: stop");
      void pod.stop();
      scheduler.after(between(random, 100, 3_000), fill);
    } else if (kind <= 3) {
      count("fault: pause");
      pod.pause(between(random, 100, 6_000));
    } else if (kind === 4) {
      count("fault: cut off");
      pod.cut(between(random, 100, 6_000));
    } else servers.depose();
  };

  const first = createStreamLog({
    engine: servers.connect(),
    deployment,
    clock,
    random,
    ids,
    log: silentLogger,
    maxRecordBytes: 100_000,
  });
  await first.create(logs);
  const troubles = streamTroublesOf(() => fraction(random));
  const faultsMs = between(random, 8_000, 20_000);
  servers.troubles = troubles;
  channels.troubles = {
    lost: chance(0.5) ? 0 : fraction(random) * 0.3,
    doubled: chance(0.5) ? 0 : 0.1,
    delayMs: chance(0.5) ? 2 : between(random, 10, 300),
  };
  const places = between(random, 2, 4);
  for (let place = 0; place < places; place++) fill();
  scheduler.after(100, talk);
  scheduler.after(200, watch);
  scheduler.after(between(random, 300, 4_000), strike);
  scheduler.after(faultsMs, () => {
    isQuiet = true;
    servers.troubles = noStreamTroubles;
    channels.troubles = { lost: 0, doubled: 0, delayMs: 2 };
    while (alive().length < 2) fill();
  });

  const judgeServed = (when: string): void => {
    for (let logId = 0; logId < logs; logId++) {
      const found = holders(logId).map(({ podId }) => podId);
      if (found.length !== 1) violate("quiet", `log ${logId} is served by ${found.join()} ${when}`);
    }
  };
  let isOver = false;
  scheduler.after(faultsMs + settleMs, () => {
    judgeServed("once all was well");
    for (const sessionId of sessions) {
      const pod = holders(logOf(sessionId, logs))[0];
      if (pod && !pod.owners.isFresh(sessionId)) {
        violate("quiet", `${pod.podId} isn't sure of ${sessionId} once all was well`);
      }
    }
    const away = alive()[between(random, 0, alive().length - 1)]!;
    returning = away.podId;
    count("quiet: a pod is away");
    if (chance(0.5)) away.cut(awayMs);
    else away.pause(awayMs);
    scheduler.after(backMs, judgeSteady);
  });
  const judgeSteady = (): void => {
    returning = undefined;
    judgeServed("once a pod was back");
    const terms = truth.terms();
    scheduler.after(steadyMs, () => {
      const hasMoved = truth.terms().some((term, logId) => term !== terms[logId]);
      if (hasMoved) violate("quiet", `terms went from ${terms.join()} to ${truth.terms().join()}`);
      const [victim] = alive().filter(({ owners }) => owners.owned.length > 0);
      if (!victim) return void (isOver = true);
      count("quiet: a pod dies");
      victim.crash();
      scheduler.after(failoverMs, () => {
        judgeServed(`${failoverMs} ms after ${victim.podId} had died`);
        isOver = true;
      });
    });
  };
  await scheduler.runUntil(() => violations.length > 0 || isOver);
  for (const pod of pods) pod.crash();
  if (violations.length === 0) truth.judge();
  return {
    seed,
    violations,
    hash: scheduler.trace.hash(),
    trace: scheduler.trace.lines,
    counts,
    virtualMs: scheduler.nowMs,
  };
}

function createOf(sessionId: string): Command {
  return { type: "create", sessionId, tenant, agents: [], users: [], metadata: null };
}

function appendOf(clientId: string): Command {
  const said = { role: "user", author: "ann", parts: [], tokens: 1 } as const;
  return { type: "append", clientId, messageId: clientId, ...said };
}
