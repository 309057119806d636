import { streamText } from "ai";
import { durable, type DurableContext } from "flotilla/durable";
import { simulatedModel } from "flotilla/testing";
import { speechWords, wordsByAttempt } from "./speech-words.ts";

/**
 * A durable agent of one call to a model. Each word has the number of the attempt that says it. The first
 * two attempts come to a place at which they say no more.
 */
export function speak(context: DurableContext & { attempt: number; signal: AbortSignal }) {
  const { attempt, signal } = context;
  let spoken = 0;
  const model = simulatedModel({
    wordMs: 10,
    clock: {
      after(delayMs, callback) {
        if (++spoken === wordsByAttempt[attempt - 1]) return () => {};
        const timer = setTimeout(() => callback(), delayMs);
        return () => clearTimeout(timer);
      },
    },
    answers({ soFar = "" }) {
      const from = soFar.split(" ").length;
      const words = Array.from({ length: speechWords + 1 - from }, (_, at) => from + at);
      return { text: words.map((word) => `${attempt}-${word} `).join("") };
    },
  });
  return streamText({ ...durable(context, { model }), prompt: "speak", abortSignal: signal });
}
