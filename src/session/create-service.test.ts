import { expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { seededRandom } from "../base/random.ts";
import type { Command, Target } from "./command.ts";
import { decide } from "./conversation.ts";
import { createService, type ServiceParts } from "./create-service.ts";
import type { Courier } from "./owner/courier.ts";
import { createMemoryJournal } from "./journal/memory.ts";
import { storingSessions } from "./storing.contract.ts";
import { readHistory } from "./turns/history.ts";

const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(1));

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

test("the last answer is found behind much that was said since, without reading it all at once", async () => {
  const journal = measuredJournal();
  const rest = Array.from({ length: 60 }, () => large);
  await storingSessions(journal)({ sessionId: "s", entries: [answer, answer, ...rest] });
  const asked: Command[] = [];
  const service = createService({
    journal,
    ids,
    lookHere: () => undefined,
    courier: { ask: async (_, __, command) => (asked.push(command), { lastSeq: 62 }), close() {} },
  } as Pick<ServiceParts, "journal" | "ids" | "lookHere" | "courier"> as ServiceParts);
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
  const ask: Courier["ask"] = async (_, __, command) => {
    if (targets.length === 0) {
      const newer = { ...calling, seq: 3, replaces: 2 };
      header = await store({ ...header, lastSeq: 3, replacedSeq: 3, entries: [newer] });
    }
    targets.push((command as Extract<Command, { type: "tool_result" }>).target);
    const facts = { nowMs: 1, newId: ids.next, agent: () => undefined, runnerFor: () => null };
    const decision = decide(header, command, facts);
    if (decision.type === "decided") return decision.answer;
    const { code, message, details } = decision;
    throw new FlotillaError(code, message, details && { details });
  };
  const service = createService({
    journal,
    ids,
    maxPayloadBytes: 1_000,
    lookHere: () => undefined,
    courier: { ask, close() {} },
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
    maxPayloadBytes: 1_000,
    lookHere: () => undefined,
  } as Partial<ServiceParts> as ServiceParts);
  const result = { author: "ada", messageId: "a", results: [{ toolCallId: "c", output: "yes" }] };
  const again = service.toolResult("default", "s", { ...result, id: "told" });
  expect(await again).toEqual({ seq: 3, messageId: "a", duplicate: true });
  const other = service.toolResult("default", "s", { ...result, id: "other" });
  await expect(other).rejects.toMatchObject({ code: "invalid_input" });
});

test("what an agent is told is read in pieces that fit, however large what was said is", async () => {
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
