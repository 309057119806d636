import { noFiles } from "../../contract/no-files.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { sleep } from "../../../base/clock.ts";
import { type MovableClock, movableClock } from "../../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { createMemoryBus } from "../../../bus/memory-bus.ts";
import { createThrottleRegistry } from "../../../throttles/registry.ts";
import { agent, factsOfSpec } from "../../agents/agent.ts";
import type { AgentRegistry } from "../../agents/registry.ts";
import { createMemoryChannels, type MemoryChannels } from "../../contract/memory-channel.ts";
import type { Command } from "../../conversation/command.ts";
import type { Hub } from "../../delivery/delivery.ts";
import { type PodSessions, startPodSessions } from "../../pod.ts";
import { createRunner } from "../../turns/runner.ts";
import { type CommandRouter, createCommandRouter } from "../command-router.ts";
import type { Journal } from "../journal.ts";
import { createMemoryJournal } from "../memory-journal.ts";
import { createHeads } from "../heads.ts";
import { createBeats } from "./beats.ts";

const turnMs = 8_000;
const logs = 4;

let clock: MovableClock;
let journal: Journal;
let channels: MemoryChannels;
let buses: ReturnType<typeof createMemoryBus>;
let calls: string[];
let cleanUps: (() => Promise<void> | void)[];
const random = seededRandom(1);

beforeEach(async () => {
  clock = movableClock();
  journal = createMemoryJournal({ ids: uuidv7(clock, random) });
  channels = createMemoryChannels({ clock });
  buses = createMemoryBus();
  calls = [];
  cleanUps = [];
  await journal.create(logs);
});
afterEach(async () => {
  for (const cleanUp of cleanUps.toReversed()) {
    const done = cleanUp();
    await clock.advance(10_000);
    await done;
  }
});

type Started = { readonly pod: PodSessions; readonly router: CommandRouter };

function start(podId: string, { drainMs }: { drainMs?: number } = {}): Started {
  const spec = agent("slow", async () => {
    calls.push(podId);
    await sleep(clock, turnMs);
    return "done";
  });
  const registry: AgentRegistry = {
    spec: async () => spec,
    facts: () => factsOfSpec(spec),
    isInCode: () => true,
    prime: async () => {},
  };
  const ids = uuidv7(clock, random);
  const bus = buses.connect(podId, { clock });
  const shared = { clock, random, ids, log: silentLogger };
  const beats = createBeats({
    ...shared,
    channel: channels.connect(),
    journal,
    clusterId: "c1",
    podId,
    release: "1",
    agents: { slow: factsOfSpec(spec) },
  });
  beats.start();
  const heads = createHeads({ journal: beats, clock });
  const hub = {
    isFollowed: () => false,
    committed: () => {},
    ownersMoved: () => {},
    chunks: () => {},
  } as unknown as Hub;
  const none = () => Promise.reject(new Error("not asked for here"));
  const pod = startPodSessions(
    {
      ...shared,
      journal,
      bus,
      heads,
      logs,
      database: undefined!,
      maxPayloadBytes: 1_000,
      hub: () => hub,
    },
    {
      podId,
      host: null,
      isGone: () => false,
      presence: beats,
      ...(drainMs !== undefined && { drainMs }),
      fleet: beats.fleet,
      registry,
      createRunner: (links) =>
        createRunner({
          ...shared,
          ...links,
          podId,
          journal,
          agentOf: registry.spec,
          throttles: createThrottleRegistry({ clock, random }),
          files: noFiles,
          enqueue: none,
          start: none,
          prepareLater: none,
          setWake: none,
        }),
      onEvent: () => {},
    },
  );
  const router = createCommandRouter({
    ...shared,
    bus,
    heads,
    owners: pod.owners,
    create: () => journal.create(logs),
  });
  pod.connect(router);
  cleanUps.push(async () => {
    await pod.stop({ waitMs: 0 });
    router.close();
    beats.close();
    await bus.close();
  });
  return { pod, router };
}

const sessionId = "s";
const create: Command = {
  type: "create",
  sessionId,
  tenant: "default",
  agents: ["slow"],
  users: [],
  metadata: null,
};
const append: Command = {
  type: "append",
  clientId: "m1",
  messageId: "m1",
  role: "user",
  author: "ann",
  parts: [{ type: "text", text: "hello" }],
  tokens: 1,
};

/** Two pods, of which the first owns the session's log and runs its turn. */
async function startTurn(options: { drainMs?: number } = {}): Promise<{ a: Started; b: Started }> {
  const [one, two] = [start("a", options), start("b", options)];
  await clock.advance(20_000);
  const [a, b] = one.pod.owners.of(sessionId) ? [one, two] : [two, one];
  for (const command of [create, append]) {
    const done = a.router.submit("default", sessionId, command);
    await clock.advance(100);
    await done;
  }
  expect(a.pod.runner.running()).toMatchObject([{ sessionId, attempt: 1 }]);
  return { a, b };
}

test("a pod that stops hands its logs over first, and a turn of it runs to its end at its first attempt", async () => {
  const { a, b } = await startTurn();
  let isOver = false;
  const stopped = a.pod.stop({ waitMs: 0 }).then(() => (isOver = true));
  await clock.advance(600);
  // All at once, unlike those of a pod that stays.
  expect(a.pod.owners.owned).toEqual([]);
  expect(b.pod.owners.owned).toHaveLength(logs);
  expect(b.pod.owners.of(sessionId)!.cachedHeader(sessionId)?.work).toMatchObject({ attempt: 1 });
  expect(isOver).toBe(false);
  await clock.advance(turnMs);
  await stopped;
  const [answer] = await journal.tail(sessionId, { after: 0, upTo: 99, limit: 1 });
  expect(answer).toMatchObject({ role: "assistant", parts: [{ type: "text", text: "done" }] });
  expect(await journal.turns(sessionId, { limit: 10 })).toMatchObject([{ attempt: 1 }]);
  expect(calls).toHaveLength(1);
});

test("a pod that is told to drain hands its logs over by the same way, and goes on with its turn", async () => {
  const { a, b } = await startTurn();
  a.pod.drain(true);
  await clock.advance(3_000);
  expect(a.pod.owners.owned).toEqual([]);
  expect(b.pod.owners.owned).toHaveLength(logs);
  expect(a.pod.hasDrained).toBe(false);
  await clock.advance(turnMs);
  expect(a.pod.hasDrained).toBe(true);
  expect(await journal.turns(sessionId, { limit: 10 })).toMatchObject([{ attempt: 1 }]);
  expect(calls).toHaveLength(1);
});

test("a turn that outlasts the drain goes to another pod", async () => {
  const { a } = await startTurn({ drainMs: 2_000 });
  const stopped = a.pod.stop({ waitMs: 0 });
  await clock.advance(5_000);
  await stopped;
  expect(calls).toHaveLength(2);
  await clock.advance(turnMs + 1_000);
  expect(await journal.turns(sessionId, { limit: 10 })).toMatchObject([
    { attempt: 2 },
    { attempt: 1 },
  ]);
});
