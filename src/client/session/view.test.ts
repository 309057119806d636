import { describe, expect, test } from "vitest";
import { createClientView, loadLazyModule } from "./view.ts";

const idle = { state: "idle" } as const;
const now = { status: "live", state: idle, lastSeq: 0 } as const;
const message = { id: "m", parts: [{ type: "text", text: "hi" }] };

describe("what was sent here", () => {
  test("is shown until its entry is here, and isn't unsent once it is acked", () => {
    const shown = createClientView(() => {});
    shown.unsent(message);
    expect(shown.snapshot(now)).toMatchObject({ unsent: [message], messages: [{ id: "m" }] });
    shown.stored("m", 1);
    expect(shown.snapshot(now)).toMatchObject({ unsent: [], messages: [{ id: "m" }] });
  });

  test("isn't shown for ever where the log was cut back before its entry came", () => {
    const shown = createClientView(() => {});
    shown.unsent(message);
    shown.stored("m", 5);
    shown.take({ type: "joined", lastSeq: 5, state: idle }, idle);
    expect(shown.snapshot(now).messages).toHaveLength(1);
    shown.take({ type: "joined", lastSeq: 3, state: idle }, idle);
    expect(shown.snapshot(now).messages).toEqual([]);
  });
});

test("an answer whose turn waits is no message yet, and is shown with its place", async () => {
  await loadLazyModule();
  const shown = createClientView(() => {});
  const of = { type: "chunks", epoch: 1, attempt: 1 } as const;
  const waiting = (data: object | null) => ({ type: "data-waiting", transient: true, data });
  shown.take({ ...of, fromStart: true, chunks: [waiting({ ahead: 3 })] }, idle);
  expect(shown.snapshot(now)).toMatchObject({ messages: [], waiting: { ahead: 3 } });
  expect(shown.live!.snapshot()).toEqual([waiting({ ahead: 3 })]);
  shown.take({ ...of, fromStart: false, chunks: [waiting({ ahead: 1, aboutMs: 500 })] }, idle);
  expect(shown.snapshot(now)).toMatchObject({ messages: [], waiting: { ahead: 1, aboutMs: 500 } });
  shown.take({ ...of, fromStart: false, chunks: [waiting(null)] }, idle);
  expect(shown.snapshot(now)).not.toHaveProperty("waiting");
  const start = [{ type: "start" }, { type: "text-start", id: "t" }];
  shown.take({ ...of, fromStart: false, chunks: start }, idle);
  expect(shown.snapshot(now).messages).toMatchObject([{ role: "assistant" }]);
});

test("where a turn stood is shown no more once another attempt has begun", () => {
  const shown = createClientView(() => {});
  const turn = { epoch: 1, agent: "helper", messageId: "a", upToSeq: 1, stopping: false };
  const waiting = { state: "waiting", attempt: 1, ...turn } as const;
  const chunks = [{ type: "data-waiting", transient: true, data: { ahead: 3 } }];
  shown.take({ type: "chunks", epoch: 1, attempt: 1, fromStart: true, chunks }, waiting);
  expect(shown.snapshot({ ...now, state: waiting })).toMatchObject({ waiting: { ahead: 3 } });
  const again = { ...waiting, state: "catching_up", attempt: 2 } as const;
  expect(shown.snapshot({ ...now, state: again })).not.toHaveProperty("waiting");
});
