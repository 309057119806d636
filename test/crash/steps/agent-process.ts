/**
 * A pod whose tasks are durable agents: three model calls, three tools, and an agent within one of them. It
 * tells each place that an agent reaches, and agents can be made to stop at one.
 */
import { openSync, writeSync } from "node:fs";
import process from "node:process";
import { generateText, isStepCount, streamText, tool } from "ai";
import { type Pod, startPod, task } from "flotilla";
import { durable, type DurableContext, stepOf } from "flotilla/durable";
import { simulatedModel } from "flotilla/testing";
import { z } from "zod";
import { silentLogger } from "../../../src/base/log.ts";
import type { FromPod, PodSpec, ToPod } from "../pod-process.ts";
import { pauseFor } from "../until.ts";
import { type AgentReport, type AgentsGiven, attemptOver } from "./agents.ts";

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: AgentsGiven };
const { stops = {}, paceMs = 0, release = 1 } = spec.given;
const tell = (message: FromPod) => void process.send?.(message);
let pod: Pod | undefined;
const file = openSync(spec.ledgerPath.replace(/ledger$/, "agents"), "a");
const say = (report: Omit<AgentReport, "pod">) =>
  void writeSync(file, `${JSON.stringify({ ...report, pod: process.pid })}\n`);

const opened = Promise.withResolvers<void>();

/** Tells that an agent is here. If it is to stop here, it waits until the process is told to open. */
async function reach(label: string, place: string, begins?: string): Promise<void> {
  say({ label, place, ...(begins !== undefined && { begins }) });
  if (stops[label] === place) await opened.promise;
  if (paceMs > 0) await pauseFor(paceMs);
}

type Script = readonly { readonly text: string; readonly tools?: [string, object][] }[];

/** A model that tells when it is asked, after each word, and when it has said everything. */
function toldModel(label: string, within: string, script: Script) {
  let nth = 0;
  let word = 0;
  return simulatedModel({
    wordMs: 1,
    answers: async ({ toolResults }) => {
      nth = toolResults + 1;
      word = 0;
      await reach(label, `${within}call ${nth}`, `${within}model[${nth}]`);
      return script[toolResults]!;
    },
    clock: {
      after(_durationMs, callback) {
        const place = `${within}call ${nth}, word ${++word}`;
        void (async () => {
          await reach(label, place);
          callback();
        })();
        return () => {};
      },
    },
  });
}

const outer: Script = [
  { text: "First the weather ", tools: [["weather", { city: "Oslo" }]] },
  {
    text: "then two things at once ",
    tools: [
      ["book", { seats: 2 }],
      ["write", { about: "rain" }],
    ],
  },
  { text: "all is done" },
];

const toolOf = <Input extends object>(
  label: string,
  name: string,
  call: number,
  execute: (input: Input, options: object) => Promise<string>,
) =>
  tool({
    inputSchema: z.looseObject({}),
    execute: async (input, options) => {
      const key = `${name}[${call}.${options.toolCallId}]`;
      await reach(label, `${name} begins`, key);
      const output = await execute(input as Input, options);
      // The effect: the same key in every attempt, so that it counts once.
      say({ label, place: `${name} did`, effect: stepOf(options).key });
      await reach(label, `${name} ends`);
      return output;
    },
  });

async function runAgent(label: string, context: DurableContext): Promise<string> {
  const tools = {
    weather: toolOf(label, "weather", 1, async ({ city }: { city: string }) => `rain in ${city}`),
    book: toolOf(label, "book", 2, async ({ seats }: { seats: number }) => `${seats} seats`),
    write: toolOf(label, "write", 2, async ({ about }: { about: string }, options) => {
      const inner = toldModel(label, "write[2.call-1-1]/", [{ text: `a poem about ${about}` }]);
      const settings = durable(stepOf(options), { model: inner });
      return (await generateText({ ...settings, prompt: "write" })).text;
    }),
  };
  const settings = { model: toldModel(label, "", outer), tools, stopWhen: isStepCount(5) };
  const prompt = release === 1 ? "go" : "go, as the second release says";
  const result = streamText({ ...durable(context, settings), prompt, maxRetries: 0 });
  const [text, steps] = await Promise.all([result.text, result.steps]);
  const outputs = steps.flatMap(({ toolResults }) => toolResults.map(({ output }) => output));
  // Tools that run at once end in any order.
  return JSON.stringify([text, steps.map((each) => each.text), outputs.map(String).toSorted()]);
}

const agents = task("agent", { input: z.object({ label: z.string() }) }, async (context) => {
  const { label } = context.input;
  try {
    if (release === 2) await context.step("prepare", () => "prepared");
    const said = await runAgent(label, context);
    await reach(label, "the handler ends");
    return said;
  } finally {
    say({ label, place: attemptOver });
  }
});

pod = await startPod({
  pollMs: 100,
  pressure: false,
  slots: 1_000,
  ...spec.config,
  store: spec.store,
  use: [agents],
  log: silentLogger,
});
tell({ ready: pod.podId });
process.on("message", (message: ToPod) => {
  if ("open" in message) opened.resolve();
});
process.once("SIGTERM", () => void pod!.stop().then(() => process.exit(0)));
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));
