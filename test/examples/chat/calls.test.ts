import type { UIMessage } from "@ai-sdk/react";
import { describe, expect, test } from "vitest";
import { isDecided } from "../../../examples/chat/src/lib/calls.ts";

const call = (state: string, name = "order") => ({ type: `tool-${name}`, toolCallId: name, state });
const said = { type: "text", text: "Done." };
const chat = (...parts: object[]) => ({
  messages: [{ id: "a", role: "assistant", parts } as unknown as UIMessage],
});

describe("an answer that ended with calls", () => {
  test("is gone on with once all of them are decided", () => {
    expect(isDecided(chat(said, call("approval-responded")))).toBe(true);
    expect(isDecided(chat(said, call("output-available", "time_zone")))).toBe(true);
    expect(isDecided(chat(call("approval-requested"), call("approval-responded", "pay")))).toBe(
      false,
    );
    expect(isDecided(chat(call("input-available", "time_zone"), call("approval-responded")))).toBe(
      false,
    );
  });

  test("isn't once its agent has gone on", () => {
    expect(isDecided(chat(call("output-available", "time_zone"), said))).toBe(false);
    expect(isDecided(chat(call("output-available")))).toBe(false);
    expect(isDecided(chat(said))).toBe(false);
    expect(isDecided({ messages: [] })).toBe(false);
  });
});
