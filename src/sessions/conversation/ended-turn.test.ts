import { describe, expect, test } from "vitest";
import {
  type ConversationHarness,
  plain,
  startConversation,
  textParts,
} from "../contract/conversation-harness.ts";
import type { Command, EndedTurn, Reply } from "./command.ts";
import { endedTurn } from "./ended-turn.ts";

const usage = { input: 10, output: 5, cached: 2, model: "small", cost: 0.5 };

/** Asks, and gives the attempt that the decision has ended. */
function ask(talk: ConversationHarness, command: Command): EndedTurn | undefined {
  const before = talk.header;
  const decision = talk.ask(command);
  if (decision.type === "refused") throw new Error(decision.message);
  return endedTurn(before, command, decision, talk.nowMs);
}

function say(talk: ConversationHarness, text: string): EndedTurn | undefined {
  const id = `m-${text}`;
  const said = { clientId: id, messageId: id, author: "ann", parts: textParts(text), tokens: 1 };
  return ask(talk, { type: "append", role: "user", ...said });
}

function numbersOf({ header: { work } }: ConversationHarness) {
  return { epoch: work!.epoch, attempt: work!.attempt };
}

function reply(attempt: number, more: Partial<Reply> = {}): Reply {
  const measured = { attempt, firstChunkMs: 300.4, usage };
  return { outcome: "completed", parts: textParts("hi"), tokens: 1, measured, ...more };
}

describe("an attempt at a turn that has ended", () => {
  test("tells when it began, had its first chunk and ended, on which pod, and what it used", () => {
    const talk = startConversation();
    expect(say(talk, "one")).toBeUndefined();
    talk.nowMs = 3_000;
    const finished = { type: "turn_finished", ...numbersOf(talk), reply: reply(1) } as const;
    expect(ask(talk, finished)).toEqual({
      epoch: 1,
      attempt: 1,
      agent: "helper",
      podId: "pod-1",
      beganAtMs: 1_000,
      firstChunkAtMs: 1_300,
      endedAtMs: 3_000,
      outcome: "completed",
      usage,
    });
    expect(ask(talk, finished)).toBeUndefined();
  });

  test("is one of two where the next turn begins in the same decision", () => {
    const talk = startConversation();
    say(talk, "one");
    expect(say(talk, "two")).toBeUndefined();
    const failed = reply(1, { outcome: "failed", parts: [] });
    expect(ask(talk, { type: "turn_finished", ...numbersOf(talk), reply: failed })).toMatchObject({
      epoch: 1,
      outcome: "failed",
    });
    expect(numbersOf(talk)).toEqual({ epoch: 2, attempt: 1 });
  });

  test("is lost with its pod, with what its last checkpoint had, and the next begins later", () => {
    const talk = startConversation();
    say(talk, "one");
    talk.nowMs = 9_000;
    talk.runner = "pod-2";
    const checkpoint = reply(1, { outcome: "cut" });
    expect(ask(talk, { type: "work_lost", ...numbersOf(talk), checkpoint })).toMatchObject({
      attempt: 1,
      podId: "pod-1",
      outcome: "lost",
      endedAtMs: 9_000,
      usage,
    });
    // The tokens of the first attempt aren't counted for the second as well.
    talk.nowMs = 10_000;
    expect(ask(talk, { type: "work_lost", ...numbersOf(talk), checkpoint })).toMatchObject({
      attempt: 2,
      podId: "pod-2",
      outcome: "lost",
      beganAtMs: 9_000,
      firstChunkAtMs: null,
      usage: null,
    });
  });

  test("is released by a pod that shuts down", () => {
    const talk = startConversation();
    say(talk, "one");
    expect(ask(talk, { type: "turn_released", ...numbersOf(talk) })).toMatchObject({
      outcome: "released",
      attempt: 1,
    });
    expect(numbersOf(talk)).toEqual({ epoch: 1, attempt: 2 });
  });

  test("is dropped by a message that interrupts it", () => {
    const talk = startConversation({ helper: { ...plain, during: "interrupt" } });
    say(talk, "one");
    expect(say(talk, "two")).toMatchObject({ epoch: 1, outcome: "dropped", usage: null });
  });

  test("is stopped once its partial answer is stored, also where the pod doesn't answer", () => {
    const talk = startConversation();
    say(talk, "one");
    const { epoch, attempt } = numbersOf(talk);
    expect(ask(talk, { type: "stop", epoch })).toBeUndefined();
    expect(
      ask(talk, { type: "stop_expired", epoch, checkpoint: reply(attempt, { outcome: "cut" }) }),
    ).toMatchObject({ epoch, outcome: "stopped", usage });
  });

  test("has no pod where none was found, and began when it was looked for", () => {
    const talk = startConversation();
    talk.runner = null;
    say(talk, "one");
    talk.nowMs = 61_000;
    const none = reply(1, { outcome: "failed", parts: [] });
    const { measured: _, ...unmeasured } = none;
    expect(
      ask(talk, { type: "turn_finished", ...numbersOf(talk), reply: unmeasured }),
    ).toMatchObject({ podId: null, beganAtMs: 1_000, endedAtMs: 61_000, usage: null });
  });

  test("isn't there for a turn that only waited for further messages", () => {
    const merging = { ...plain, during: "merge", debounceMs: 500 } as const;
    const talk = startConversation({ helper: merging });
    say(talk, "one");
    expect(numbersOf(talk).attempt).toBe(0);
    expect(ask(talk, { type: "stop" })).toBeUndefined();
  });

  test("never ends before it began, though clocks of pods differ", () => {
    const talk = startConversation();
    say(talk, "one");
    talk.nowMs = 500;
    const ended = ask(talk, { type: "turn_finished", ...numbersOf(talk), reply: reply(1) });
    expect(ended).toMatchObject({ beganAtMs: 1_000, firstChunkAtMs: 1_000, endedAtMs: 1_000 });
  });
});
