import { describe, expect, test } from "vitest";
import { createShown } from "./shown.ts";

const idle = { state: "idle" } as const;
const now = { status: "live", state: idle, lastSeq: 0 } as const;
const message = { id: "m", parts: [{ type: "text", text: "hi" }] };

describe("what was sent here", () => {
  test("is shown until its entry is here, and isn't unsent once it is acked", () => {
    const shown = createShown(() => {});
    shown.unsent(message);
    expect(shown.snapshot(now)).toMatchObject({ unsent: [message], messages: [{ id: "m" }] });
    shown.stored("m", 1);
    expect(shown.snapshot(now)).toMatchObject({ unsent: [], messages: [{ id: "m" }] });
  });

  test("isn't shown for ever where the log was cut back before its entry came", () => {
    const shown = createShown(() => {});
    shown.unsent(message);
    shown.stored("m", 5);
    shown.take({ type: "joined", lastSeq: 5, state: idle }, idle);
    expect(shown.snapshot(now).messages).toHaveLength(1);
    shown.take({ type: "joined", lastSeq: 3, state: idle }, idle);
    expect(shown.snapshot(now).messages).toEqual([]);
  });
});
