import { expect, test } from "vitest";
import { uuidv7 } from "../base/ids.ts";
import { seededRandom } from "../base/random.ts";
import type { Command } from "./command.ts";
import { createService, type ServiceParts } from "./create-service.ts";
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
