import { expect, test } from "vitest";
import type { AgentFacts } from "../../conversation/command.ts";
import { createAgentSets, encodeAgents } from "./agents.ts";

const plain: AgentFacts = { during: "queue", attempts: 3, compaction: null };
const rich: AgentFacts = {
  during: "merge",
  debounceMs: 250,
  attempts: 1,
  compaction: { when: "auto", tokenBudget: 1_000, triggerRatio: 0.8 },
};

test("agents are known once their bytes have the hash that a beat had", () => {
  const sets = createAgentSets();
  const { data, hash } = encodeAgents({ plain, rich });
  expect(sets.has(hash)).toBe(false);
  expect(sets.add(encodeAgents({ plain }).hash, data)).toBe(false);
  expect(sets.add(hash, data)).toBe(true);
  expect(sets.get(hash)).toEqual({ plain, rich });
});

test.each<[string, unknown]>([
  ["no map", [plain]],
  ["a name alone", { plain: null }],
  ["an unknown mode", { plain: { ...plain, during: "never" } }],
  ["attempts that are no number", { plain: { ...plain, attempts: "3" } }],
  ["a wait that is no number", { plain: { ...plain, debounceMs: null } }],
  ["a compaction that never comes", { plain: { ...plain, compaction: { when: "never" } } }],
  ["too many", Object.fromEntries(Array.from({ length: 10_001 }, (_, at) => [at, plain]))],
])("agents that are %s aren't kept, whatever their hash", (_, agents) => {
  const { data, hash } = encodeAgents(agents as never);
  expect(createAgentSets().add(hash, data)).toBe(false);
});

test("the sets of long-gone releases are forgotten", () => {
  const sets = createAgentSets();
  const made = Array.from({ length: 65 }, (_, at) => encodeAgents({ [`agent-${at}`]: plain }));
  for (const { data, hash } of made) expect(sets.add(hash, data)).toBe(true);
  expect([sets.has(made[0]!.hash), sets.has(made[64]!.hash)]).toEqual([false, true]);
});
