import { agent, abort, type Chunk, textOf, type UIMessage } from "flotilla";
import { callIn, goOn, order, timeZone } from "./calls.ts";
import { slowly, thinking } from "./saying.ts";
import { transcribe } from "./tasks.ts";

/** Says what it hears, word by word. */
export const echo = agent("echo", async function* ({ messages, signal }) {
  yield* slowly(`You said: ${lastText(messages)}`, signal);
});

/** Knows a few sentences, and shows what an answer can be made of without a model. */
export const guide = agent("guide", { during: "steer" }, async function* (context): AsyncGenerator<
  Chunk | string
> {
  const { messages, signal, enqueue, steering } = context;
  // Somebody has answered what it asked at the end of its last message: it goes on there.
  const decided = callIn(messages.at(-1));
  if (decided) return yield* goOn(decided, signal);

  const asked = lastText(messages).toLowerCase();
  if (/\b(think|why)/.test(asked)) {
    yield* thinking("They ask for a reason, so I look for one.", signal);
    yield* slowly("Because what you said was stored before I began to answer.", signal);
  } else if (/\b(order|pay|delete|coffee)/.test(asked)) {
    yield* slowly("I can do that, but not without your word.", signal);
    yield* order(/pay|delete/.exec(asked)?.[0] ?? "coffee");
  } else if (/\btime/.test(asked)) {
    yield* slowly("Only your browser knows where you are.", signal);
    yield* timeZone();
  } else if (/\b(work|task)/.test(asked)) {
    const input = { minutes: 20 };
    yield { type: "tool-input-available", toolCallId: "c1", toolName: "transcribe", input };
    // Once for this answer, however often it is begun again after a crash.
    const output = await enqueue(transcribe, input, { toolCallId: "c1" });
    yield { type: "tool-output-available", toolCallId: "c1", output: { ...output } };
    yield* slowly(`It is task ${output.taskId}, and shows how far it is.`, signal);
  } else if (/\b(fail|error)/.test(asked)) {
    yield* slowly("Here it comes.", signal);
    throw abort("You asked me to fail, so I did.");
  } else if (/\bcode/.test(asked)) {
    yield* slowly(snippet, signal);
  } else if (/\b(long|story)/.test(asked)) {
    const sentence = "And then another pod took over, and nobody noticed. ";
    yield* slowly("Stop me, and what I said is kept. Say more, and I hear it. ", signal);
    for (let told = 0; told < 40; told++) {
      for (const heard of await steering()) yield* slowly(`(I hear: ${textOf(heard)}) `, signal);
      yield* slowly(sentence, signal);
    }
  } else {
    const talk = "Ask me why, for some work, a coffee, the time, some code or a long story.";
    yield* slowly(`I have heard ${messages.length} of our messages. ${talk}`, signal);
  }
});

const snippet = `An agent is a function:

\`\`\`ts
export const echo = agent("echo", async function* ({ messages }) {
  yield \`You said: \${textOf(messages.at(-1)!)}\`;
});
\`\`\`

Put it into \`use\` of a config, and \`npx flotilla dev\` runs it.`;

function lastText(messages: readonly UIMessage[]): string {
  return textOf(messages.findLast(({ role }) => role === "user") ?? { parts: [] });
}
