import { describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { movableClock } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import type { Command, Target } from "./conversation/command.ts";
import { decideCommand } from "./conversation/decide.ts";
import { createService, type ServiceParts } from "./create-service.ts";
import type { CommandRouter } from "./log/command-router.ts";
import type { Journal } from "./log/journal.ts";
import { createMemoryJournal } from "./log/memory-journal.ts";
import { turn } from "./contract/journal-harness.ts";
import type { SessionService } from "./service.ts";
import { storingSessions } from "./contract/stored-sessions.ts";
import { readHistory } from "./turns/history.ts";

const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(1));

const time = { clock: movableClock(), random: seededRandom(2) };

/** A journal that says how many bytes of entries it gave at once, at most. */
function measuredJournal() {
  const journal = createMemoryJournal({ ids });
  let mostBytes = 0;
  return {
    ...journal,
    async tail(...asked: Parameters<typeof journal.tail>) {
      const page = await journal.tail(...asked);
      mostBytes = Math.max(mostBytes, JSON.stringify(page).length);
      return page;
    },
    mostBytes: () => mostBytes,
  };
}
const answer = { role: "assistant", author: "helper", outcome: "completed" } as const;
const large = { parts: [{ type: "text", text: "x".repeat(200_000) }] };

test("the last answer is found behind many later entries, without reading them all at once", async () => {
  const journal = measuredJournal();
  const rest = Array.from({ length: 60 }, () => large);
  await storingSessions(journal)({ sessionId: "s", entries: [answer, answer, ...rest] });
  const asked: Command[] = [];
  const service = createService({
    journal,
    ids,
    ...time,
    localHeader: () => undefined,
    router: {
      submit: async (_, __, command) => (asked.push(command), { lastSeq: 62 }),
      close() {},
    },
  } as Partial<ServiceParts> as ServiceParts);
  await service.regenerate("default", "s", {});
  expect(asked).toMatchObject([{ type: "regenerate", target: { seq: 2, author: "helper" } }]);
  expect(journal.mostBytes()).toBeLessThan(1_000_000);
});

test("a result for an answer that is replaced before the owner decides is for the newer one", async () => {
  const journal = createMemoryJournal({ ids });
  const store = storingSessions(journal);
  const calling = { ...answer, messageId: "a", parts: [{ type: "tool-ask", toolCallId: "c" }] };
  let header = await store({ sessionId: "s", entries: [{}, calling] });
  const targets: Target[] = [];
  /** An owner that has stored a newer answer just before it decides for the first time. */
  const ask: CommandRouter["submit"] = async (_, __, command) => {
    if (targets.length === 0) {
      const newer = { ...calling, seq: 3, replaces: 2 };
      header = await store({ ...header, lastSeq: 3, replacedSeq: 3, entries: [newer] });
    }
    targets.push((command as Extract<Command, { type: "tool_result" }>).target);
    const facts = { nowMs: 1, newId: ids.next, agent: () => undefined, runnerFor: () => null };
    const decision = decideCommand(header, command, facts);
    if (decision.type === "decided") return decision.answer;
    const { code, message, details } = decision;
    throw new FlotillaError(code, message, details && { details });
  };
  const service = createService({
    journal,
    ids,
    ...time,
    maxPayloadBytes: 1_000,
    localHeader: () => undefined,
    router: { submit: ask, close() {} },
  } as Partial<ServiceParts> as ServiceParts);
  const result = { author: "ada", messageId: "a", results: [{ toolCallId: "c", output: "yes" }] };
  expect(await service.toolResult("default", "s", result)).toMatchObject({ seq: 4 });
  expect(targets).toMatchObject([
    { seq: 2, seenSeq: 2 },
    { seq: 3, seenSeq: 3 },
  ]);
});

test("a result that is sent again is the one that was stored, also where the answer has lost its call", async () => {
  const journal = createMemoryJournal({ ids });
  const calling = { ...answer, messageId: "a", parts: [{ type: "tool-ask", toolCallId: "c" }] };
  const told = { kind: "tool_result", clientId: "told" } as const;
  const anew = { ...answer, messageId: "a", replaces: 2 };
  await storingSessions(journal)({ sessionId: "s", entries: [{}, calling, told, anew] });
  const service = createService({
    journal,
    ids,
    ...time,
    maxPayloadBytes: 1_000,
    localHeader: () => undefined,
    router: { submit: () => Promise.reject(new Error("nothing is to be stored")), close() {} },
  } as Partial<ServiceParts> as ServiceParts);
  const result = { author: "ada", messageId: "a", results: [{ toolCallId: "c", output: "yes" }] };
  const again = service.toolResult("default", "s", { ...result, id: "told" });
  expect(await again).toEqual({ seq: 3, messageId: "a", duplicate: true });
  const other = service.toolResult("default", "s", { ...result, id: "other" });
  await expect(other).rejects.toMatchObject({ code: "invalid_input" });
});

describe("with a store that is away", () => {
  const calling = { ...answer, messageId: "a", parts: [{ type: "tool-ask", toolCallId: "c" }] };
  const result = { author: "ada", messageId: "a", results: [{ toolCallId: "c", output: "yes" }] };
  const calls: Record<string, (service: SessionService) => Promise<unknown>> = {
    stop: (service) => service.stop("default", "s"),
    toolResult: (service) => service.toolResult("default", "s", result),
    "toolResult of a call that is gone": (service) =>
      service.toolResult("default", "s", { ...result, results: [{ toolCallId: "d", output: 1 }] }),
    regenerate: (service) => service.regenerate("default", "s", {}),
  };
  const scene = async () => {
    const clock = movableClock();
    const stored = createMemoryJournal({ ids });
    const work = turn({ agent: "helper" });
    await storingSessions(stored)({ sessionId: "s", epoch: 1, work, entries: [{}, calling] });
    /** What the store does with the next look. */
    const store = { look: async () => {} };
    const after =
      <Asked extends unknown[], Found>(read: (...asked: Asked) => Promise<Found>) =>
      async (...asked: Asked): Promise<Found> => (await store.look(), read(...asked));
    const journal: Journal = {
      ...stored,
      header: after(stored.header),
      newest: after(stored.newest),
      tail: after(stored.tail),
      storedIds: after(stored.storedIds),
    };
    const timeouts: (number | undefined)[] = [];
    const service = createService({
      journal,
      ids,
      clock,
      random: seededRandom(3),
      maxPayloadBytes: 1_000,
      localHeader: () => undefined,
      router: {
        submit: async (_, __, ___, options) => (
          timeouts.push(options?.timeoutMs),
          { lastSeq: 3, seq: 3 }
        ),
        close() {},
      },
    } as Partial<ServiceParts> as ServiceParts);
    return { clock, store, service, timeouts };
  };
  const away = async () => {
    throw new FlotillaError("store_unavailable", "away");
  };

  test.each(Object.keys(calls))(
    "S10: %s waits for it, and its owner has what is left of the fifteen seconds",
    async (name) => {
      const { clock, store, service, timeouts } = await scene();
      store.look = away;
      const answered = calls[name]!(service).then(
        () => "answered",
        (error: FlotillaError) => error.code,
      );
      await clock.advance(13_900);
      store.look = async () => {};
      await clock.advance(300);
      const isGone = name.endsWith("gone");
      expect(await answered).toBe(isGone ? "invalid_input" : "answered");
      for (const each of timeouts) expect(each).toBeLessThanOrEqual(1_100);
      expect([timeouts.length, clock.timers]).toEqual([isGone ? 0 : 1, 0]);
    },
  );

  test.each(
    Object.keys(calls).flatMap(
      (name) =>
        [
          [name, "says that it is", away],
          [name, "says nothing", () => new Promise<never>(() => {})],
        ] as const,
    ),
  )("S10: %s of one that %s is rejected after its time", async (name, _, look) => {
    const { clock, store, service } = await scene();
    store.look = look;
    let told: string | undefined;
    void calls[name]!(service).catch((error: FlotillaError) => (told = error.code));
    await clock.advance(14_900);
    expect(told).toBeUndefined();
    await clock.advance(1_100);
    expect([told, clock.timers]).toEqual(["store_unavailable", 0]);
  });
});

test("the history for an agent is read in pieces that fit, however large it is", async () => {
  const journal = measuredJournal();
  const small = Array.from({ length: 700 }, () => ({}));
  const rest = Array.from({ length: 250 }, () => large);
  const header = await storingSessions(journal)({ sessionId: "s", entries: [...rest, ...small] });
  const turn = { trigger: "submit", upToSeq: 950, messageId: "m" } as never;
  const whole = { history: { mode: "entire" }, context: { skipParts: [], lastN: null } } as const;
  const { messages } = await readHistory(journal, header, turn, whole);
  expect(messages.length).toBeGreaterThan(0);
  expect(journal.mostBytes()).toBeLessThan(34 * 1024 * 1024);
});
