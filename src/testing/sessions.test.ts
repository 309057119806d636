import { simulateReadableStream, streamText } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { describe, expect, test } from "vitest";
import { textOf } from "../protocol/message.ts";
import { task } from "../tasks/task.ts";
import { agent } from "../sessions/agents/agent.ts";
import { testFlotilla } from "./test-flotilla.ts";
import { scriptedAgent } from "./scripted-agent.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield "you said ";
  yield textOf(messages.at(-1)!);
});

/** Takes real time, as models do. */
function slowModel() {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  return new MockLanguageModelV4({
    doStream: async () => ({
      stream: simulateReadableStream({
        initialDelayInMs: 20,
        chunkDelayInMs: 5,
        chunks: [
          { type: "text-start", id: "t" },
          { type: "text-delta", id: "t", delta: "Hel" },
          { type: "text-delta", id: "t", delta: "lo" },
          { type: "text-end", id: "t" },
          { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage },
        ],
      }),
    }),
  });
}

describe("sessions in a test", () => {
  test("are created, sent to and followed on the test's clock", async () => {
    await using t = await testFlotilla({ use: [echo] });
    const chat = await t.sessions.create(echo, { user: "ada" });
    expect(textOf(await chat.ask("hello"))).toBe("you said hello");
    const seen: string[] = [];
    for await (const event of chat.events()) {
      if (event.type === "entry") seen.push(event.entry.author);
      if (seen.length === 2) break;
    }
    expect(seen).toEqual(["ada", "echo"]);
    expect((await chat.messages()).map(({ role }) => role)).toEqual(["user", "assistant"]);
    for await (const event of t.sessions.inbox("ada")) {
      expect(event).toMatchObject({ type: "snapshot", sessions: [{ unread: 1 }] });
      break;
    }
  });

  test("say who is there until they are deleted", async () => {
    await using t = await testFlotilla({ use: [echo] });
    const chat = await t.sessions.create(echo, { user: "ada" });
    await chat.ask("hello");
    const seen: unknown[] = [];
    for await (const people of chat.presence()) {
      seen.push(people);
      await chat.remove();
    }
    expect(seen).toEqual([[]]);
    const gone = chat.presence().next();
    await expect(gone).rejects.toMatchObject({ code: "not_found" });
  });

  test("show what an agent streams as it streams it, while it waits for something real", async () => {
    const gate = Promise.withResolvers<void>();
    const slow = scriptedAgent("slow", [["one ", gate.promise, "two"]]);
    await using t = await testFlotilla({ use: [slow] });
    const chat = await t.sessions.create(slow, { user: "ada" });
    await chat.send("go");
    const deltas: unknown[] = [];
    for await (const event of chat.events()) {
      if (event.type === "chunk" && event.chunk.type === "text-delta") {
        deltas.push(event.chunk["delta"]);
        gate.resolve();
      }
      if (event.type === "entry" && event.entry.role === "assistant") break;
    }
    expect(deltas).toEqual(["one ", "two"]);
  });

  test.each(["streamText", "a Response"])(
    "wait for %s of the AI SDK, and crash in the middle of it",
    async (kind) => {
      const model = agent("model", ({ signal }) => {
        const result = streamText({ model: slowModel(), prompt: "hi", abortSignal: signal });
        return kind === "streamText" ? result : result.toUIMessageStreamResponse();
      });
      await using t = await testFlotilla({ use: [model], pods: 2 });
      const crash = t.crashAfter("chunk", { times: 3 });
      const chat = await t.sessions.create(model, { user: "ada" });
      const answer = await chat.ask("hello");
      expect([textOf(answer), answer.outcome]).toEqual(["Hello", "completed"]);
      expect(crash.pod?.alive).toBe(false);
    },
  );

  test("an agent that sends nothing times out without a real wait", async () => {
    const mute = scriptedAgent("mute", [[new Promise(() => {})]], { retries: 1 });
    await using t = await testFlotilla({ use: [mute] });
    const chat = await t.sessions.create(mute, { user: "ada" });
    await chat.send("hello?");
    await t.advance(31_000);
    const { entries } = await chat.entries();
    expect(entries[1]).toMatchObject({ outcome: "failed", error: { code: "agent_silent" } });
  });

  test.each(["started", "chunk", "ran"] as const)(
    "a pod that crashes at `%s` leaves the answer to another, which gives it once",
    async (point) => {
      const helper = scriptedAgent("helper", [["Hel", "lo"]]);
      await using t = await testFlotilla({ use: [helper], pods: 2 });
      const crash = t.crashAfter(point);
      const chat = await t.sessions.create(helper, { user: "ada" });
      const answer = await chat.ask("hello");
      expect(crash.pod?.alive).toBe(false);
      expect([textOf(answer), answer.outcome, answer.seq]).toEqual(["Hello", "completed", 2]);
      expect(helper.calls.map(({ epoch, attempt }) => [epoch, attempt]).at(-1)).toEqual([1, 2]);
      await t.advance(20_000);
      expect((await chat.entries()).lastSeq).toBe(2);
    },
  );

  test("S1, S3: what an owner stored and never learned of is found by the next owner", async () => {
    await using t = await testFlotilla({ use: [echo], pods: 2 });
    const chat = await t.sessions.create(null, { user: "ada" });
    const crash = t.crashAfter("stored");
    expect(await chat.send("once", { id: "m1" })).toMatchObject({ seq: 1, duplicate: true });
    expect(crash.pod?.alive).toBe(false);
    expect((await chat.entries()).entries).toHaveLength(1);
  });

  test("S5: a loop over events goes on at another pod, and misses nothing", async () => {
    await using t = await testFlotilla({ use: [echo], pods: 2 });
    const chat = await t.sessions.create(null, { user: "ada" });
    const events = chat.events();
    const seqs: number[] = [];
    const readTo = async (seq: number) => {
      while (seqs.at(-1) !== seq) {
        const { value } = await events.next();
        if (value?.type === "entry") seqs.push(value.entry.seq);
      }
    };
    await chat.send("one");
    await readTo(1);
    t.crash(t.pods[0]!);
    await chat.send("two");
    await readTo(2);
    expect(seqs).toEqual([1, 2]);
  });

  test("a turn that is started over enqueues its task once", async () => {
    const runs: string[] = [];
    const note = task("note", {}, ({ taskId }) => void runs.push(taskId));
    const clerk = agent("clerk", async function* ({ enqueue }) {
      const { taskId } = await enqueue(note, { text: "hello" });
      yield taskId;
    });
    await using t = await testFlotilla({ use: [clerk, note], pods: 2 });
    t.crashAfter("chunk");
    const chat = await t.sessions.create(clerk, { user: "ada" });
    const answer = await chat.ask("note this");
    await t.settled(textOf(answer));
    expect((await t.tasks.list({ name: "note" })).tasks).toHaveLength(1);
  });

  test("without any pod they reject with that", async () => {
    await using t = await testFlotilla({ use: [echo] });
    const chat = await t.sessions.create(echo, { user: "ada" });
    t.crash(t.pods[0]!);
    await expect(chat.ask("hello")).rejects.toMatchObject({ code: "conflict" });
    await t.startPod();
    expect(textOf(await chat.ask("hello"))).toBe("you said hello");
  });
});

describe("a scripted agent", () => {
  test("answers in each session with what comes next, and fails behind its end", async () => {
    const helper = scriptedAgent("helper", ["one", new Error("no model today"), () => "three"], {
      retries: 1,
    });
    await using t = await testFlotilla({ use: [helper] });
    const said: unknown[] = [];
    const first = await t.sessions.create(helper, { user: "ada" });
    for (let at = 0; at < 4; at++) {
      const { parts, outcome, error } = await first.ask(`question ${at}`);
      said.push(error ? [outcome, error.message] : textOf({ parts }));
    }
    expect(said).toEqual([
      "one",
      ["failed", "the agent failed"],
      "three",
      ["failed", expect.stringContaining("ends after 3 answers")],
    ]);
    const second = await t.sessions.create(helper, { user: "bob" });
    expect(textOf(await second.ask("hello"))).toBe("one");
    expect(helper.calls.at(-1)).toMatchObject({ user: "bob", epoch: 1 });
  });
});
