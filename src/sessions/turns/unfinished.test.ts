import { isStepCount, streamText, tool } from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { sleep } from "../../base/clock.ts";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { durable } from "../../durable/index.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { type SimulatedAnswer, simulatedModel } from "../../testing/simulated-model.ts";
import { agent } from "../agents/agent.ts";
import { createRunnerHarness, replyText } from "../contract/turns-harness.ts";
import type { Reply } from "../conversation/command.ts";
import {
  createUnfinished,
  decodeCheckpoint,
  encodeCheckpoint,
  readUnfinished,
} from "./unfinished.ts";

const wordMs = 20;
/** 300 words of ten characters each, which take six seconds. */
const words = Array.from({ length: 300 }, (_, at) => `word ${String(at).padStart(3, "0")}. `);
const found = "I have found it. ";

const script = [{ text: found, tools: [["look", {}]] as const }, { text: words.join("") }];

type Options = {
  /** How long the model takes before it goes on with half an answer. */
  readonly slowMs?: number;
  readonly answers?: readonly SimulatedAnswer[];
};

/** A turn that notes something, then makes two calls and a tool. The second call says 300 words. */
function speaking({ slowMs = 0, answers = script }: Options = {}) {
  const clock = movableClock();
  const model = simulatedModel({
    clock,
    wordMs: wordMs / 2,
    answers: async ({ toolResults, soFar }) => {
      if (soFar !== undefined) await sleep(clock, slowMs);
      return answers[toolResults]!;
    },
  });
  const tools = { look: tool({ inputSchema: z.object({}), execute: async () => "seen" }) };
  const spec = agent("helper", async function* (context) {
    yield { type: "data-note", data: "one moment" };
    const settings = durable(context, { model, tools, stopWhen: isStepCount(5) });
    const result = streamText({ ...settings, prompt: "go", abortSignal: context.signal });
    yield* result.toUIMessageStream() as AsyncIterable<Chunk>;
  });
  const scene = createRunnerHarness(spec, { clock });
  const textOf = (attempt: number) =>
    scene.live
      .filter((each) => each.attempt === attempt)
      .flatMap(({ chunks }) => chunks)
      .map((chunk) => (chunk.type === "text-delta" ? String(chunk["delta"]) : ""))
      .join("");
  const checkpoints = () =>
    scene.told.flatMap((each) => (each.type === "checkpoint" ? [decodeCheckpoint(each.body)] : []));
  return {
    scene,
    clock,
    model,
    textOf,
    checkpoints,
    /** Waits until the attempt has said so many of the words. */
    said: (attempt: number, count: number) =>
      until(`${count} words are said`, async () => {
        await clock.advance(wordMs);
        return textOf(attempt).includes(words[count - 1]!);
      }),
    ended: () =>
      until("the turn ends", async () => {
        await clock.advance(100);
        return scene.told.some(({ type }) => type === "turn_finished");
      }),
  };
}

const keptText = (unfinished: object | undefined): string =>
  JSON.stringify(Object.values(unfinished ?? {}));

describe("the words of an unfinished call", () => {
  test("are in a checkpoint each second, and in none once the call is stored", async () => {
    const { scene, clock, said, checkpoints, ended } = speaking();
    await scene.begin();
    await said(1, 30);
    const before = checkpoints().length;
    for (let second = 0; second < 3; second++) await clock.advance(1_000);
    const kept = checkpoints().slice(before);
    expect(kept.length).toBeGreaterThanOrEqual(3);
    for (const { unfinished, reply } of kept) {
      expect(Object.keys(unfinished)).toEqual(["model[2]"]);
      // The reply so far is whole, for a turn that ends here.
      expect(replyText(reply)).toContain(found + words[0]!);
      expect(keptText(unfinished)).not.toContain(found);
    }
    expect(keptText(kept.at(-1)!.unfinished)).toContain(words[99]!);
    await ended();
    expect(replyText(await scene.reply())).toBe(found + words.join(""));
  });

  test("are gone on with by the next attempt, which sends nothing before them", async () => {
    const { scene, said, textOf, model, clock, ended } = speaking();
    await scene.begin();
    await said(1, 150);
    const seen = textOf(1);
    scene.live.length = 0;
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await until("it is sent", async () => {
      await clock.advance(5);
      return scene.live.length > 0;
    });
    const [first] = scene.live;
    expect(first).toMatchObject({ attempt: 2, index: 0 });
    const kept = textOf(2);
    expect(kept.startsWith(found)).toBe(true);
    expect(seen.startsWith(kept.slice(0, seen.length))).toBe(true);
    // A second of words at most was not kept.
    expect(kept.length).toBeGreaterThan(seen.length - 1_000 / (wordMs / 10) - 50);
    await ended();
    expect(textOf(2)).toBe(found + words.join(""));
    const reply = await scene.reply();
    const texts = reply.parts.filter(({ type }) => type === "text");
    expect(texts.map(({ text }) => text)).toEqual([found, words.join("")]);
    expect(model.begun).toBe(3);
  });

  test("are waited for while the model takes its time, and nothing is sent before, not for ever", async () => {
    for (const [slowMs, sentByMs] of [
      [10_000, 11_000],
      [60_000, 31_000],
    ] as const) {
      const { scene, said, textOf, clock } = speaking({ slowMs });
      await scene.begin();
      await said(1, 150);
      scene.live.length = 0;
      await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
      await clock.advance(Math.min(slowMs, 29_000) - 1_000);
      expect(scene.live).toEqual([]);
      await clock.advance(sentByMs - Math.min(slowMs, 29_000) + 1_000);
      expect(scene.live[0]).toMatchObject({ attempt: 2, index: 0 });
      expect(textOf(2).startsWith(found)).toBe(true);
      expect(textOf(2).includes(words[50]!)).toBe(slowMs < 30_000);
      scene.runner.abort({ sessionId: scene.sessionId, epoch: 1, attempt: 2 }, { keep: false });
    }
  });

  test("of the first call are there before anything else is sent, though no step is stored", async () => {
    const { scene, said, textOf, clock, ended } = speaking({
      slowMs: 2_000,
      answers: [{ text: words.join("") }],
    });
    await scene.begin();
    await said(1, 150);
    scene.live.length = 0;
    await scene.begin({ epoch: 1, attempt: 2 });
    await clock.advance(1_500);
    expect(scene.live).toEqual([]);
    await clock.advance(1_000);
    const [first] = scene.live;
    expect(JSON.stringify(first!.chunks)).toContain(words[90]);
    await ended();
    expect(textOf(2)).toBe(words.join(""));
  });

  test("stay kept by an attempt that is lost before it has gone on with them", async () => {
    const { scene, said, textOf, ended, checkpoints } = speaking();
    await scene.begin();
    await said(1, 150);
    const kept = checkpoints().at(-1)!.unfinished;
    await scene.begin({ epoch: 1, attempt: 2, hasSteps: true });
    await scene.begin({ epoch: 1, attempt: 3, hasSteps: true });
    await ended();
    expect(textOf(3)).toBe(found + words.join(""));
    const unfinished = createUnfinished(kept, () => {});
    expect(unfinished.now()).toEqual(kept);
  });

  test("of a pod that has to stop within the call are all stored, before another goes on", async () => {
    const { scene, clock, said, textOf, checkpoints } = speaking();
    await scene.begin();
    await said(1, 123);
    const stopped = scene.runner.stop({ waitMs: 50 });
    await clock.advance(60);
    await clock.advance(60);
    await stopped;
    const order = scene.told.map(({ type }) => type);
    expect(order.slice(-2)).toEqual(["checkpoint", "turn_released"]);
    const seen = textOf(1);
    const last = checkpoints().at(-1)!;
    expect(keptText(last.unfinished)).toContain(seen.slice(found.length));
  });
});

describe("a checkpoint", () => {
  const reply: Reply = { outcome: "cut", parts: [{ type: "text", text: "so far" }], tokens: 1 };

  test("is the reply so far where nothing is unfinished, as earlier releases read it", () => {
    expect(JSON.parse(encodeCheckpoint(reply, {}))).toEqual(reply);
    const body = encodeCheckpoint(reply, { "model[1]": { content: [] } });
    expect(decodeCheckpoint(body)).toEqual({ reply, unfinished: { "model[1]": { content: [] } } });
    expect(decodeCheckpoint(JSON.stringify(reply))).toEqual({ reply, unfinished: {} });
  });

  test("is gone on with by later attempts at its own turn alone", async () => {
    const body = encodeCheckpoint(reply, { "model[1]": "half" });
    const journal = {
      checkpoint: async (sessionId: string) => ({ sessionId, epoch: 2, attempt: 2, body }),
    };
    const read = (epoch: number, attempt: number) =>
      readUnfinished(journal, "s", { epoch, attempt });
    expect(await read(2, 3)).toEqual({ "model[1]": "half" });
    for (const [epoch, attempt] of [
      [2, 2],
      [2, 1],
      [1, 3],
      [3, 3],
    ] as const) {
      expect(await read(epoch, attempt)).toEqual({});
    }
  });
});
