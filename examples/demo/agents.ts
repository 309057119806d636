import { setTimeout as sleep } from "node:timers/promises";
import { agent, type Chunk, textOf, type UIMessage } from "flotilla";
import { transcribe } from "./tasks.ts";

/** Says what it hears, word by word. */
export const echo = agent("echo", async function* ({ messages, signal }) {
  yield* slowly(`You said: ${lastText(messages)}`, signal);
});

/** Knows a few sentences, and shows what an answer can be made of without a model. */
export const guide = agent("guide", async function* ({ messages, signal, enqueue }): AsyncGenerator<
  Chunk | string
> {
  const asked = lastText(messages).toLowerCase();
  if (/think|why/.test(asked)) {
    yield { type: "reasoning-start", id: "r1" };
    for (const word of words("They ask for a reason, so I look for one.")) {
      yield { type: "reasoning-delta", id: "r1", delta: word };
      await sleep(40, undefined, { signal });
    }
    yield { type: "reasoning-end", id: "r1" };
    yield* slowly("Because what you said was stored before I began to answer.", signal);
  } else if (/work|task/.test(asked)) {
    const input = { minutes: 8 };
    yield { type: "tool-input-available", toolCallId: "c1", toolName: "transcribe", input };
    // Once for this answer, however often it is begun again after a crash.
    const output = await enqueue(transcribe, input, { toolCallId: "c1" });
    yield { type: "tool-output-available", toolCallId: "c1", output: { ...output } };
    yield* slowly(`It is task ${output.taskId}, and shows how far it is.`, signal);
  } else if (/long|story/.test(asked)) {
    const sentence = "And then another pod took over, and nobody noticed. ";
    yield* slowly(`Ctrl-C stops me, and keeps what I said. ${sentence.repeat(40)}`, signal);
  } else {
    const talk = "Ask me why, ask me for some work, or for a long story.";
    yield* slowly(`I have heard ${messages.length} of our messages. ${talk}`, signal);
  }
});

async function* slowly(text: string, signal: AbortSignal) {
  for (const word of words(text)) {
    yield word;
    await sleep(40, undefined, { signal });
  }
}

function words(text: string): string[] {
  return text.match(/\S+\s*/g) ?? [];
}

function lastText(messages: readonly UIMessage[]): string {
  return textOf(messages.findLast(({ role }) => role === "user") ?? { parts: [] });
}
