import { simulatedModel } from "flotilla/testing";

type Prompt = readonly { readonly role: string; readonly content: unknown }[];

/** What the user has asked last. */
function topicOf(prompt: Prompt): string {
  const { content } = prompt.findLast(({ role }) => role === "user") ?? {};
  const [part] = Array.isArray(content) ? (content as { text?: string }[]) : [];
  return part?.text?.trim() || "tides";
}

/** How often tools have answered since. */
function stageOf(prompt: Prompt): number {
  const asked = prompt.findLastIndex(({ role }) => role === "user");
  return prompt.slice(asked).filter(({ role }) => role === "tool").length;
}

/** Leads the research. It says the same each time, so that no key is needed. */
export const lead = simulatedModel({
  modelId: "lead",
  wordMs: 20,
  answers({ prompt, hasTools }) {
    const topic = topicOf(prompt);
    const stage = hasTools ? stageOf(prompt) : Infinity;
    if (stage === 0) {
      return {
        text: `I have two readers look for ${topic}. `,
        tools: [
          ["read", { topic, source: "papers" }],
          ["read", { topic, source: "books" }],
        ],
      };
    }
    if (stage === 1) {
      return {
        text: "One book is not scanned yet. I order that, and go on when it has come. ",
        tools: [["scan", { book: `A history of ${topic}` }]],
      };
    }
    if (stage === 2) {
      return {
        text: "The scan is here, and the report is written. May I publish it? ",
        tools: [["publish", { title: `About ${topic}` }]],
      };
    }
    return { text: `That is all there is about ${topic}.` };
  },
});

/** Reads one source. Each of its calls counts against the budget of the whole answer. */
export const reader = simulatedModel({
  modelId: "reader",
  wordMs: 5,
  answers: ({ prompt }) => ({ text: `Notes: ${topicOf(prompt)}.` }),
});
