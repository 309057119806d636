// An agent whose model fails in its third call: the next attempt makes that call alone.
// prints: the model is asked
// prints: search for tides
// prints: the model is asked
// prints: the writer is asked
// prints: the model is asked, and is overloaded
// prints: attempt 2
// prints: the model is asked
// prints: Tides: the moon pulls the sea.
import { generateText, isStepCount, tool } from "ai";
import { startPod, task } from "flotilla";
import { durable, stepOf } from "flotilla/durable";
import { simulatedModel } from "flotilla/testing";
import { z } from "zod";

const model = simulatedModel({
  answers: ({ nth, toolResults }) => {
    const isOverloaded = nth === 3;
    console.log(`the model is asked${isOverloaded ? ", and is overloaded" : ""}`);
    if (isOverloaded) throw new Error("overloaded");
    if (toolResults === 0) return { tools: [["search", { topic: "tides" }]] };
    if (toolResults === 1) return { tools: [["write", { about: "the moon" }]] };
    return { text: "Tides: the moon pulls the sea." };
  },
});
const writer = simulatedModel({
  answers: () => {
    console.log("the writer is asked");
    return { text: "The moon pulls the sea." };
  },
});

const tools = {
  search: tool({
    inputSchema: z.object({ topic: z.string() }),
    execute: async ({ topic }) => {
      console.log(`search for ${topic}`);
      return ["moon", "sun"];
    },
  }),
  // An agent within a tool: its calls are steps within the tool's step.
  write: tool({
    inputSchema: z.object({ about: z.string() }),
    execute: async ({ about }, options) => {
      const settings = durable(stepOf(options), { model: writer });
      return (await generateText({ ...settings, prompt: `write about ${about}` })).text;
    },
  }),
};

const research = task("research", { backoff: { baseMs: 10 } }, async (context) => {
  if (context.attempt > 1) console.log(`attempt ${context.attempt}`);
  const settings = durable(context, { model, tools, stopWhen: isStepCount(10) });
  const { text } = await generateText({ ...settings, prompt: "tides?", maxRetries: 0 });
  return text;
});

await using pod = await startPod({ store: "sqlite:durable-agent.db", use: [research] });
console.log(await pod.waitFor(await pod.enqueue(research, null)));
