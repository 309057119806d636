import { describe, expect, test } from "vitest";
import { deathLimit } from "../../base/death-limit.ts";
import {
  type ConversationHarness,
  plain,
  startConversation,
  textParts,
} from "../contract/conversation-harness.ts";
import type { Target } from "./command.ts";
import { maxSteering, sessionStateOf, type Turn } from "./header.ts";
import { maxPending } from "./pending.ts";
import { countedFromAttempt } from "./turns.ts";

const turnOf = (talk: ConversationHarness) => talk.header.work as Turn;
const numbersOf = ({ header: { work } }: ConversationHarness) => ({
  epoch: work!.epoch,
  attempt: work!.attempt,
});
const textsOf = (talk: ConversationHarness) =>
  talk.entries.map(({ parts }) => parts[0]?.["text"] ?? "");
const targetOf = (talk: ConversationHarness, seq: number) => talk.entries[seq - 1]!;
const regenerate = (talk: ConversationHarness, seq: number, target: Target = targetOf(talk, seq)) =>
  talk.ask({ type: "regenerate", clientId: `again-${seq}`, target });
const giveResult = (
  talk: ConversationHarness,
  seq: number,
  target: Target = targetOf(talk, seq),
) => {
  const { messageId } = target;
  const result = { clientId: `r${talk.entries.length}`, author: "ann", messageId, results: [] };
  return talk.ask({ type: "tool_result", ...result, target, tokens: 1 });
};

describe("a message during a turn", () => {
  test("waits, together with others to the same agent, and is answered knowing the first answer", () => {
    const talk = startConversation();
    talk.say("one");
    talk.say("two");
    talk.say("three");
    expect(talk.header.pending).toMatchObject([{ fromSeq: 2, upToSeq: 3 }]);
    talk.finish("first");
    expect(talk.header).toMatchObject({ pending: [], work: { epoch: 2, upToSeq: 4 } });
    talk.finish("second");
    expect(talk.header.work).toBeNull();
    expect(textsOf(talk)).toEqual(["one", "two", "three", "first", "second"]);
  });

  test("interrupts it where the agent's option demands it, and nothing of the old turn is stored", () => {
    const talk = startConversation({ helper: { ...plain, during: "interrupt" } });
    talk.say("one");
    const old = numbersOf(talk);
    talk.say("two");
    expect(talk.effects).toEqual([
      { type: "abort_turn", runner: "pod-1", ...old, keep: false },
      { type: "start_turn", epoch: 2, attempt: 1 },
    ]);
    const reply = { outcome: "completed", parts: textParts("late"), tokens: 1 } as const;
    expect(talk.ask({ type: "turn_finished", ...old, reply })).toMatchObject({
      answer: { done: false, lastSeq: 2 },
    });
    expect(turnOf(talk)).toMatchObject({ epoch: 2, upToSeq: 2 });
  });

  test("is waited for more of, where the agent merges", () => {
    const talk = startConversation({ helper: { ...plain, during: "merge" } });
    talk.say("one");
    expect(talk.effects).toEqual([{ type: "debounce", epoch: 1, upToSeq: 1 }]);
    talk.say("two");
    expect(talk.effects).toEqual([{ type: "debounce", epoch: 1, upToSeq: 2 }]);
    const early = talk.ask({ type: "debounced", epoch: 1, upToSeq: 1 });
    expect(early).toMatchObject({ answer: { done: false } });
    talk.ask({ type: "debounced", epoch: 1, upToSeq: 2 });
    expect(talk.effects).toEqual([{ type: "start_turn", epoch: 1, attempt: 1 }]);
    talk.say("three");
    expect(talk.effects.map(({ type }) => type)).toEqual(["abort_turn", "debounce"]);
    expect(turnOf(talk)).toMatchObject({ epoch: 2, attempt: 0, upToSeq: 3, runner: null });
  });

  test("interrupts it together with those to the same agent that waited", () => {
    const talk = startConversation({ helper: { ...plain, during: "interrupt" } });
    talk.say("one");
    talk.finish("first");
    talk.say("two");
    talk.ask({ type: "stop" });
    regenerate(talk, 2);
    talk.say("three");
    talk.finish("half");
    expect(turnOf(talk)).toMatchObject({ trigger: "regenerate" });
    talk.say("four");
    expect(turnOf(talk)).toMatchObject({ trigger: "submit", upToSeq: talk.header.lastSeq });
    expect(talk.header.pending).toEqual([]);
  });

  test("to another agent waits, whatever the agents' policies", () => {
    const talk = startConversation({ a: plain, b: { ...plain, during: "interrupt" } });
    talk.say("one");
    talk.say("two", { to: "b" });
    expect(turnOf(talk)).toMatchObject({ agent: "a", epoch: 1 });
    talk.finish("by a");
    expect(turnOf(talk)).toMatchObject({ agent: "b", epoch: 2 });
  });

  test("that is being stopped waits too, so that the answer so far is kept", () => {
    const talk = startConversation({ helper: { ...plain, during: "interrupt" } });
    talk.say("one");
    talk.ask({ type: "stop" });
    talk.say("two");
    expect(talk.header).toMatchObject({ epoch: 1, pending: [{ upToSeq: 3 }] });
    talk.finish("half");
    expect(turnOf(talk)).toMatchObject({ epoch: 2, stopping: false });
  });
});

describe("what waits", () => {
  test("keeps results and regenerations separate, in order, and one for each message", () => {
    const talk = startConversation();
    talk.say("one");
    talk.finish("first");
    talk.say("two");
    giveResult(talk, 2);
    regenerate(talk, 2);
    talk.say("three");
    giveResult(talk, 2);
    expect(regenerate(talk, 2)).toMatchObject({ answer: { done: true }, effects: [] });
    expect(talk.header.pending.map(({ trigger }) => trigger)).toEqual([
      "tool_result",
      "regenerate",
      "submit",
    ]);
    const { messageId } = targetOf(talk, 2);
    talk.finish("second");
    expect(turnOf(talk)).toMatchObject({ trigger: "tool_result", replaces: 2, messageId });
    talk.finish("continued");
    const continued = talk.entries.at(-1)!;
    expect(continued).toMatchObject({ replaces: 2, messageId });
    // What is to be replaced is by now the continuation.
    expect(turnOf(talk)).toMatchObject({ trigger: "regenerate", replaces: continued.seq });
  });

  test.each([
    ["a result", giveResult],
    ["a regeneration", regenerate],
  ])("%s for an answer that was replaced since it was read is refused", (_, ask) => {
    const talk = startConversation();
    talk.say("one");
    talk.finish("first");
    const seen = { ...targetOf(talk, 2), seenSeq: 2 };
    regenerate(talk, 2);
    talk.finish("first, again");
    expect(ask(talk, 2, seen)).toMatchObject({ type: "refused", code: "conflict" });
    expect(talk.header).toMatchObject({ lastSeq: 3, work: null });
    expect(ask(talk, 3, { ...targetOf(talk, 3), seenSeq: 3 })).toMatchObject({ type: "decided" });
    talk.finish("first, once more");
    talk.say("two");
    talk.finish("second");
    // What was said since is no replacement.
    const { lastSeq } = talk.header;
    talk.say("three");
    talk.finish("third");
    const second = { ...targetOf(talk, lastSeq), seenSeq: lastSeq };
    expect(ask(talk, lastSeq, second)).toMatchObject({ type: "decided" });
  });

  test("is bounded: what would be too much is refused and not stored", () => {
    const talk = startConversation();
    for (let at = 0; at < maxPending; at++) {
      talk.say("again");
      talk.finish("an answer");
    }
    talk.say("one more");
    for (let at = 0; at < maxPending; at++) regenerate(talk, 2 * at + 2);
    const { lastSeq } = talk.header;
    expect(talk.say("too much")).toMatchObject({ type: "refused", code: "overloaded" });
    expect(giveResult(talk, 2)).toMatchObject({ type: "refused", code: "overloaded" });
    expect(talk.header).toMatchObject({ lastSeq, pending: { length: maxPending } });
  });

  test("for an agent that left is seen to have failed", () => {
    const talk = startConversation({ a: plain, b: plain });
    talk.say("one");
    talk.say("two", { to: "b" });
    talk.ask({ type: "members", agents: ["a"] });
    talk.finish("by a");
    expect(talk.header.work).toBeNull();
    expect(talk.entries.at(-1)).toMatchObject({
      author: "b",
      outcome: "failed",
      error: { code: "agent_removed" },
    });
  });

  test("in a session that is archived is seen to have been stopped", () => {
    const talk = startConversation();
    talk.say("one");
    talk.say("two");
    talk.ask({ type: "archive" });
    expect(talk.effects).toMatchObject([{ type: "abort_turn", keep: true }]);
    talk.finish("half");
    expect(talk.header).toMatchObject({ status: "archived", work: null, pending: [] });
    expect(textsOf(talk)).toEqual(["one", "two", "half", ""]);
    expect(talk.entries.at(-1)).toMatchObject({ outcome: "stopped" });
  });
});

describe("a tool result beside others", () => {
  const give = (talk: ConversationHarness, seenSeq: number, more: { waits?: true } = {}) => {
    const { messageId, author } = targetOf(talk, 2);
    const target = { seq: 2, messageId, author, seenSeq };
    const result = { clientId: `x${talk.entries.length}`, author: "ann", messageId, results: [] };
    return talk.ask({ type: "tool_result", ...result, target, tokens: 1, isExact: true, ...more });
  };
  const asked = () => {
    const talk = startConversation();
    talk.say("one");
    talk.finish("call");
    return talk;
  };

  test("is stored without a turn while other calls are open, and the last one starts it", () => {
    const talk = asked();
    expect(give(talk, 2, { waits: true })).toMatchObject({ answer: { seq: 3, done: true } });
    expect(talk.header).toMatchObject({ work: null, pending: [], resultSeq: 3 });
    give(talk, 3);
    expect(talk.header).toMatchObject({ lastSeq: 4, resultSeq: 4 });
    expect(turnOf(talk)).toMatchObject({ trigger: "tool_result", replaces: 2 });
  });

  test("is refused if another came after what its sender has read, and nothing is stored", () => {
    const talk = asked();
    give(talk, 2, { waits: true });
    const late = give(talk, 2);
    expect(late).toMatchObject({ type: "refused", code: "conflict", details: { replaced: true } });
    expect(talk.header).toMatchObject({ lastSeq: 3, work: null });
  });
});

describe("an answer without content", () => {
  test("leaves the one it was to replace in its place", () => {
    const talk = startConversation();
    talk.say("one");
    talk.finish("first");
    regenerate(talk, 2);
    const error = { code: "agent_failed", message: "it broke" };
    const reply = { outcome: "failed", parts: [], tokens: 0, error } as const;
    talk.ask({ type: "turn_finished", ...numbersOf(talk), reply });
    const [, first, failed] = talk.entries;
    expect(failed).toMatchObject({ outcome: "failed", error, epoch: 2 });
    expect(failed).not.toHaveProperty("replaces");
    expect(failed!.messageId).not.toBe(first!.messageId);
  });

  test("shows the session as it was, and the last answer keeps its start to be shown", () => {
    const talk = startConversation();
    talk.say(`  a long\n lines ${"🙂".repeat(60)}`);
    const { preview } = talk.header;
    expect(preview).toMatch(/^a long lines 🙂/);
    expect(preview.isWellFormed()).toBe(true);
    expect(preview.length).toBeLessThanOrEqual(80);
    talk.ask({ type: "stop" });
    talk.finish("");
    expect(talk.header).toMatchObject({ preview, previewAuthor: "ann" });
  });
});

describe("a runner", () => {
  const checkpoint = { outcome: "completed", parts: textParts("half"), tokens: 2 } as const;

  test("that is lost is followed by others, until they are used up", () => {
    const talk = startConversation({ helper: { ...plain, attempts: 2 } });
    talk.say("one");
    talk.runner = "pod-2";
    talk.ask({ type: "work_lost", ...numbersOf(talk), checkpoint });
    expect(turnOf(talk)).toMatchObject({ epoch: 1, attempt: 2, lost: 1, runner: "pod-2" });
    talk.ask({ type: "work_begun", ...numbersOf(talk) });
    talk.ask({ type: "work_lost", ...numbersOf(talk), checkpoint });
    expect(talk.header.work).toBeNull();
    expect(talk.entries.at(-1)).toMatchObject({
      outcome: "cut",
      parts: checkpoint.parts,
      error: { code: "runner_lost" },
    });
  });

  test("is lost at most as often as under a task, whatever the agent's options, and the failure is seen", () => {
    const talk = startConversation({ helper: { ...plain, attempts: 100 } });
    talk.say("one");
    for (let lost = 1; lost < deathLimit; lost++) {
      talk.ask({ type: "work_lost", ...numbersOf(talk) });
      expect(turnOf(talk)).toMatchObject({ attempt: lost + 1, lost });
      talk.ask({ type: "work_begun", ...numbersOf(talk) });
    }
    // One that is handed on by a pod that stops isn't counted.
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    talk.ask({ type: "work_begun", ...numbersOf(talk) });
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    expect(talk.header.work).toBeNull();
    expect(talk.entries.at(-1)).toMatchObject({
      role: "assistant",
      outcome: "failed",
      error: { code: "runner_lost", message: expect.stringContaining("all 4 pods") },
    });
  });

  test("that is lost under a turn which hasn't begun there isn't counted once the turn is suspect", () => {
    const talk = startConversation();
    talk.say("one");
    for (const alone of [undefined, undefined, "waits"]) {
      expect(turnOf(talk).alone).toBe(alone);
      talk.ask({ type: "work_lost", ...numbersOf(talk) });
    }
    expect(turnOf(talk)).toMatchObject({ attempt: 4, lost: 2, alone: "waits" });
    talk.ask({ type: "work_begun", ...numbersOf(talk) });
    expect(turnOf(talk).alone).toBe("begun");
    // The pod that gets it next has it wait for an empty pod again.
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    expect(turnOf(talk)).toMatchObject({ attempt: 5, lost: 2, alone: "waits" });
    talk.ask({ type: "work_begun", ...numbersOf(talk) });
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    expect(talk.header.work).toBeNull();
    expect(talk.entries.at(-1)).toMatchObject({
      error: { message: expect.stringContaining("all 3 pods") },
    });
  });

  test("that is lost when others have begun beside a suspect isn't counted, but not for ever", () => {
    const talk = startConversation();
    talk.say("one");
    for (let lost = 0; lost < 2; lost++) talk.ask({ type: "work_lost", ...numbersOf(talk) });
    while (turnOf(talk).attempt < countedFromAttempt) {
      talk.ask({ type: "work_begun", ...numbersOf(talk) });
      talk.ask({ type: "work_begun", ...numbersOf(talk), beside: true });
      // What comes late takes nothing back.
      talk.ask({ type: "work_begun", ...numbersOf(talk) });
      expect(turnOf(talk)).toMatchObject({ lost: 2, alone: "beside" });
      talk.ask({ type: "work_lost", ...numbersOf(talk) });
      expect(turnOf(talk)).toMatchObject({ lost: 2, alone: "waits" });
    }
    talk.ask({ type: "work_begun", ...numbersOf(talk), beside: true });
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    expect(talk.header.work).toBeNull();
    expect(talk.entries.at(-1)).toMatchObject({ error: { code: "runner_lost" } });
  });

  test.each([
    [1, []],
    [2, ["waits"]],
    [3, [undefined, "waits"]],
    [100, [undefined, "waits", "waits"]],
  ])("under an agent with %s attempts runs the last of them alone", (attempts, expected) => {
    const talk = startConversation({ helper: { ...plain, attempts } });
    talk.say("one");
    const seen: unknown[] = [];
    for (;;) {
      talk.ask({ type: "work_lost", ...numbersOf(talk) });
      if (!talk.header.work) break;
      seen.push(turnOf(talk).alone);
      talk.ask({ type: "work_begun", ...numbersOf(talk) });
    }
    expect(seen).toEqual(expected);
  });

  test("that is lost for good before its first chunk leaves a failure to be seen", () => {
    const talk = startConversation({ helper: { ...plain, attempts: 1 } });
    talk.say("one");
    talk.say("two");
    const nothing = { ...checkpoint, parts: [] };
    talk.ask({ type: "work_lost", ...numbersOf(talk), checkpoint: nothing });
    expect(talk.entries.at(-1)).toMatchObject({ outcome: "failed", parts: [] });
    expect(turnOf(talk)).toMatchObject({ epoch: 2, attempt: 1, lost: 0 });
  });

  test("that hands on as often as it likes isn't lost", () => {
    const talk = startConversation({ helper: { ...plain, attempts: 2 } });
    talk.say("one");
    for (let at = 0; at < 5; at++) talk.ask({ type: "turn_released", ...numbersOf(talk) });
    expect(turnOf(talk)).toMatchObject({ epoch: 1, attempt: 6, lost: 0, runner: "pod-1" });
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    expect(turnOf(talk)).toMatchObject({ epoch: 1, attempt: 7, lost: 1 });
  });

  test("that releases a turn isn't asked for it again, though it is still listed", () => {
    const talk = startConversation();
    talk.say("one");
    talk.nextRunner = "pod-2";
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    expect(turnOf(talk)).toMatchObject({ attempt: 2, runner: "pod-2" });
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    talk.nextRunner = null;
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    expect(turnOf(talk)).toMatchObject({ attempt: 4, runner: null });
  });

  test("that can't be found is requested again, and that is no attempt", () => {
    const talk = startConversation({ helper: { ...plain, attempts: 1 } });
    talk.runner = null;
    talk.say("one");
    const none = talk.ask({ type: "work_lost", epoch: 1, attempt: 1 });
    expect(none).toMatchObject({ answer: { done: false } });
    talk.runner = "pod-3";
    talk.ask({ type: "work_lost", epoch: 1, attempt: 1 });
    expect(turnOf(talk)).toMatchObject({ attempt: 1, lost: 0, runner: "pod-3" });
    expect(talk.effects).toEqual([{ type: "start_turn", epoch: 1, attempt: 1 }]);
  });

  test("that doesn't answer a stop leaves what it had sent, and comes too late with the rest", () => {
    const talk = startConversation();
    talk.say("one");
    talk.ask({ type: "stop" });
    const late = numbersOf(talk);
    talk.ask({ type: "stop_expired", epoch: 1, checkpoint });
    expect(talk.entries.at(-1)).toMatchObject({ outcome: "stopped", parts: checkpoint.parts });
    expect(talk.header).toMatchObject({ work: null, epoch: 2, lastSeq: 3 });
    const reply = { ...checkpoint, outcome: "stopped" } as const;
    talk.ask({ type: "turn_finished", ...late, reply });
    expect(talk.header.lastSeq).toBe(3);
  });

  test("that hands on what is being stopped leaves it to end with its checkpoint", () => {
    const talk = startConversation();
    talk.say("one");
    talk.ask({ type: "stop" });
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    expect(talk.effects).toEqual([]);
    talk.ask({ type: "work_lost", ...numbersOf(talk), checkpoint });
    expect(talk.entries.at(-1)).toMatchObject({ outcome: "stopped", parts: checkpoint.parts });
  });
});

test("a regeneration that is requested again while it runs is the same one", () => {
  const talk = startConversation();
  talk.say("one");
  talk.finish("first");
  regenerate(talk, 2);
  expect(turnOf(talk)).toMatchObject({ epoch: 2, trigger: "regenerate", replaces: 2, upToSeq: 2 });
  const { header } = talk;
  expect(regenerate(talk, 2)).toMatchObject({ answer: { done: true }, effects: [] });
  expect(talk.header).toBe(header);
});

describe("who stops an answer", () => {
  const stop = { type: "stop", author: "bea", by: "user" } as const;
  const stops = ({ entries }: ConversationHarness) => entries.filter(({ kind }) => kind === "stop");

  test("is an entry of the stop's own record, before what there is of the answer", () => {
    const talk = startConversation();
    talk.say("one");
    const { messageId } = turnOf(talk);
    const decision = talk.ask({ ...stop, epoch: 1 });
    expect(decision).toMatchObject({ answer: { done: true, seq: 2 } });
    expect(talk.header).toMatchObject({ lastSeq: 2, work: { stopping: true } });
    talk.finish("half");
    const { seq, author, role, stop: said } = stops(talk)[0]!;
    expect([seq, author, role]).toEqual([2, "bea", "user"]);
    expect(said).toEqual({ epoch: 1, messageId, by: "user" });
    expect(talk.entries.at(-1)).toMatchObject({ seq: 3, messageId, epoch: 1 });
  });

  test("is recorded once, however often the stop is sent, and with its first sender", () => {
    const talk = startConversation();
    talk.say("one");
    talk.ask({ ...stop, epoch: 1 });
    const { header } = talk;
    const again = talk.ask({ ...stop, author: "cai", epoch: 1 });
    expect(again).toMatchObject({ answer: { done: true }, entries: [], effects: [] });
    expect(talk.header).toBe(header);
    talk.finish("half");
    expect(talk.ask({ ...stop, epoch: 1 })).toMatchObject({ answer: { done: false }, entries: [] });
    expect(stops(talk).map(({ author }) => author)).toEqual(["bea"]);
  });

  test("isn't recorded where the answer has ended before, or is of another turn", () => {
    const talk = startConversation();
    talk.say("one");
    talk.finish("whole");
    expect(talk.ask({ ...stop, epoch: 1 })).toMatchObject({ answer: { done: false }, entries: [] });
    talk.say("two");
    expect(talk.ask({ ...stop, epoch: 1 })).toMatchObject({ answer: { done: false }, entries: [] });
    expect(stops(talk)).toEqual([]);
  });

  test("is a program where a pod of an earlier release doesn't name one", () => {
    const talk = startConversation();
    talk.say("one");
    talk.ask({ type: "stop" });
    expect(stops(talk)).toMatchObject([{ author: "program", role: "system" }]);
  });
});

test("a stop ends the turn that runs, and what waits is answered then", () => {
  const talk = startConversation();
  talk.say("one");
  talk.say("two");
  expect(talk.ask({ type: "stop", epoch: 7 })).toMatchObject({ answer: { done: false } });
  talk.ask({ type: "stop", epoch: 1 });
  expect(talk.effects).toMatchObject([{ type: "abort_turn", epoch: 1, keep: true }]);
  talk.finish("half");
  expect(turnOf(talk)).toMatchObject({ epoch: 2, stopping: false });
});

test("a header with all that a session usually has stays under 1 KiB", () => {
  const agent = "customer-support";
  const talk = startConversation(
    { [agent]: plain },
    { users: ["user_2pKqJc8xYb0aZr1", "user_9sLmTf4wEd7uHo6"] },
  );
  talk.nowMs = 1_790_000_000_000;
  talk.say("🙂".repeat(100), { tokens: 100_000 });
  talk.say("more", { tokens: 100_000 });
  const ids = { sessionId: "019a8c0e-7d1b-7c3a-9f21-3a5b6c7d8e9f", tenant: "a-tenant-of-ours" };
  const long = { ...talk.header, ...ids, lastSeq: 1_000_000, epoch: 500_000 };
  expect(Buffer.byteLength(JSON.stringify(long))).toBeLessThan(1_024);
});

describe("a turn that has stored steps", () => {
  const row = {
    key: "order",
    seq: 1,
    kind: "done",
    inputHash: null,
    value: "1",
    tookMs: 1,
    forgets: false,
  } as const;
  const keep = (talk: ConversationHarness, at = numbersOf(talk)) =>
    talk.ask({ type: "turn_steps", ...at, rows: [row] });

  test("stores them once they have ended, and changes its header with the first alone", () => {
    const talk = startConversation();
    talk.say("one");
    const steps = { ...numbersOf(talk), rows: [row] };
    expect(keep(talk)).toMatchObject({ steps, answer: { done: true } });
    const { header } = talk;
    expect(turnOf(talk)).toMatchObject({ hasSteps: true, lost: 0 });
    expect(keep(talk)).toMatchObject({ steps, answer: { done: true } });
    expect(talk.header).toBe(header);
    talk.finish("done");
    talk.say("two");
    expect(turnOf(talk).hasSteps).toBeUndefined();
  });

  test("refuses those of an earlier attempt or turn", () => {
    const talk = startConversation();
    talk.say("one");
    const first = numbersOf(talk);
    talk.ask({ type: "work_lost", ...first });
    const late = keep(talk, first);
    expect(late).toMatchObject({ answer: { done: false } });
    expect(late).not.toHaveProperty("steps");
    const second = numbersOf(talk);
    talk.finish("answer");
    talk.say("two");
    expect(keep(talk, second)).toMatchObject({ answer: { done: false } });
  });

  test("counts lost pods from the last of them, and begins beside others again", () => {
    const talk = startConversation({ helper: { ...plain, attempts: 3 } });
    talk.say("one");
    for (let times = 0; times < 10; times++) {
      talk.ask({ type: "work_lost", ...numbersOf(talk) });
      talk.ask({ type: "work_lost", ...numbersOf(talk) });
      expect(turnOf(talk)).toMatchObject({ lost: 2, alone: "waits" });
      keep(talk);
      expect(turnOf(talk)).toMatchObject({ lost: 0, attempt: 3 + 2 * times });
      expect(turnOf(talk)).not.toHaveProperty("alone");
    }
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    talk.ask({ type: "work_begun", ...numbersOf(talk) });
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    expect(talk.entries.at(-1)).toMatchObject({
      outcome: "failed",
      error: { code: "runner_lost" },
    });
  });

  test.each(["interrupt", "merge"] as const)(
    "is stopped by a message where the agent's option is %s, and what it has is kept",
    (during) => {
      const talk = startConversation({ helper: { ...plain, during } });
      talk.say("one");
      if (during === "merge") talk.ask({ type: "debounced", epoch: 1, upToSeq: 1 });
      keep(talk);
      const at = numbersOf(talk);
      talk.say("two");
      expect(talk.effects).toEqual([{ type: "abort_turn", runner: "pod-1", ...at, keep: true }]);
      expect(talk.header).toMatchObject({ work: { epoch: 1, stopping: true }, pending: [{}] });
      talk.say("three");
      const reply = { outcome: "stopped", parts: textParts("ordered"), tokens: 1 } as const;
      talk.ask({ type: "turn_finished", ...at, reply });
      expect(talk.entries.at(-1)).toMatchObject({ outcome: "stopped", epoch: 1 });
      expect(turnOf(talk)).toMatchObject({ epoch: 2, attempt: 1, upToSeq: 4, stopping: false });
      expect(talk.header.pending).toEqual([]);
    },
  );

  test("waits for its checkpoint where it is stopped and has no runner", () => {
    const talk = startConversation({ helper: { ...plain, during: "interrupt" } });
    talk.say("one");
    keep(talk);
    talk.runner = null;
    talk.ask({ type: "turn_released", ...numbersOf(talk) });
    talk.say("two");
    expect(turnOf(talk)).toMatchObject({ runner: null, stopping: true });
    const checkpoint = { outcome: "cut", parts: textParts("ordered"), tokens: 1 } as const;
    talk.ask({ type: "work_lost", ...numbersOf(talk), checkpoint });
    expect(talk.entries.at(-1)).toMatchObject({ outcome: "stopped", parts: checkpoint.parts });
  });
});

describe("a turn that hears messages", () => {
  const steered = { ...plain, steers: true } as const;
  const rowOf = (seqs: readonly number[], seq = 1) => ({
    key: `@taken[${seq}]`,
    seq,
    kind: "done" as const,
    inputHash: null,
    value: JSON.stringify({ seqs }),
    tookMs: 1,
    forgets: false,
  });
  const look = (talk: ConversationHarness) => {
    const decision = talk.ask({ type: "turn_hearing", ...numbersOf(talk) });
    return decision.type === "decided" ? decision.answer.steering : undefined;
  };
  const hear = (talk: ConversationHarness, seqs: readonly number[], at = numbersOf(talk)) =>
    talk.ask({ type: "turn_hearing", ...at, heard: { seqs, row: rowOf(seqs) } });

  test("goes on, and the next one doesn't answer what it has heard", () => {
    const talk = startConversation({ helper: steered });
    talk.say("one");
    talk.say("two");
    expect(talk.effects).toEqual([]);
    expect(talk.header.pending).toMatchObject([{ fromSeq: 2, upToSeq: 2 }]);
    expect(look(talk)).toEqual([2]);
    expect(hear(talk, [2])).toMatchObject({
      answer: { steering: [2] },
      steps: { epoch: 1, attempt: 1, rows: [{ key: "@taken[1]", value: '{"seqs":[2]}' }] },
    });
    expect(sessionStateOf(talk.header)).toMatchObject({ epoch: 1, upToSeq: 2 });
    expect(look(talk)).toEqual([]);
    talk.finish("both");
    expect(talk.header).toMatchObject({ work: null, pending: [] });
    expect(talk.entries.at(-1)).toMatchObject({ seq: 3, upToSeq: 2, beganSeq: 1 });
  });

  test("leaves what comes behind that to the next turn, if it ends before", () => {
    const talk = startConversation({ helper: steered });
    talk.say("one");
    talk.say("two");
    expect(look(talk)).toEqual([2]);
    talk.say("three");
    hear(talk, [2]);
    talk.finish("one and two");
    expect(turnOf(talk)).toMatchObject({ epoch: 2, upToSeq: 4, trigger: "submit" });
    expect(turnOf(talk).steering).toBeUndefined();
  });

  test("gives what it has heard to its later attempts alone", () => {
    const talk = startConversation({ helper: steered });
    talk.say("one");
    talk.say("two");
    const first = numbersOf(talk);
    talk.ask({ type: "work_lost", ...first });
    expect(hear(talk, [2], first)).toMatchObject({ answer: { done: false } });
    expect(look(talk)).toEqual([2]);
    hear(talk, [2]);
    talk.ask({ type: "work_lost", ...numbersOf(talk) });
    expect(look(talk)).toEqual([]);
    expect(turnOf(talk)).toMatchObject({ attempt: 3, steering: { waiting: [], heardSeq: 2 } });
  });

  test("hears none of another agent's, none once it is stopped, and none of one that was woken", () => {
    const talk = startConversation({ helper: steered, other: plain });
    talk.say("one");
    talk.say("for the other", { to: "other" });
    expect(look(talk)).toEqual([]);
    talk.say("two");
    expect(look(talk)).toEqual([3]);
    talk.ask({ type: "stop" });
    expect(look(talk)).toEqual([]);
    expect(hear(talk, [3])).toMatchObject({ header: talk.header, answer: { steering: [] } });
    talk.finish("as far as it came");
    expect(turnOf(talk)).toMatchObject({ agent: "other" });
    talk.finish("the other's");
    expect(turnOf(talk)).toMatchObject({ agent: "helper", upToSeq: 6 });
  });

  test("hears a hundred that wait, and the next turn answers all that come then", () => {
    const talk = startConversation({ helper: steered });
    talk.say("one");
    for (let at = 0; at < 150; at++) talk.say("more");
    const seqs = look(talk)!;
    expect(seqs).toEqual(Array.from({ length: maxSteering }, (_, at) => at + 2));
    hear(talk, seqs);
    // Those that wait came before it.
    talk.say("and more");
    expect(look(talk)).toEqual([]);
    talk.finish("the first hundred");
    expect(turnOf(talk)).toMatchObject({ epoch: 2, upToSeq: 153 });
  });

  test("hears while it goes on with a tool's result, and says up to where it has answered", () => {
    const talk = startConversation({ helper: steered });
    talk.say("one");
    talk.finish("answer");
    const target = { seq: 2, messageId: talk.entries[1]!.messageId, author: "helper" };
    const result = { clientId: "r", author: "ann", messageId: target.messageId, results: [] };
    talk.ask({ type: "tool_result", ...result, target, tokens: 1 });
    talk.say("two");
    expect(look(talk)).toEqual([4]);
    hear(talk, [4]);
    talk.finish("the rest of it");
    expect(talk.entries.at(-1)).toMatchObject({ replaces: 2, upToSeq: 4, beganSeq: 3 });
    expect(talk.header.work).toBeNull();
  });

  test("whose answer lacks what an earlier attempt has heard is followed by one that has it", () => {
    const talk = startConversation({ helper: steered });
    talk.say("one");
    talk.say("two");
    hear(talk, [2]);
    const reply = { outcome: "completed", parts: [], tokens: 1, unheard: true } as const;
    talk.ask({ type: "turn_finished", ...numbersOf(talk), reply });
    expect(turnOf(talk)).toMatchObject({ epoch: 2, trigger: "submit", upToSeq: 3 });
  });
});
