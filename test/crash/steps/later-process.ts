/**
 * A pod whose agent answers in sessions, with two tools whose outputs come later: at the end of a task, and
 * after a time. It tells each place that an answer reaches, and can be made to stop at one.
 */
import { openSync, writeSync } from "node:fs";
import process from "node:process";
import { convertToModelMessages, isStepCount, streamText, tool, type UIMessage } from "ai";
import { agent, type Pod, startPod, task } from "flotilla";
import { durable, later, stepOf } from "flotilla/durable";
import { simulatedModel } from "flotilla/testing";
import { z } from "zod";
import { silentLogger } from "../../../src/base/log.ts";
import type { FromPod, PodSpec } from "../pod-process.ts";
import type { AgentReport, AgentsGiven } from "./agents.ts";

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: AgentsGiven };
const { stops = {} } = spec.given;
const tell = (message: FromPod) => void process.send?.(message);
let pod: Pod | undefined;
const file = openSync(spec.ledgerPath.replace(/ledger$/, "agents"), "a");
const say = (report: Omit<AgentReport, "pod">) =>
  void writeSync(file, `${JSON.stringify({ ...report, pod: process.pid })}\n`);

/** Tells that an answer is here. If it is to stop here, it never goes on. */
async function reach(label: string, place: string, begins?: string): Promise<void> {
  say({ label, place, ...(begins !== undefined && { begins }) });
  if (stops[label] === place) await new Promise(() => {});
}

const script = [
  {
    text: "wait for it ",
    tools: [
      ["film", {}],
      ["nap", {}],
      ["look", {}],
    ] as [string, object][],
  },
  { text: "here it is" },
];

/** A model that tells when it is asked, and after each word. */
function toldModel(label: string) {
  let nth = 0;
  let word = 0;
  return simulatedModel({
    wordMs: 1,
    answers: async ({ toolResults }) => {
      nth = toolResults + 1;
      word = 0;
      await reach(label, `call ${nth}`, `turn ${nth}: model[1]`);
      return script[toolResults]!;
    },
    clock: {
      after(_durationMs, callback) {
        const place = `call ${nth}, word ${++word}`;
        void (async () => {
          await reach(label, place);
          callback();
        })();
        return () => {};
      },
    },
  });
}

const render = task("render", { input: z.object({ label: z.string() }) }, async ({ input }) => {
  await reach(input.label, "render begins");
  say({ label: input.label, place: "render did" });
  await reach(input.label, "render ends");
  return "a film";
});

const clerk = agent<UIMessage>("clerk", async (context) => {
  const label = context.sessionId;
  const toolOf = (name: string, output: () => unknown) =>
    tool({
      inputSchema: z.looseObject({}),
      execute: async (_input, options) => {
        await reach(label, `${name} begins`, `turn 1: ${name}[1.${options.toolCallId}]`);
        say({ label, place: `${name} did`, effect: stepOf(options).key });
        await reach(label, `${name} ends`);
        return output();
      },
    });
  const tools = {
    film: toolOf("film", () => later({ task: render, input: { label } })),
    nap: toolOf("nap", () => later({ afterMs: 200, output: "rested" })),
    look: toolOf("look", () => "seen"),
  };
  const settings = { model: toldModel(label), tools, stopWhen: isStepCount(5) };
  return streamText({
    ...durable(context, settings),
    messages: await convertToModelMessages([...context.messages]),
    abortSignal: context.signal,
    maxRetries: 0,
  });
});

pod = await startPod({
  pollMs: 100,
  pressure: false,
  slots: 1_000,
  ...spec.config,
  store: spec.store,
  use: [clerk, render],
  log: silentLogger,
});
tell({ ready: pod.podId });
process.once("SIGTERM", () => void pod!.stop().then(() => process.exit(0)));
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));
