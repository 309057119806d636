import { describe, expect, test } from "vitest";
import type { Part, UIMessage } from "../../protocol/message.ts";
import { decisionsIn, toolResultId } from "./tool-decisions.ts";
import { reconcile } from "./sync.ts";

const nothing = { unsent: [] };
const watched = { isWatched: true };

describe("an idle chat is shown", () => {
  test("what the log has, once, and then stays as it is", () => {
    const messages = [stored("1", "user"), stored("2", "assistant")];
    const shown = reconcile([said("1", "user")], { ...nothing, messages }, watched)!;
    expect(shown).toEqual(messages);
    expect(reconcile(shown, { ...nothing, messages }, watched)).toBeUndefined();
  });

  test("what others wrote meanwhile, in its place", () => {
    const messages = [stored("1", "user"), stored("other", "user"), stored("2", "assistant")];
    const shown = reconcile([messages[0]!, messages[2]!], { ...nothing, messages }, watched);
    expect(shown).toEqual(messages);
  });

  test("what the page began with in front, and what couldn't be sent behind", () => {
    const [greeting, unsent] = [said("hello", "assistant"), said("mine", "user")];
    const messages = [stored("1", "user")];
    const shown = [greeting, messages[0]!, unsent];
    expect(reconcile(shown, { ...nothing, messages }, watched)).toBeUndefined();
    const more = [...messages, stored("2", "assistant")];
    expect(reconcile(shown, { ...nothing, messages: more }, watched)).toEqual([
      greeting,
      ...more,
      unsent,
    ]);
  });

  test("nothing of a log that was replaced", () => {
    const shown = [stored("old", "user"), stored("older", "assistant")];
    const messages = [stored("new", "user")];
    expect(reconcile(shown, { ...nothing, messages }, watched)).toEqual(messages);
  });

  test("no half of an answer that isn't streamed at the end", () => {
    const messages = [stored("1", "user")];
    const shown = [messages[0]!, said("cut", "assistant")];
    expect(reconcile(shown, { ...nothing, messages }, watched)).toEqual(messages);
  });

  test("of an answer that it left only what it saw of it, until that is stored", () => {
    const live = said("2", "assistant", [{ type: "text", text: "one two three" }]);
    const seen = said("2", "assistant", [{ type: "text", text: "one" }]);
    const messages = [stored("1", "user"), live];
    const answer = { messageId: "2", epoch: 1, attempt: 1, message: live };
    const shown = [messages[0]!, seen];
    const left = { isWatched: false };
    expect(reconcile(shown, { ...nothing, messages, answer }, left)).toBeUndefined();
    expect(reconcile(shown, { ...nothing, messages, answer }, watched)).toEqual(messages);
  });

  test("decisions that it hasn't sent yet", () => {
    const asked = stored("2", "assistant", [call("approval-requested", { id: "p" })]);
    const decided = { ...asked, parts: [call("approval-responded", { id: "p", approved: true })] };
    const messages = [stored("1", "user"), asked, stored("3", "user")];
    const shown = reconcile([messages[0]!, decided], { ...nothing, messages }, watched);
    expect(shown).toEqual(messages.with(1, decided));
  });
});

describe("decisions", () => {
  const asked = stored("2", "assistant", [call("approval-requested", { id: "p" })]);

  test("are what a chat knows of calls and the log doesn't", () => {
    const decided = call("approval-responded", { id: "p", approved: false, reason: "too dear" });
    const results = [{ toolCallId: "c", approved: false, approvalId: "p", reason: "too dear" }];
    expect(decisionsIn({ ...asked, parts: [decided] }, asked)).toEqual(results);
    expect(decisionsIn(asked, asked)).toEqual([]);
    expect(decisionsIn(asked, { ...asked, parts: [decided] })).toEqual([]);
    // What another tab decided before stands.
    const before = call("approval-responded", { id: "p", approved: true });
    expect(decisionsIn({ ...asked, parts: [decided] }, { ...asked, parts: [before] })).toEqual([]);
  });

  test("are outputs and errors of tools that it ran", () => {
    const waiting = stored("2", "assistant", [call("input-available")]);
    const output = { ...call("output-available"), output: { at: "UTC" } };
    const failed = { ...call("output-error"), errorText: "no" };
    expect(decisionsIn({ ...asked, parts: [output] }, waiting)).toEqual([
      { toolCallId: "c", output: { at: "UTC" } },
    ]);
    expect(decisionsIn({ ...asked, parts: [failed] }, waiting)).toEqual([
      { toolCallId: "c", errorText: "no" },
    ]);
  });

  test("have an id that is the same for the same ones, and for no others", () => {
    const yes = [{ toolCallId: "c", approved: true, approvalId: "p" }];
    const ids = [
      toolResultId("2", yes),
      toolResultId("2", [{ ...yes[0]!, approved: false }]),
      toolResultId("3", yes),
    ];
    expect(new Set(ids).size).toBe(3);
    expect(toolResultId("2", [...yes])).toBe(ids[0]);
  });
});

function said(id: string, role: "user" | "assistant", parts: readonly Part[] = []): UIMessage {
  return { id, role, parts };
}

function stored(id: string, role: "user" | "assistant", parts: readonly Part[] = []): UIMessage {
  return { ...said(id, role, parts), metadata: { flotilla: { seq: 1 } } };
}

function call(state: string, approval?: object): Part {
  return { type: "tool-pay", toolCallId: "c", state, input: {}, ...(approval && { approval }) };
}
