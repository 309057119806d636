import { expect, test } from "vitest";
import { uuidv7 } from "../base/ids.ts";
import { silentLogger } from "../base/log.ts";
import { movableClock } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { createMemoryBus } from "../bus/memory-bus.ts";
import type { AgentRegistry } from "./agents/registry.ts";
import type { AgentFacts, Command } from "./conversation/command.ts";
import type { Hub } from "./delivery/delivery.ts";
import { createMemoryJournal, createMemoryPresence } from "./log/memory-journal.ts";
import { createHeads } from "./log/heads.ts";
import type { Fleet } from "./log/fleet.ts";
import { startPodSessions } from "./pod.ts";
import type { Runner } from "./runner.ts";

const facts: AgentFacts = { during: "queue", attempts: 3, compaction: null };

/** A pod that owns the log of a session with one agent. */
async function startOwningPod(isInCode: boolean, more: Partial<Fleet> = {}) {
  const clock = movableClock();
  const random = seededRandom(1);
  const ids = uuidv7(clock, random);
  const journal = createMemoryJournal({ ids });
  await journal.create(1);
  const left = Promise.withResolvers<void>();
  const fleet = {
    pods: () => new Map([["other", 60_000]]),
    withAgent: () => [],
    factsOf: () => undefined,
    refresh: async () => {},
    start: () => {},
    close: () => {},
    ...more,
  } satisfies Fleet;
  const book = {
    spec: async () => undefined,
    facts: (_, name) => (name === "only-there" ? undefined : facts),
    isInCode: () => isInCode,
    prime: async () => {},
  } satisfies AgentRegistry;
  const bus = createMemoryBus().connect("leaving", { clock });
  const heads = createHeads({ journal, clock });
  const hub = {
    isFollowed: () => true,
    committed: () => {},
    ownersMoved: () => {},
  } as unknown as Hub;
  const shared = { clock, random, ids, journal, bus, heads, log: silentLogger, logs: 1 };
  const pod = startPodSessions(
    { ...shared, database: undefined!, maxPayloadBytes: 1_000, hub: () => hub },
    {
      podId: "leaving",
      host: null,
      isGone: () => false,
      presence: createMemoryPresence(journal),
      fleet,
      registry: book,
      createRunner: () =>
        ({ running: () => [], stop: () => left.promise, start: () => {} }) as unknown as Runner,
      onEvent: () => {},
    },
  );
  await clock.advance(5_000);
  const owner = pod.owners.of("s")!;
  const ask = (command: object) => owner.submit("default", "s", command as Command);
  const made = { sessionId: "s", tenant: "default", users: [], metadata: null };
  await ask({ type: "create", ...made, agents: ["only-here"] });
  const send = () => {
    const said = { role: "user", author: "ann", parts: [], tokens: 1 };
    return ask({ type: "append", clientId: "m", messageId: "m", ...said });
  };
  return { clock, pod, owner, left, send };
}

const turns = [
  ["in its code waits for a pod that has it", true, null],
  ["that is stored goes to any other", false, "other"],
] as const;

test.each(turns)(
  "a pod that is leaving, and isn't known to be up any more: a turn of an agent %s",
  async (_, isInCode, runner) => {
    const { clock, pod, owner, left, send } = await startOwningPod(isInCode);
    const stopped = pod.stop({ waitMs: 1_000 });
    await send();
    expect(owner.cachedHeader("s")?.work).toMatchObject({ type: "turn", runner });
    left.resolve();
    await clock.advance(5_000);
    await stopped;
  },
);

test.each(turns)("a pod that drains: a turn of an agent %s", async (_, isInCode, runner) => {
  const { clock, pod, owner, left, send } = await startOwningPod(isInCode);
  expect(pod.hasDrained).toBe(false);
  pod.drain(true);
  await send();
  expect(owner.cachedHeader("s")?.work).toMatchObject({ type: "turn", runner });
  left.resolve();
  const stopped = pod.stop({ waitMs: 0 });
  await clock.advance(5_000);
  await stopped;
});

test("an agent of a pod that was started a moment ago is found by the owner of a log", async () => {
  let reads = 0;
  // It is there in the second: the first had begun before.
  const { owner } = await startOwningPod(true, {
    factsOf: () => (reads > 1 ? facts : undefined),
    refresh: async () => void reads++,
  });
  const made = { tenant: "default", users: [], metadata: null, agents: ["only-there"] };
  const create = { type: "create", sessionId: "another", ...made } as unknown as Command;
  expect(await owner.submit("default", "another", create)).toMatchObject({ done: true });
});
