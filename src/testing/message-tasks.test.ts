import { describe, expect, test } from "vitest";
import { z } from "zod";
import { flow } from "../flows/flow.ts";
import { agent } from "../sessions/agents/agent.ts";
import { task } from "../tasks/task.ts";
import { testFlotilla } from "./test-flotilla.ts";

const mail = z.object({ to: z.string() });

async function setUp() {
  const sent: string[] = [];
  const send = task("send", { input: mail }, async ({ input }) => {
    sent.push(input.to);
    return `sent to ${input.to}`;
  });
  const welcome = flow("welcome", { version: 1, input: mail, output: z.object({ ok: z.string() }) })
    .to("greet", ({ input }) => ({ ok: input.to }))
    .end();
  const echo = agent("echo", async function* () {
    yield "thanks";
  });
  const t = await testFlotilla({ use: [send, welcome, echo] });
  const chat = await t.sessions.create(null, { user: "ada" });
  return { t, chat, send, welcome, sent };
}

describe("tasks that are sent with a message", () => {
  test("S13: start when it is stored, and their session has started them", async () => {
    const { t, chat, send, welcome, sent } = await setUp();
    await using _ = t;
    const { seq, tasks } = await chat.send("hello", {
      tasks: [
        { task: send, input: { to: "bob" }, ref: "first" },
        { task: "send", input: { to: "eve" }, after: ["first"], options: { priority: 5 } },
        { flow: welcome, input: { to: "cid" } },
      ],
    });
    expect(tasks).toHaveLength(3);
    expect(await t.waitFor(tasks![0]!)).toBe("sent to bob");
    expect(await t.waitFor(tasks![1]!.taskId)).toBe("sent to eve");
    expect(sent).toEqual(["bob", "eve"]);
    expect(await t.runs.wait(tasks![2]!.taskId)).toEqual({ ok: "cid" });
    const { entries } = await chat.entries();
    expect(entries[0]).toMatchObject({ seq, tasks: tasks!.map(({ taskId }) => taskId) });
    const { started } = await chat.started();
    const ids = started.map(({ taskId }) => taskId);
    expect(new Set(ids)).toEqual(new Set(tasks!.map(({ taskId }) => taskId)));
  });

  test("S13: are the same when it is sent again with its id, whatever is sent with it then", async () => {
    const { t, chat, send, sent } = await setUp();
    await using _ = t;
    const ofBob = { id: "m1", tasks: [{ task: send, input: { to: "bob" } }] };
    const first = await chat.send("hello", ofBob);
    const again = await chat.send("hello", {
      id: "m1",
      tasks: [{ task: send, input: { to: "x" } }],
    });
    expect(again).toEqual({ ...first, duplicate: true });
    await t.waitFor(first.tasks![0]!);
    await t.advance(1_000);
    expect(sent).toEqual(["bob"]);
  });

  test("S13: don't start if it is refused", async () => {
    const { t, chat, send, sent } = await setUp();
    await using _ = t;
    await chat.archive();
    const tasks = [{ task: send, input: { to: "bob" } }];
    await expect(chat.send("hello", { tasks })).rejects.toMatchObject({ code: "conflict" });
    await t.advance(1_000);
    expect(sent).toEqual([]);
    expect((await t.tasks.list()).tasks).toEqual([]);
  });

  test("S13: whose key is taken are found by their ids as the task that has it", async () => {
    const { t, chat, send, sent } = await setUp();
    await using _ = t;
    const holder = await t.enqueue(send, { to: "bob" }, { key: "k" });
    const tasks = [{ task: send, input: { to: "eve" }, options: { key: "k" } }];
    const { tasks: given } = await chat.send("hello", { tasks });
    expect(given![0]!.taskId).not.toBe(holder.taskId);
    expect(await t.waitFor(given![0]!)).toBe("sent to bob");
    expect(await t.tasks.get(given![0]!.taskId)).toMatchObject({ taskId: holder.taskId });
    expect(sent).toEqual(["bob"]);
  });

  test.each([
    ["an input that its schema refuses", { task: "send-typed" }, "invalid_input"],
    ["a name that can't be one", { task: "", input: 1 }, "invalid_option"],
    ["neither a task nor a flow", { input: 1 }, "invalid_option"],
    ["a policy of its key", { task: "send", options: { onDuplicate: "reject" } }, "invalid_option"],
    ["another tenant", { task: "send", options: { tenant: "acme" } }, "invalid_option"],
    ["a ref that there isn't", { task: "send", after: ["first"] }, "invalid_option"],
    [
      "a payload that is too large",
      { task: "send", input: "x".repeat(300_000) },
      "payload_too_large",
    ],
  ] as [string, Partial<Record<string, unknown>>, string][])(
    "with %s are refused, and nothing is stored",
    async (_, given, code) => {
      const { t, chat, send } = await setUp();
      await using __ = t;
      const row = given["task"] === "send-typed" ? { task: send, input: { to: 1 } } : given;
      const tasks = [{ task: "send", input: { to: "bob" } }, row] as never;
      await expect(chat.send("hello", { tasks })).rejects.toMatchObject({ code });
      expect(await chat.entries()).toMatchObject({ entries: [] });
      expect((await t.tasks.list()).tasks).toEqual([]);
    },
  );

  test("of more than a hundred are refused", async () => {
    const { t, chat } = await setUp();
    await using _ = t;
    const tasks = Array.from({ length: 101 }, () => ({ task: "send", input: { to: "bob" } }));
    await expect(chat.send("hello", { tasks })).rejects.toThrow(/at most 100 tasks/);
  });
});
