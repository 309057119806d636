import { expect, test } from "vitest";
import type { Compaction } from "./header.ts";
import {
  compacted,
  plain,
  startConversation,
  type ConversationHarness,
} from "../contract/conversation-harness.ts";

// The agent's budget is 100 tokens, and 70 make a compaction due.
const workOf = (talk: ConversationHarness) => talk.header.work as Compaction;
const fail = (talk: ConversationHarness) => {
  const { epoch, attempt } = workOf(talk);
  const error = { code: "broken", message: "" };
  return talk.ask({ type: "compaction_failed", epoch, attempt, error });
};

test("the history is summed up once a turn ends over the limit", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 30 });
  talk.finish("first", { tokens: 40 });
  expect(workOf(talk)).toMatchObject({ type: "compaction", epoch: 2, toSeq: 2, tokens: 70 });
  expect(talk.effects).toEqual([{ type: "start_compaction", epoch: 2, attempt: 1 }]);
  talk.finish("in short", { tokens: 5 });
  expect(talk.entries.at(-1)).toMatchObject({ kind: "summary", role: "system", throughSeq: 2 });
  expect(talk.header).toMatchObject({ work: null, summarySeq: 3, compactedSeq: 2, tokens: 5 });
});

test("a message that makes it due waits outside of the summary, and is answered then", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 10 });
  talk.finish("first", { tokens: 10 });
  talk.say("two", { tokens: 60 });
  expect(workOf(talk)).toMatchObject({ type: "compaction", toSeq: 2, tokens: 20 });
  talk.finish("in short", { tokens: 5 });
  expect(talk.header).toMatchObject({ compactedSeq: 2, tokens: 65, pending: [] });
  expect(talk.header.work).toMatchObject({ type: "turn", epoch: 3, upToSeq: 4 });
});

test("a first message that is too long for itself is answered at once", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 500 });
  expect(talk.header.work).toMatchObject({ type: "turn", epoch: 1 });
});

test("messages that come meanwhile aren't summed up, and are counted", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 30 });
  talk.say("waits", { tokens: 3 });
  talk.finish("first", { tokens: 40 });
  expect(workOf(talk)).toMatchObject({ type: "compaction", toSeq: 1, tokens: 30 });
  talk.say("two", { tokens: 7 });
  talk.finish("in short", { tokens: 5 });
  expect(talk.header).toMatchObject({ compactedSeq: 1, tokens: 3 + 40 + 7 + 5 });
  expect(talk.header.work).toMatchObject({ type: "turn", upToSeq: 5 });
});

test("a compactor that fails holds up no turn, and is tried again after ever more messages", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 70 });
  talk.finish("first", { tokens: 0 });
  talk.say("two", { tokens: 0 });
  fail(talk);
  expect(talk.header).toMatchObject({ compactionFailures: 1, failedAtTokens: 70 });
  expect(talk.header.work).toMatchObject({ type: "turn" });
  talk.finish("second", { tokens: 9 });
  expect(talk.header.work).toBeNull();
  talk.say("three", { tokens: 1 });
  expect(talk.header.work).toMatchObject({ type: "compaction" });
  fail(talk);
  talk.finish("third", { tokens: 19 });
  expect(talk.header.work).toBeNull();
  talk.say("four", { tokens: 1 });
  expect(talk.header.work).toMatchObject({ type: "compaction" });
  talk.finish("in short", { tokens: 1 });
  expect(talk.header).toMatchObject({ compactionFailures: 0, failedAtTokens: 0 });
});

test("a summary that is over the limit itself isn't summed up again after every turn", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 70 });
  talk.finish("first");
  talk.finish("at length", { tokens: 80 });
  talk.say("two", { tokens: 4 });
  talk.finish("second", { tokens: 5 });
  expect(talk.header.work).toBeNull();
  talk.say("three", { tokens: 1 });
  expect(talk.header.work).toMatchObject({ type: "compaction" });
});

test("a compaction is never followed by another, however much came meanwhile", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 70 });
  talk.finish("first");
  talk.say("a long note", { role: "system", tokens: 90 });
  talk.finish("in short", { tokens: 1 });
  expect(talk.header).toMatchObject({ work: null, tokens: 91 });
});

test("nothing is summed up in a session that is archived", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 70 });
  talk.ask({ type: "archive" });
  talk.finish("half");
  expect(talk.header).toMatchObject({ status: "archived", work: null });
});

test("a compaction whose runners are lost is given up, and so is one that no pod can make", () => {
  const talk = startConversation({ helper: { ...compacted, attempts: 2 } });
  talk.say("one", { tokens: 70 });
  talk.finish("first");
  talk.say("two");
  talk.ask({ type: "work_lost", epoch: 2, attempt: 1 });
  expect(workOf(talk)).toMatchObject({ type: "compaction", attempt: 2, lost: 1 });
  talk.ask({ type: "work_lost", epoch: 2, attempt: 2 });
  // Until it has begun alone, another has ended its pod.
  expect(workOf(talk)).toMatchObject({ type: "compaction", attempt: 3, lost: 1, alone: "waits" });
  talk.ask({ type: "work_begun", epoch: 2, attempt: 3 });
  talk.ask({ type: "work_lost", epoch: 2, attempt: 3 });
  expect(talk.header).toMatchObject({ compactionFailures: 1, work: { type: "turn" } });

  const alone = startConversation({ helper: compacted });
  alone.say("one", { tokens: 70 });
  alone.runner = null;
  alone.finish("first");
  expect(alone.header.work).toBeNull();
  alone.runner = "pod-1";
  alone.say("two");
  alone.runner = null;
  const { epoch, attempt } = workOf(alone);
  alone.ask({ type: "turn_released", epoch, attempt });
  expect(alone.header).toMatchObject({ compactionFailures: 0, work: { type: "turn" } });
});

test("where it is done by hand, it is only marked as due", () => {
  const compaction = { ...compacted.compaction!, when: "manual" } as const;
  const talk = startConversation({ helper: { ...compacted, compaction }, other: plain });
  talk.say("one", { tokens: 40 });
  talk.finish("first", { tokens: 40 });
  expect(talk.header).toMatchObject({ work: null, needsCompaction: true });
  expect(talk.ask({ type: "compact", agent: "other" })).toMatchObject({ code: "invalid_input" });
  talk.ask({ type: "compact" });
  expect(workOf(talk)).toMatchObject({ type: "compaction", toSeq: 2 });
  talk.finish("in short", { tokens: 1 });
  expect(talk.header).toMatchObject({ work: null, needsCompaction: false, tokens: 1 });
  expect(talk.ask({ type: "compact" })).toMatchObject({ answer: { done: false } });
});
