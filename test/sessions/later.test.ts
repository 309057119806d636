import {
  convertToModelMessages,
  isStepCount,
  streamText,
  tool,
  type UIMessage as SdkMessage,
} from "ai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { durable, later } from "../../src/durable/index.ts";
import type { Entry } from "../../src/protocol/message.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { task } from "../../src/tasks/task.ts";
import { simulatedModel } from "../../src/testing/simulated-model.ts";
import { entriesOnce, type SessionFleet, startFleet, stores, textOf } from "./fleet.ts";

const film = z.object({ scene: z.string() });
const render = task("render", { input: film }, async ({ input }) => `${input.scene}.mp4`);
const schema = z.object({ ok: z.boolean() });
const tools = {
  film: tool({ inputSchema: film, execute: (input) => later({ task: render, input }) }),
  ask: tool({ inputSchema: z.object({}), execute: () => later({ signal: "approve", schema }) }),
  nap: tool({ inputSchema: z.object({}), execute: () => later({ afterMs: 50, output: "up" }) }),
};
const model = simulatedModel({
  answers: [
    {
      tools: [
        ["film", { scene: "dawn" }],
        ["ask", {}],
        ["nap", {}],
      ],
    },
    { text: "All is there." },
  ],
});
const helper = agent<SdkMessage>("helper", async (context) =>
  streamText({
    ...durable(context, { model, tools, stopWhen: isStepCount(5) }),
    messages: await convertToModelMessages([...context.messages]),
    abortSignal: context.signal,
  }),
);

const isResult = ({ kind }: Entry) => kind === "tool_result";

describe.each(stores)("outputs that come later, on $name", (store) => {
  let fleet: SessionFleet;
  beforeAll(async () => {
    fleet = await startFleet(store, [helper, render]);
  });
  afterAll(() => fleet[Symbol.asyncDispose]());

  test("come from a task, a time and a signal, and the agent goes on when all have come", async () => {
    const begun = model.begun;
    const chat = await fleet.web.sessions.create("helper", { user: "ada" });
    const asks = await chat.ask("go");
    expect(asks.outcome).toBe("completed");
    await entriesOnce(chat, (all) => all.filter(isResult).length === 2);
    expect((await chat.view()).state).toEqual({ state: "idle" });
    const wrong = chat.signal("approve", { ok: 1 });
    await expect(wrong).rejects.toMatchObject({ code: "invalid_input" });
    // One signal counts, through whichever process it came.
    const sent = await Promise.allSettled(
      fleet.ways.map((way) =>
        way.open(chat.sessionId, { user: "bob" }).signal("approve", { ok: true }),
      ),
    );
    expect(sent.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const refused = sent.flatMap((each) => (each.status === "rejected" ? [each.reason] : []));
    expect(refused).toMatchObject([{ code: "conflict" }, { code: "conflict" }]);
    const entries = await entriesOnce(chat, (all) => all.at(-1)?.replaces === asks.seq);
    expect(entries.filter(isResult)).toHaveLength(3);
    expect(textOf(entries.at(-1)!)).toBe("All is there.");
    const outputs = entries.at(-1)!.parts.flatMap((part) => part["output"] ?? []);
    expect(outputs).toEqual(["dawn.mp4", { ok: true }, "up"]);
    expect(model.begun - begun).toBe(2);
  });

  test("of sessions that are gone end quietly", async () => {
    const chat = await fleet.able.sessions.create("helper", { user: "ada" });
    await chat.ask("go");
    await chat.remove();
    await expect
      .poll(async () => (await fleet.web.tasks.stats()).byName["flotilla:later"])
      .toMatchObject({ pending: 0, claimed: 0, failed: 0 });
    const signal = chat.signal("approve", { ok: true });
    await expect(signal).rejects.toMatchObject({ code: "not_found" });
  });
});
