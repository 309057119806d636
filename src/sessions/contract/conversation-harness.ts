import { expect } from "vitest";
import type {
  AgentFacts,
  Command,
  DecidedEntry,
  CommandDecision,
  SessionEffect,
  Facts,
} from "../conversation/command.ts";
import { decideCommand } from "../conversation/decide.ts";
import type { Header } from "../conversation/header.ts";

export type ConversationHarness = {
  readonly header: Header;
  readonly entries: readonly DecidedEntry[];
  /** Those of the last decision. */
  readonly effects: readonly SessionEffect[];
  /** The runner of what is started from now on; null for none. */
  runner: string | null;
  /** The runner where that one is excluded. */
  nextRunner: string | null | undefined;
  nowMs: number;
  ask(command: Command): CommandDecision;
  say(
    text: string,
    more?: { to?: string; tokens?: number; role?: DecidedEntry["role"] },
  ): CommandDecision;
  /** Ends the turn or compaction that is under way. */
  finish(text: string, more?: { tokens?: number }): CommandDecision;
};

export const plain: AgentFacts = { during: "queue", attempts: 3, compaction: null };
export const compacted: AgentFacts = {
  ...plain,
  compaction: { when: "auto", tokenBudget: 100, triggerRatio: 0.7 },
};

export const textParts = (text: string) => (text === "" ? [] : [{ type: "text", text }]);

/** A session that is asked one thing after the other, with every decision held to what all must keep. */
export function startConversation(
  agents: Readonly<Record<string, AgentFacts>> = { helper: plain },
  { users = ["ann"] }: { users?: string[] } = {},
): ConversationHarness {
  let header: Header | undefined;
  let effects: readonly SessionEffect[] = [];
  const entries: DecidedEntry[] = [];
  let asked = 0;

  const talk: ConversationHarness = {
    get header() {
      return header!;
    },
    entries,
    get effects() {
      return effects;
    },
    runner: "pod-1",
    nextRunner: undefined,
    nowMs: 1_000,
    ask(command) {
      const call = ++asked;
      const factsNow = (): Facts => {
        let ids = 0;
        return {
          nowMs: talk.nowMs,
          newId: () => `id-${call}-${++ids}`,
          agent: (name) => agents[name],
          runnerFor: (_, except) =>
            talk.nextRunner !== undefined && talk.runner === except ? talk.nextRunner : talk.runner,
        };
      };
      freeze(header);
      freeze(command);
      const decision = decideCommand(header, command, factsNow());
      expect(decideCommand(header, command, factsNow())).toEqual(decision);
      if (decision.type === "refused") return decision;
      holds(header, decision);
      ({ header, effects } = decision);
      entries.push(...decision.entries);
      return decision;
    },
    say(text, { to, tokens = 1, role = "user" } = {}) {
      const id = `m${asked}`;
      const parts = textParts(text);
      const said = { clientId: id, messageId: id, role, author: "ann", parts, tokens };
      return talk.ask({ type: "append", ...said, ...(to !== undefined && { to }) });
    },
    finish(text, { tokens = 1 } = {}) {
      const { type, epoch, attempt } = header!.work!;
      const parts = textParts(text);
      if (type === "compaction") {
        return talk.ask({ type: "compaction_finished", epoch, attempt, parts, tokens });
      }
      const reply = { outcome: "completed", parts, tokens } as const;
      return talk.ask({ type: "turn_finished", epoch, attempt, reply });
    },
  };
  const names = Object.keys(agents);
  const session = { sessionId: "s", tenant: "t", agents: names, users, metadata: null };
  talk.ask({ type: "create", ...session });
  return talk;
}

/** What holds of every decision, whatever was asked. */
function holds(
  before: Header | undefined,
  decision: Extract<CommandDecision, { type: "decided" }>,
): void {
  const { header: after, entries, answer, effects } = decision;
  const from = before?.lastSeq ?? 0;
  expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, at) => from + 1 + at));
  expect(after.lastSeq).toBe(from + entries.length);
  expect(answer.lastSeq).toBe(after.lastSeq);
  expect(JSON.parse(JSON.stringify(after))).toEqual(after);
  if (answer.done === false) expect([entries, effects]).toEqual([[], []]);
  if (after.work === null) expect(after.pending).toEqual([]);
  if (after.work) expect(after.work.epoch).toBe(after.epoch);
  expect(after.tokens).toBeGreaterThanOrEqual(0);
  if (!before) return;
  if (answer.done === false) expect(after).toBe(before);
  if (after !== before) expect(after).not.toEqual(before);
  expect(after.epoch).toBeGreaterThanOrEqual(before.epoch);
  expect(after.compactedSeq).toBeGreaterThanOrEqual(before.compactedSeq);
  if (before.work && after.work?.epoch === before.work.epoch) {
    expect(after.work.type).toBe(before.work.type);
    expect(after.work.attempt).toBeGreaterThanOrEqual(before.work.attempt);
  }
}

function freeze(value: unknown): void {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return;
  Object.freeze(value);
  Object.values(value).forEach(freeze);
}
